//! What the compiler says of a mistake leads to the remedy.
//!
//! Each file of `cases/` is a program with one mistake. Its first lines, `// says: …`, quote what the
//! message has to contain: words of rehop or, where the compiler's own message is good, a word that
//! it cannot do without. So the test depends little on the version of the compiler. A file without
//! such a line has to compile.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A reader does not look for the remedy further down.
const LINES: usize = 15;

/// What a case may import.
const CRATES: [&str; 4] = ["rehop", "serde", "tower_layer", "tower_service"];

#[test]
fn the_first_lines_of_the_compilers_message_lead_to_the_remedy() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let arguments = library(target.parent().unwrap(), &compiler);
    let out = target.join("mistakes");
    fs::create_dir_all(&out).unwrap();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("mistakes/cases");
    let mut cases: Vec<PathBuf> =
        fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() > 20, "few cases were found: {cases:?}");
    let wrong: Vec<String> =
        cases.iter().filter_map(|case| complaint(case, &compiler, &arguments, &out)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What is wrong with the compiler's message.
fn complaint(case: &Path, compiler: &str, arguments: &[String], out: &Path) -> Option<String> {
    let source = fs::read_to_string(case).unwrap();
    let says: Vec<_> = source.lines().map_while(|line| line.strip_prefix("// says: ")).collect();
    let metadata = out.join(case.file_name().unwrap()).with_extension("rmeta");
    let output = run(Command::new(compiler)
        .args(arguments)
        .arg("-o")
        .arg(metadata)
        .arg(case)
        .current_dir(out));
    let message = String::from_utf8(output.stderr).unwrap();
    let first: Vec<_> = message.lines().take(LINES).collect();
    let first = first.join("\n");
    let missing: Vec<_> = says.iter().filter(|words| !first.contains(**words)).collect();
    let what = if !missing.is_empty() {
        format!("the first {LINES} lines lack {missing:?}")
    } else if message.contains("(T0, T1") {
        "it lists the types that serde knows".to_owned()
    } else if says.is_empty() && !(output.status.success() && message.is_empty()) {
        "it should compile".to_owned()
    } else {
        return None;
    };
    Some(format!("{}: {what}:\n{message}", case.display()))
}

/// Builds the library as a dependency, unless that is done. Returns the compiler's arguments for a
/// program that depends on it.
fn library(target: &Path, compiler: &str) -> Vec<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = run(Command::new(cargo)
        .args(["check", "--locked", "--offline", "--lib", "--package=rehop"])
        .args(["--no-default-features", "--features=tower"])
        .args(["--message-format=json", "--target-dir"])
        .arg(target)
        // Programs are compiled by the same one.
        .env("RUSTC", compiler)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")));
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo did not build the library: {problem}");
    let mut arguments: Vec<String> =
        ["--edition=2024", "--crate-type=lib", "--emit=metadata"].map(str::to_owned).into();
    let mut folders = BTreeSet::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let built: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = built["target"]["name"].as_str().unwrap_or_default().replace('-', "_");
        let files = built["filenames"].as_array().into_iter().flatten();
        for file in files.filter_map(serde_json::Value::as_str) {
            folders.insert(Path::new(file).parent().unwrap().display().to_string());
            if CRATES.contains(&name.as_str()) && file.ends_with(".rmeta") {
                arguments.push(format!("--extern={name}={file}"));
            }
        }
    }
    arguments.extend(folders.iter().map(|folder| format!("-Ldependency={folder}")));
    arguments
}

fn run(command: &mut Command) -> Output {
    // Keeps the compiler off the job server of a `make` that runs this test.
    command.env_remove("MAKEFLAGS").env_remove("CARGO_MAKEFLAGS");
    command.output().unwrap_or_else(|error| {
        panic!("no message was tried, because {:?} does not run: {error}", command.get_program())
    })
}
