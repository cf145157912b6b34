//! The page of questions explains what the logs and errors say.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::fs;
use std::path::{Path, PathBuf};

/// What comes before a text that an operator may see. The fields of a log line may be between.
const BEFORE: [&str; 4] = ["tracing::info!(", "tracing::warn!(", "tracing::error!(", "#[error("];

/// What the tool builds an error with. Nothing but a `format!` may be before its text; a later text
/// belongs to other code.
const BUILT_WITH: [&str; 5] = ["bail!(", "anyhow!(", "context(", "Usage(", "usage("];

/// An operator may search the page for a line of the log, or for an error. A text without two fixed
/// words in a row, or one that is built elsewhere, is not looked for.
#[test]
fn the_page_of_questions_has_each_log_line_and_error_of_the_libraries_and_the_tool() {
    let faq = in_one_line(include_str!("../src/docs/faq.md"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for sources in ["src", "crates/operator/src", "crates/page/src", "crates/cli/src"] {
        collect(&root.join(sources), &mut files);
    }
    let sources = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let texts: Vec<_> = sources.flat_map(|source| shown(&source)).collect();
    assert!(texts.len() > 170, "few were found: {texts:?}");
    let missing: Vec<_> = texts
        .iter()
        .filter(|text| begin(text).is_some_and(|begin| !faq.contains(&begin)))
        .collect();
    assert!(missing.is_empty(), "faq.md lacks {missing:#?}");
}

#[test]
fn a_text_is_looked_for_by_its_first_words_between_what_is_filled_in() {
    let source = r#"
/// #[error("the card was declined")]
#[error(transparent)]
Broker(#[from] Error),
#[error(
    "queue {queue:?} \
     is full"
)]
tracing::warn!(%error, "{a} log lines \
    were \"lost\"; {b}");
// Not tracing::warn!("a comment").
tracing::info!("c");
bail!("no editor is set");
read(file).with_context(|| {
    format!("cannot read {}", file.display())
})?;
read(file).with_context(what)?;
Usage(
    "--set needs {}".to_owned(),
)
Usage(problem.to_owned())
usage(&format!("is not a URL: {error}"))
let problem = "of other code";
#[cfg(test)]
mod tests {
    #[error("of a test")]
"#;
    let expected = [
        "c",
        "{a} log lines were \"lost\"; {b}",
        "queue {queue:?} is full",
        "no editor is set",
        "cannot read {}",
        "--set needs {}",
        "is not a URL: {error}",
    ];
    assert_eq!(shown(source), expected);
    let cases = [
        ("{a} log lines were \"lost\"; {b}", Some("log lines were \"lost\"")),
        ("a {b} line of many more words", Some("line of many more words")),
        ("one two three four five six", Some("one two three four five")),
        ("a word: more", Some("a word")),
        ("{error:#}: {text}", None),
    ];
    for (text, expected) in cases {
        assert_eq!(begin(text).as_deref(), expected, "{text}");
    }
}

/// All files but those of tests.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_tests = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_tests {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_tests {
            files.push(path);
        }
    }
}

/// The first text in each log line and error of this source.
fn shown(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let after = |before: &'static str| code.split(before).skip(1);
    let found = BEFORE.into_iter().flat_map(after).filter(|rest| !rest.starts_with("transparent)"));
    let built = BUILT_WITH.into_iter().flat_map(after).filter(|rest| begins_with_a_text(rest));
    found.chain(built).filter_map(first_text).collect()
}

fn begins_with_a_text(call: &str) -> bool {
    let between = call.split('"').next().unwrap_or_default();
    matches!(between.replace(['|', '{', '&', ' ', '\n'], "").as_str(), "" | "format!(")
}

fn first_text(call: &str) -> Option<String> {
    let mut text = String::new();
    let mut rest = call.split_once('"')?.1.chars();
    loop {
        match rest.next()? {
            '"' => return Some(in_one_line(&text)),
            // Of an escaped line break only the break is kept.
            '\\' => text.push(rest.next()?),
            character => text.push(character),
        }
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most five words of the first part of a text that nothing is filled into. A single word would
/// be found anywhere.
fn begin(text: &str) -> Option<String> {
    let fixed = text.split('{').flat_map(|part| part.rsplit('}').next());
    let parts = fixed.flat_map(|part| part.split([';', ':']));
    let words = parts.map(|part| part.split_whitespace().take(5).collect::<Vec<_>>());
    words.filter(|words| words.len() > 1).map(|words| words.join(" ")).next()
}
