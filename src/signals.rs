//! The signals that stop a service: SIGINT, SIGTERM, SIGHUP and SIGQUIT.

use std::fmt;
use std::future::Future;
use std::io;
#[cfg(unix)]
use std::task::Poll;

/// Completes at the first SIGINT, SIGTERM, SIGHUP or SIGQUIT that comes after this call; on other
/// systems than Unix, at Ctrl-C. Made for
/// [`Service::with_graceful_shutdown`](crate::Service::with_graceful_shutdown): terminals send
/// SIGINT, and SIGHUP when they close; Kubernetes, Docker and systemd send SIGTERM, or what an
/// image names as its stop signal, for some SIGQUIT. A process that a signal kills leaves its
/// messages to the broker, which counts this against each of them.
///
/// SIGHUP and SIGQUIT stay ignored if they were when the process started, as SIGHUP is under
/// `nohup`. On systems that do not tell (all but Linux and Android), they keep their default.
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
    /// SIGHUP: a terminal was closed.
    Hangup,
    /// SIGQUIT, or Ctrl-\.
    Quit,
}

impl Signal {
    /// The exit status that a shell reports for a process that this signal has killed: 128 and its
    /// number.
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Hangup => 129,
            Self::Interrupt => 130,
            Self::Quit => 131,
            Self::Terminate => 143,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
            Self::Quit => "SIGQUIT",
        })
    }
}

/// The signals that ask the process to end, one after the other. Without a second signal in mind,
/// use [`shutdown_signal`].
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    listeners: Vec<(Signal, tokio::signal::unix::Signal)>,
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
        let kinds = [
            (Signal::Interrupt, SignalKind::interrupt()),
            (Signal::Terminate, SignalKind::terminate()),
            (Signal::Hangup, SignalKind::hangup()),
            (Signal::Quit, SignalKind::quit()),
        ];
        let ignored = ignored();
        let listens = |(told, kind): &(Signal, SignalKind)| match told {
            Signal::Interrupt | Signal::Terminate => true,
            Signal::Hangup | Signal::Quit => {
                ignored.is_some_and(|mask| mask & (1 << (kind.as_raw_value() - 1)) == 0)
            }
        };
        let listeners = kinds.into_iter().filter(listens);
        let listeners = listeners.map(|(told, kind)| signal(kind).map(|listener| (told, listener)));
        Ok(Self { listeners: listeners.collect::<io::Result<_>>()? })
    }

    /// The next signal.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (told, listener) in &mut self.listeners {
                if listener.poll_recv(context).is_ready() {
                    return Poll::Ready(*told);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that this process ignores, as a mask; `None` where the system does not tell. Asking
/// for it in the way of POSIX needs unsafe code.
#[cfg(unix)]
fn ignored() -> Option<u64> {
    ignored_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

#[cfg(unix)]
fn ignored_in(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
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
    async fn each_signal_stops_the_service_and_is_told_apart() {
        // All are caught from here on, and do not end this process.
        let mut signals = Signals::listen().unwrap();
        let all = [Signal::Terminate, Signal::Interrupt, Signal::Hangup, Signal::Quit].into_iter();
        // What started this process may have had it ignore some of them.
        let heard = all.filter(|told| signals.listeners.iter().any(|(heard, _)| heard == told));
        for told in heard.collect::<Vec<_>>() {
            let stopped = shutdown_signal();
            send(told.to_string().strip_prefix("SIG").unwrap());
            assert_eq!(signals.next().await, told);
            stopped.await;
        }
        let told = [Signal::Hangup, Signal::Interrupt, Signal::Quit, Signal::Terminate]
            .map(|signal| (signal.to_string(), signal.exit_status()));
        let expected = [("SIGHUP", 129), ("SIGINT", 130), ("SIGQUIT", 131), ("SIGTERM", 143)];
        assert_eq!(told, expected.map(|(name, status)| (name.to_owned(), status)));
    }

    #[test]
    fn what_is_ignored_is_read_from_the_status_of_the_process() {
        let status = "Name:\tx\nSigBlk:\t0000000000000003\nSigIgn:\t0000000000000001\nSigCgt:\t2\n";
        assert_eq!(ignored_in(status), Some(1));
        assert_eq!((ignored_in(""), ignored_in("SigIgn:\tx")), (None, None));
    }
}
