//! Why the page cannot be served.

use std::io;
use std::path::PathBuf;

use rehop::Error;

/// `unwrap()`, and a `main` that returns an error, print it with `Debug`. What to do next is in its
/// text.
impl std::fmt::Debug for UiError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}

/// Why the page cannot be served.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum UiError {
    /// The settings, the connection or a permission.
    #[error(transparent)]
    Broker(#[from] Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}{}", advice(error))]
    Listen {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The address can be reached from other machines.
    #[error(
        "{address} can be reached from other machines, and the page has no TLS; use 127.0.0.1, a Unix socket, or --allow-remote behind a proxy with TLS"
    )]
    Remote {
        /// The address.
        address: String,
    },
    /// The Unix socket cannot be created.
    #[error("cannot create the socket {}: {error}; remove what is there, or choose another path", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The address at which a proxy serves the page is malformed.
    #[error(
        "{address:?} is not the address of a page; expected scheme and host, such as https://rehop.example.com"
    )]
    PublicUrl {
        /// The address.
        address: String,
    },
    /// The address of traces is malformed.
    #[error(
        "{address:?} is not the address of a trace; expected one such as http://localhost:16686/trace/{{trace_id}}"
    )]
    TraceUrl {
        /// The address.
        address: String,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another process has this port, so choose another one",
        io::ErrorKind::InvalidInput => "; an address has an IP and a port, such as 127.0.0.1:7672",
        _ => "",
    }
}
