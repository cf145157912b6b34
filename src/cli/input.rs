//! What the tool reads.

use std::io::{self, Read};
use std::path::Path;

/// The bytes of a file, or of standard input for `-`.
pub(super) fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file.as_os_str() != "-" {
        return std::fs::read(file);
    }
    let mut body = Vec::new();
    io::stdin().lock().read_to_end(&mut body)?;
    Ok(body)
}
