use std::{
    ffi::OsStr,
    process::{Child, Command, Stdio},
};

use super::error::BrokerError;

/// Cleans up when it is dropped, and when the process that holds it dies in any way.
///
/// A shell reads from a pipe that nobody writes to. The pipe's other end is closed by the drop or,
/// when the process dies, by the system. Then the shell continues with the clean-up. Rust's own
/// drop would miss statics, aborts and SIGKILL.
#[derive(Debug)]
pub(super) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Starts watching. `cleanup` is a shell script, and `args` are its arguments.
    ///
    /// Call it before there is anything to clean up, so that nothing can be left behind at any
    /// moment.
    pub(super) fn start(
        cleanup: &str,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self, BrokerError> {
        // A terminal's interrupt goes to the whole foreground process group, and the clean-up must
        // survive it.
        let script = format!("trap '' INT TERM HUP\ncat >/dev/null\n{cleanup}");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, "sh"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let shell = command
            .spawn()
            .map_err(BrokerError::io("start a shell that cleans up after the test broker"))?;
        Ok(Self { shell })
    }
}

impl Drop for Watchdog {
    /// Returns when the clean-up is done, so that the next test finds the ports free.
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // An error means that the shell has already ended.
        let _ = self.shell.wait();
    }
}
