//! The layout of the sources: no files of a package import each other in a circle, and no layer of
//! the library imports a higher one.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up: each layer may import itself and those before it. Code that decides is below
/// code that acts.
const LAYERS: &[&str] = &[
    "clock",
    "debug",
    "duration",
    "lobby",
    "lock",
    "pause",
    "random",
    "signals",
    "timestamp",
    "pulse",
    "shutdown",
    "wire::names",
    "failure",
    "wait",
    "retry",
    "message",
    "wire",
    "decode",
    "handler",
    "settings",
    "topology",
    "error",
    "broker",
    "status",
    "publish",
    "telemetry",
    "monitoring",
    "publisher",
    "consumer",
    "consume",
    "handle",
    "service",
];

/// Modules beside the library's layers. They may import anything, but no layer imports them.
const APART: &[&str] = &["testing", "docs", "inputs", "internals", "lib"];

type Imports = BTreeMap<String, BTreeSet<String>>;

/// Each source file's module path, and the files that it imports, without tests.
fn imports(sources: &str) -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(sources);
    let mut files = Vec::new();
    collect(&root, &mut files);
    let modules: BTreeMap<String, PathBuf> =
        files.into_iter().map(|file| (module(&root, &file), file)).collect();
    let names: BTreeSet<String> = modules.keys().cloned().collect();
    let found: Imports = modules
        .iter()
        .map(|(module, file)| {
            let source = fs::read_to_string(file).unwrap();
            let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let imported = paths(code, module)
                .filter_map(|path| owner(&names, &path))
                .filter(|other| other != module);
            (module.clone(), imported.collect())
        })
        .collect();
    assert!(
        found.values().map(BTreeSet::len).sum::<usize>() > 0,
        "imports were found in {sources}"
    );
    found
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn module(root: &Path, file: &Path) -> String {
    let path =
        file.strip_prefix(root).unwrap().with_extension("").to_str().unwrap().replace('/', "::");
    path.strip_suffix("::mod").map(str::to_owned).unwrap_or(path)
}

/// The paths that follow `crate::` or `super::`, from the crate's root. A group in braces counts as
/// the path before it, and as that path with each name in the group.
fn paths<'a>(code: &'a str, module: &'a str) -> impl Iterator<Item = String> + 'a {
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(move |line| {
        let mut found = Vec::new();
        for (start, base) in [("crate::", ""), ("super::", parent)] {
            for (at, _) in line.match_indices(start) {
                let rest = &line[at + start.len()..];
                let end = rest
                    .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                    .unwrap_or(rest.len());
                let path = rest[..end].trim_end_matches(':');
                let full = [base, path]
                    .iter()
                    .filter(|part| !part.is_empty())
                    .copied()
                    .collect::<Vec<_>>()
                    .join("::");
                if let Some(group) = rest[end..].strip_prefix('{') {
                    let names = group.split('}').next().unwrap().split(',').map(str::trim);
                    found.extend(names.map(|name| format!("{full}::{name}")));
                }
                found.push(full);
            }
        }
        found
    })
}

/// The file that a path belongs to: the longest prefix of the path that is a module.
fn owner(modules: &BTreeSet<String>, path: &str) -> Option<String> {
    let mut path = path;
    loop {
        if modules.contains(path) {
            return Some(path.to_owned());
        }
        path = path.rsplit_once("::")?.0;
    }
}

fn layer(module: &str) -> Option<usize> {
    let found = LAYERS
        .iter()
        .enumerate()
        .filter(|(_, layer)| module == **layer || module.starts_with(&format!("{layer}::")));
    found.max_by_key(|(_, layer)| layer.len()).map(|(index, _)| index)
}

#[test]
fn every_file_is_on_a_layer_and_imports_no_higher_one() {
    let mut wrong = Vec::new();
    for (module, imported) in imports("src") {
        let top = module.split("::").next().unwrap();
        if APART.contains(&top) {
            continue;
        }
        let Some(here) = layer(&module) else {
            wrong.push(format!("{module} is on no layer"));
            continue;
        };
        for other in imported {
            match layer(&other) {
                Some(there) if there <= here => {}
                _ => wrong.push(format!("{module} imports {other}, which is higher")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for package in [
        "src",
        "crates/operator/src",
        "crates/page/src",
        "crates/cli/src",
        "crates/testing/src",
        "crates/simulator/src",
        "crates/worlds/src",
        "crates/bench/src",
        "crates/demo/src",
    ] {
        let imports = imports(package);
        let mut done = BTreeSet::new();
        for module in imports.keys() {
            walk(module, &imports, &mut Vec::new(), &mut done);
        }
    }
}

fn walk(module: &str, imports: &Imports, way: &mut Vec<String>, done: &mut BTreeSet<String>) {
    if done.contains(module) {
        return;
    }
    let circle = way.iter().position(|visited| visited == module);
    assert!(circle.is_none(), "a circle: {} -> {module}", way[circle.unwrap_or(0)..].join(" -> "));
    way.push(module.to_owned());
    for other in &imports[module] {
        // A folder's own file declares the files in it.
        let declares =
            other.starts_with(&format!("{module}::")) || module.starts_with(&format!("{other}::"));
        if !declares {
            walk(other, imports, way, done);
        }
    }
    way.pop();
    done.insert(module.to_owned());
}
