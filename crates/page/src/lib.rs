//! A local web page for people: what rests and waits in the broker.
//!
//! It listens on this machine only, lets one browser in by a one-time address, and is read-only
//! unless it is told otherwise. [What it shows, and what protects it](crate::docs::page).
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut settings = rehop::Settings::load()?;
//! settings.queue_mut("orders");
//! let page = rehop_page::start(&settings, rehop_page::Options::default()).await?;
//! println!("open {}", page.address());
//! rehop::shutdown_signal().await;
//! page.shutdown().await;
//! # Ok(()) }
//! ```

mod address;
mod allowed;
mod assets;
mod cell;
mod counts;
mod depths;
pub mod docs;
mod door;
mod error;
mod format;
#[cfg(test)]
#[path = "../../../src/inputs.rs"]
mod inputs;
mod listener;
mod overview;
mod pages;
mod readings;
mod refusal;
mod runs;
mod server;
mod state;
mod statistics;
mod timeline;
mod tree;
mod visible;
mod work;

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;

pub use allowed::{Action, Allowed};
pub use error::UiError;
pub use listener::Listen;

use door::{Door, Hosts, PublicUrl};
use listener::Listener;
use overview::Plan;
use rehop::Error;
use rehop::Settings;
use rehop::internals::Link;
use state::AppState;
use work::Work;

/// How the page is served.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Where it listens. Default `127.0.0.1:7672`.
    pub listen: Listen,
    /// Whether it may listen where other machines can reach it. It has no TLS of its own. Default
    /// `false`.
    pub allow_remote: bool,
    /// The address at which a proxy serves it, such as `https://rehop.example.com`. Default: none.
    pub public_url: Option<String>,
    /// What it may do. Default: nothing but look.
    pub allowed: Allowed,
    /// Where a trace can be seen, such as `http://localhost:16686/trace/{trace_id}`. Default: none,
    /// and then messages have no link.
    pub trace_url: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: Listen::Tcp("127.0.0.1:7672".to_owned()),
            allow_remote: false,
            public_url: None,
            allowed: Allowed::default(),
            trace_url: None,
        }
    }
}

/// How long a shutdown waits until looks have given back what they hold, and replays, discards and
/// edits have stopped.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(8);

/// A page that is served. It ends when this is dropped; [`shutdown`](Self::shutdown) also waits for
/// what was begun from it.
#[derive(Debug)]
#[must_use = "the page ends when this is dropped"]
pub struct Ui {
    address: String,
    server: AbortHandle,
    work: Work,
}

impl Ui {
    /// The address to open. It lets in one browser, once: keep it out of logs.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Ends the page: it answers nothing more, looks that are under way give back each message in
    /// its place, and replays, discards and edits stop as by their stop button. This takes 8
    /// seconds at most. If the process ends then, the broker takes back what is still held, perhaps
    /// in another order, and may count that as a return of each message.
    pub async fn shutdown(self) {
        self.stop();
        if timeout(SHUTDOWN_LIMIT, self.work.ended()).await.is_err() {
            tracing::warn!(
                "not everything that was begun from the page has ended within {}; the broker takes back what is still held",
                humantime::format_duration(SHUTDOWN_LIMIT)
            );
        }
    }

    fn stop(&self) {
        self.server.abort();
        self.work.stop();
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves the page for the queues in these settings, once the broker can be reached.
///
/// # Errors
///
/// When the settings contradict themselves, the broker is unreachable for longer than
/// `broker.startup_timeout`, or the address cannot be listened on.
pub async fn start(settings: &Settings, options: Options) -> Result<Ui, UiError> {
    let resolved = settings.resolve().map_err(Error::from)?;
    let plan = Plan::of(&resolved).map_err(Error::from)?;
    let public = match &options.public_url {
        Some(url) => {
            Some(PublicUrl::parse(url).ok_or_else(|| UiError::PublicUrl { address: url.clone() })?)
        }
        None => None,
    };
    if let Some(url) = options.trace_url.as_ref().filter(|url| !is_trace_url(url)) {
        return Err(UiError::TraceUrl { address: url.clone() });
    }
    let link = Link::new(format!("{} ui", settings.namespace), settings.broker.clone());
    link.start().await?;
    let listener = Listener::open(&options.listen, options.allow_remote).await?;
    let (hosts, origin) = names(&listener, public.as_ref());
    let is_https = public.is_some_and(|public| public.is_https);
    let failed = |error| UiError::Listen { address: origin.clone(), error };
    let (door, token) = Door::new(hosts, is_https).map_err(failed)?;
    let address = format!("{origin}/enter?token={token}");
    let state = AppState::new(door, settings.clone(), plan, link, origin, options);
    let work = state.work.clone();
    let server = tokio::spawn(server::serve(listener, pages::routes(state))).abort_handle();
    Ok(Ui { address, server, work })
}

/// It becomes a link, so it must not be a script.
fn is_trace_url(url: &str) -> bool {
    (url.starts_with("https://") || url.starts_with("http://")) && url.contains("{trace_id}")
}

/// The names that the page may be called by, and how its addresses begin.
fn names(listener: &Listener, public: Option<&PublicUrl>) -> (Hosts, String) {
    let (mut hosts, mut origin) = match listener {
        Listener::Tcp(_, bound) => {
            let authority = format!("{}:{}", door::bracketed(bound.ip()), bound.port());
            (Hosts::loopback().and(&authority), format!("http://{authority}"))
        }
        // A tunnel's near end chooses the port.
        Listener::Socket { .. } => (Hosts::loopback(), "http://localhost:7672".to_owned()),
    };
    if let Some(public) = public {
        (hosts, origin) = (hosts.and(&public.authority), public.origin());
    }
    (hosts, origin)
}
