//! Files with secrets that every user of the machine can read.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rehop::settings::Entry;

/// Settings that hold a secret, if they show a mask.
const SECRETS: [&str; 4] =
    ["broker.url", "broker.urls", "broker.password", "broker.management_url"];
/// Settings that name a file which is a secret as a whole.
const SECRET_FILES: [&str; 2] = ["broker.password_file", "broker.tls.key_file"];
const MASK: &str = "***";
const READ_BY_OTHERS: u32 = 0o004;

/// Warns of each file with a secret that is readable to everybody.
pub(super) fn warn(entries: &[Entry]) {
    for file in files(entries).into_iter().filter(|file| is_readable_to_others(Path::new(file))) {
        tracing::warn!(
            "every user of this machine can read {file}, which holds a secret: chmod o-r takes that away"
        );
    }
}

/// The files with secrets. A setting's source may also be a variable or an option.
fn files(entries: &[Entry]) -> BTreeSet<&str> {
    let files = entries.iter().filter_map(|Entry { key, value, source, .. }| match key.as_str() {
        key if SECRETS.contains(&key) => value.contains(MASK).then_some(source.as_str()),
        key if SECRET_FILES.contains(&key) => Some(value.trim_matches('"')),
        _ => None,
    });
    files.collect()
}

fn is_readable_to_others(file: &Path) -> bool {
    let mode = file.metadata().ok().filter(|it| it.is_file()).map(|it| it.permissions().mode());
    mode.is_some_and(|mode| mode & READ_BY_OTHERS != 0)
}
