//! The signals that stop a service: SIGINT and SIGTERM.

use std::fmt;
use std::future::Future;
use std::io;

/// Completes at the first SIGINT or SIGTERM that comes after this call; on other systems than Unix,
/// at Ctrl-C. Made for [`Service::with_graceful_shutdown`](crate::Service::with_graceful_shutdown):
/// terminals send SIGINT, while Kubernetes, Docker and systemd send SIGTERM. A process that SIGTERM
/// kills leaves its messages to the broker, which counts this against each of them.
///
/// From this call on these signals no longer end the process, and later ones are ignored.
/// `shutdown.grace` bounds how long the shutdown takes: let it end before the platform's own limit,
/// such as `terminationGracePeriodSeconds`. To stop at once at a second signal, use [`Signals`]. If
/// the signals cannot be listened for, this is logged and the future never completes.
///
/// ```no_run
/// # use rehop::{Failure, Message};
/// # async fn charge(_: Message<String>) -> Result<(), Failure> { Ok(()) }
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let shutdown = rehop::shutdown_signal();
/// let settings = rehop::Settings::load()?;
/// rehop::Service::new(&settings).consumer("orders", charge).with_graceful_shutdown(shutdown).await?;
/// # Ok(()) }
/// ```
///
/// It listens from the call on, so call it first in `main`: a service that is process 1 of its
/// container does not end at a signal that nobody listens for. Whatever else takes long before the
/// service runs, such as the migration of a database, no longer ends at a signal by itself. Let it
/// race with this future:
///
/// ```no_run
/// # use rehop::{Failure, Message};
/// # async fn charge(_: Message<String>) -> Result<(), Failure> { Ok(()) }
/// # async fn migrate() -> Result<(), std::io::Error> { Ok(()) }
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let mut shutdown = Box::pin(rehop::shutdown_signal());
/// tokio::select! {
///     () = &mut shutdown => return Ok(()),
///     done = migrate() => done?,
/// }
/// let settings = rehop::Settings::load()?;
/// rehop::Service::new(&settings).consumer("orders", charge).with_graceful_shutdown(shutdown).await?;
/// # Ok(()) }
/// ```
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub fn shutdown_signal() -> impl Future<Output = ()> + Send + 'static {
    let signals = Signals::listen();
    async move {
        match signals {
            Ok(mut signals) => {
                let signal = signals.next().await;
                tracing::info!(%signal, "shutting down");
            }
            Err(error) => {
                tracing::error!(%error, "cannot listen for signals; they end the process at once");
                std::future::pending().await
            }
        }
    }
}

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// SIGINT, or Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    /// The exit status that a shell reports for a process that this signal has killed: 130 or 143.
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}

/// SIGINT and SIGTERM, one after the other. Without a second signal in mind, use
/// [`shutdown_signal`].
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Starts to listen. From now on these signals do not end the process, even after this value is
    /// dropped.
    ///
    /// # Errors
    ///
    /// When the system refuses to install a signal handler.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next signal.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    /// Prepares to listen for Ctrl-C.
    ///
    /// # Errors
    ///
    /// Never on this system.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// The next Ctrl-C.
    pub async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::process::{Command, id};

    use super::*;

    fn send(signal: &str) {
        assert!(
            Command::new("kill")
                .args(["-s", signal, &id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    #[tokio::test]
    async fn either_signal_stops_the_service_and_is_told_apart() {
        // Both are caught from here on, and do not end this process.
        let (mut signals, stopped) = (Signals::listen().unwrap(), shutdown_signal());
        send("TERM");
        assert_eq!(signals.next().await, Signal::Terminate);
        stopped.await;
        let stopped = shutdown_signal();
        send("INT");
        assert_eq!(signals.next().await, Signal::Interrupt);
        stopped.await;
        let told = [Signal::Interrupt, Signal::Terminate]
            .map(|signal| (signal.to_string(), signal.exit_status()));
        assert_eq!(told, [("SIGINT".to_owned(), 130), ("SIGTERM".to_owned(), 143)]);
    }
}
