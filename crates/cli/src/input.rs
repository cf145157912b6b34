//! What the tool reads.

use std::io::{self, Read};
use std::path::Path;

/// The bytes of what can be read only once: standard input for `-`, a pipe or a device. `None` for
/// a regular file.
pub(super) fn spool(file: &Path) -> io::Result<Option<Vec<u8>>> {
    if file.as_os_str() != "-" && std::fs::metadata(file)?.is_file() {
        return Ok(None);
    }
    read(file).map(Some)
}

/// The bytes of a file, or of standard input for `-`.
pub(super) fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file.as_os_str() != "-" {
        return std::fs::read(file);
    }
    let mut body = Vec::new();
    io::stdin().lock().read_to_end(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::spool;

    #[test]
    fn only_a_regular_file_can_be_read_again() {
        let folder =
            std::env::temp_dir().join(format!("rehop-spool-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&folder).unwrap();
        let (file, pipe) = (folder.join("file"), folder.join("pipe"));
        std::fs::write(&file, "one\n").unwrap();
        assert_eq!(spool(&file).unwrap(), None);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let writing = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::write(pipe, "two\n").unwrap()
        });
        assert_eq!(spool(&pipe).unwrap().as_deref(), Some(&b"two\n"[..]));
        writing.join().unwrap();
        assert_eq!(spool(Path::new("/dev/null")).unwrap().as_deref(), Some(&b""[..]));
        assert!(spool(&folder.join("none")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
