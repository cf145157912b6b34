//! Opens one connection: to one address, with the password and the certificates as they are now.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_rs::Tokio;
use async_rs::traits::AsyncToSocketAddrs;
use lapin::tcp::{AsyncTcpStream, OwnedIdentity, OwnedTLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{ConnectionProperties, ErrorKind};
use socket2::{SockRef, Socket};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::broker::client::Connection;
use crate::broker::end_runtime;
use crate::broker::lapin_client::LapinConnection;
use crate::broker::transport::{self, ClosedChannels, Transport};
use crate::error::{Error, Limit, Problem, in_slow_handshake};
use crate::lock::lock;
use crate::settings::BrokerSettings;
use crate::settings::address::shown;

/// Opens a connection to this address, within this time.
pub(super) async fn open(
    broker: &BrokerSettings,
    mut uri: AMQPUri,
    name: &str,
    limit: Duration,
) -> Result<Arc<dyn Connection>, Error> {
    let address = shown(&uri);
    if let Some(file) = &broker.password_file {
        uri.authority.userinfo.password = password(file)?;
    }
    let (user, encrypted) =
        (uri.authority.userinfo.username.clone(), uri.scheme == AMQPScheme::AMQPS);
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let tls = tls(broker).map_err(|problem| Error::Tls { broker: address.clone(), problem })?;
    let runtime = transport::runtime();
    // lapin would connect by itself, but it leaves two tasks behind when that fails (4.12).
    let (answered, ended_at) = (OnceLock::new(), OnceLock::new());
    let opening = async {
        end_runtime::start()?;
        let ends_at = Instant::now() + limit;
        let host = uri.authority.host.clone();
        let addresses =
            runtime.to_socket_addrs((host.clone(), uri.authority.port)).to_socket_addrs().await?;
        let connect = async |address| AsyncTcpStream::connect(&Tokio::current(), address).await;
        let stream = first_that_answers(addresses.collect(), ends_at, connect).await?;
        let _ = answered.set(Instant::now());
        let socket = match &stream {
            AsyncTcpStream::Plain(plain) => Some(SockRef::from(plain.get_ref()).try_clone()?),
            _ => None,
        };
        let hang_up = HangUp(socket);
        let stream = if encrypted {
            // This loads the system's certificates from files, which can take long and would block
            // the runtime.
            let handle = Handle::current();
            let handshake =
                spawn_blocking(move || handle.block_on(stream.into_tls(&host, tls.as_ref())));
            handshake.await.map_err(io::Error::from)??
        } else {
            stream
        };
        let closed = ClosedChannels::default();
        let (open, ended) = oneshot::channel();
        let transport = Transport::new(stream, closed.clone(), open);
        let stream = Mutex::new(Some(AsyncTcpStream::Plain(transport)));
        let hand_over = async move |_, _| {
            let stream = lock(&stream).take();
            stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
        };
        let connecting = lapin::Connection::connector(uri, runtime, hand_over, properties);
        let connection = told(connecting, ended, &ended_at).await?;
        hang_up.disarm();
        Ok::<_, lapin::Error>(
            Arc::new(LapinConnection { connection, closed }) as Arc<dyn Connection>
        )
    };
    let Ok(result) = timeout(limit, opening).await else {
        return Err(Error::Timeout { what: format!("connecting to {address}"), limit });
    };
    let now = ended_at.get().copied().unwrap_or_else(Instant::now);
    let took = answered.get().map(|at| now.saturating_duration_since(*at));
    result.map_err(|error| refusal(&error, address, user, encrypted, took))
}

/// How long lapin may take to say why the stream has ended.
const TELLS_WITHIN: Duration = Duration::from_secs(1);

/// What lapin says of its handshake. If the stream ends early in it, lapin may say nothing (4.12;
/// seen with 3.10 and 4.0), so that the whole limit would pass.
async fn told<T>(
    connecting: impl Future<Output = lapin::Result<T>>,
    ended: oneshot::Receiver<()>,
    ended_at: &OnceLock<Instant>,
) -> lapin::Result<T> {
    let mut connecting = pin!(connecting);
    tokio::select! {
        biased;
        told = &mut connecting => return told,
        _ = ended => {}
    }
    let _ = ended_at.set(Instant::now());
    let told = timeout(TELLS_WITHIN, connecting).await;
    told.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()))
}

/// What it means that no connection was opened, if it ended so long after the network had one.
fn refusal(
    error: &lapin::Error,
    broker: String,
    user: String,
    encrypted: bool,
    took: Option<Duration>,
) -> Error {
    let problem = Problem::of_lapin(error);
    let what = || format!("connecting to {broker}");
    match error.kind() {
        ErrorKind::ProtocolError(answer) if [403, 530].contains(&answer.get_id()) => {
            let text = answer.get_message().as_str();
            if let Some(limit) = Limit::of_answer(answer.get_id(), text) {
                Error::Limit { what: what(), limit, problem }
            } else if text.starts_with("NOT_ALLOWED - negotiated ") {
                // The URL asks for a frame_max or a channel_max that the broker does not allow.
                Error::Refused { what: what(), problem }
            } else if text.ends_with("connection limit cannot be queried, timeout") {
                Error::Unavailable { what: what(), problem }
            } else {
                Error::Login { broker, user, problem }
            }
        }
        ErrorKind::IOError(cause) => match Limit::of_io(cause) {
            Some(limit) => Error::Limit { what: what(), limit, problem },
            None if encrypted && is_tls(cause) => Error::Tls { broker, problem },
            None => match took.filter(|took| is_too_slow(cause, *took)) {
                Some(took) => Error::Connect { broker, problem: in_slow_handshake(error, took) },
                None => Error::Connect { broker, problem },
            },
        },
        _ => Error::Connect { broker, problem },
    }
}

/// RabbitMQ ends a handshake that takes longer than its `handshake_timeout` without a word (3.10,
/// 4.0 and 4.3). What ends sooner than this does so for another reason: it is set to seconds.
const SLOW_HANDSHAKE: Duration = Duration::from_millis(500);

/// Whether the broker may have ended a handshake that took so long.
fn is_too_slow(cause: &io::Error, took: Duration) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let is_ended =
        matches!(cause.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof);
    is_ended && took >= SLOW_HANDSHAKE
}

/// Tries the addresses of a host one after the other. Each but the last gets an equal share of the
/// time that is left, so that one from which nothing comes back does not use up the time of the
/// others.
async fn first_that_answers<T>(
    addresses: Vec<SocketAddr>,
    ends_at: Instant,
    connect: impl AsyncFn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
    for address in addresses {
        let share = ends_at.saturating_duration_since(Instant::now()) / left;
        left -= 1;
        let connected = if left == 0 {
            Ok(connect(address).await)
        } else {
            timeout(share, connect(address)).await
        };
        match connected {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => {
                last = io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer"))
            }
        }
    }
    Err(last)
}

/// A second handle to the socket of a connection that is being opened. Dropped before the
/// connection is open, for instance by a time limit, it shuts the socket down: otherwise a thread
/// of lapin (4.12) would wait for as long as the peer says nothing.
struct HangUp(Option<Socket>);

impl HangUp {
    /// The connection is open, and keeps its socket.
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for HangUp {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// The password in a file, without the line end that most editors and tools add.
pub fn password(file: &Path) -> Result<String, Error> {
    let unusable = |problem: Problem| Error::PasswordFile { path: file.to_owned(), problem };
    let text = std::fs::read_to_string(file).map_err(|error| {
        let (limit, problem) = (Limit::of_io(&error), Problem::new(error.to_string(), error));
        match limit {
            Some(limit) => Error::Limit { what: "reading a file".to_owned(), limit, problem },
            None => unusable(problem),
        }
    })?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    match password.strip_suffix('\r').unwrap_or(password) {
        "" => Err(unusable("it is empty".to_owned().into())),
        password => Ok(password.to_owned()),
    }
}

/// rustls reports a failed handshake as invalid data.
fn is_tls(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, Other};
    matches!(error.kind(), InvalidData | InvalidInput | Other)
}

fn tls(broker: &BrokerSettings) -> Result<OwnedTLSConfig, Problem> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|error| {
            Problem::new(format!("cannot read {}: {error}", path.display()), error)
        })
    };
    let text = |path| {
        String::from_utf8(read(path)?).map_err(|error| {
            Problem::new(format!("{} is not a PEM file", path.display()), error.utf8_error())
        })
    };
    let identity = match (&broker.tls.cert_file, &broker.tls.key_file) {
        (Some(certificate), Some(key)) => {
            Some(OwnedIdentity::PKCS8 { pem: read(certificate)?, key: read(key)? })
        }
        _ => None,
    };
    Ok(OwnedTLSConfig { identity, cert_chain: broker.tls.ca_file.as_ref().map(text).transpose()? })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::{Instant, timeout};

    use super::{first_that_answers, open, password, refusal};
    use crate::error::Error;
    use crate::settings::BrokerSettings;

    #[tokio::test]
    async fn attempts_to_connect_that_are_refused_leave_no_tasks_behind() {
        let refusing = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        for _ in 0..20 {
            let (broker, url) = (BrokerSettings::default(), format!("amqp://{refusing}"));
            let opened = open(&broker, url.parse().unwrap(), "test", Duration::from_secs(10)).await;
            assert!(matches!(opened, Err(Error::Connect { .. })), "{:?}", opened.err());
        }
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    }

    #[tokio::test]
    async fn a_connection_to_a_peer_that_says_nothing_is_closed_at_its_time_limit() {
        let has_tls = cfg!(any(feature = "tls-ring", feature = "tls-aws-lc"));
        for scheme in if has_tls { vec!["amqp", "amqps"] } else { vec!["amqp"] } {
            let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("{scheme}://{}", silent.local_addr().unwrap());
            let (broker, limit) = (BrokerSettings::default(), Duration::from_secs(2));
            let opening = open(&broker, url.parse().unwrap(), "test", limit);
            let accepting = timeout(Duration::from_secs(10), silent.accept());
            let (opened, accepted) = tokio::join!(opening, accepting);
            assert!(matches!(opened, Err(Error::Timeout { .. })), "{:?}", opened.err());
            let (mut accepted, _) = accepted.expect("it connects").unwrap();
            let mut said = Vec::new();
            let end = timeout(Duration::from_secs(10), accepted.read_to_end(&mut said)).await;
            assert!(end.is_ok(), "{scheme}: the connection is still open");
        }
    }

    #[tokio::test]
    async fn a_connection_that_the_peer_ends_during_the_handshake_does_not_wait_for_the_limit() {
        let peer = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("amqp://{}", peer.local_addr().unwrap());
        let (broker, limit) = (BrokerSettings::default(), Duration::from_secs(600));
        let opening = open(&broker, url.parse().unwrap(), "test", limit);
        let ending = async {
            let (mut accepted, _) = peer.accept().await.unwrap();
            // What lapin begins with.
            let mut header = [0; 8];
            accepted.read_exact(&mut header).await.unwrap();
        };
        let both = async { tokio::join!(opening, ending) };
        let (opened, ()) = timeout(Duration::from_secs(60), both).await.expect("it ends");
        assert!(matches!(opened, Err(Error::Connect { .. })), "{:?}", opened.err());
    }

    #[test]
    fn a_handshake_that_ends_late_names_the_brokers_limit_and_one_that_ends_at_once_does_not() {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, UnexpectedEof};
        let said = |kind: io::ErrorKind, millis: Option<u64>| {
            let error = lapin::Error::from(io::Error::from(kind));
            let took = millis.map(Duration::from_millis);
            refusal(&error, "host:5672".to_owned(), "user".to_owned(), false, took).to_string()
        };
        for kind in [ConnectionAborted, ConnectionReset, UnexpectedEof] {
            let late = said(kind, Some(1_600));
            for part in ["cannot reach the broker at host:5672", "1.6s", "raise handshake_timeout"]
            {
                assert!(late.contains(part), "{part}: {late}");
            }
            assert!(!said(kind, Some(40)).contains("handshake"), "{kind}");
        }
        assert!(!said(ConnectionRefused, None).contains("handshake"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_from_which_nothing_comes_back_leaves_time_for_the_others() {
        let addresses =
            |last: &[u16]| last.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect();
        let connect = async |address: SocketAddr| match address.port() {
            1 => Ok("connected"),
            2 => Err(io::ErrorKind::ConnectionRefused.into()),
            _ => std::future::pending().await,
        };
        let limit = Duration::from_secs(9);
        let tried = async |ports| {
            let began = Instant::now();
            let result =
                timeout(limit, first_that_answers(addresses(ports), began + limit, connect)).await;
            (
                result.map(|result| result.map_err(|error| error.kind())).ok(),
                began.elapsed().as_secs(),
            )
        };
        assert_eq!(tried(&[3, 1]).await, (Some(Ok("connected")), 4));
        assert_eq!(tried(&[3, 3, 1]).await, (Some(Ok("connected")), 6));
        assert_eq!(
            tried(&[2, 3, 1]).await,
            (Some(Ok("connected")), 4),
            "a refusal takes none of the time"
        );
        assert_eq!(tried(&[3, 2]).await, (Some(Err(io::ErrorKind::ConnectionRefused)), 4));
        assert_eq!(tried(&[2, 3]).await, (None, 9), "the last has all the time that is left");
        assert_eq!(tried(&[]).await, (Some(Err(io::ErrorKind::AddrNotAvailable)), 0));
    }

    #[test]
    fn a_password_file_is_read_without_its_line_end_and_must_not_be_empty() {
        let file = std::env::temp_dir().join(format!("rehop-password-{}", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            password(&file).map_err(|error| error.to_string())
        };
        for text in ["hunter2", "hunter2\n", "hunter2\r\n"] {
            assert_eq!(read(text).unwrap(), "hunter2");
        }
        assert_eq!(read(" a b \n\n").unwrap(), " a b \n");
        for text in ["", "\n"] {
            let error = read(text).unwrap_err();
            assert!(
                error.contains("it is empty") && error.contains("broker.password_file"),
                "{error}"
            );
        }
        std::fs::remove_file(&file).unwrap();
        let error = password(&file).unwrap_err().to_string();
        assert!(
            error.contains(file.to_str().unwrap()) && error.contains("No such file"),
            "{error}"
        );
    }
}
