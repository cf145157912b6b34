//! An HTTP server that does with each connection exactly what a test says, byte by byte.

use std::net::IpAddr;

use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::Log;

/// An answer that any client accepts.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
    head: String,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        headers.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, it)| it)
    }
}

/// The server. It ends with its runtime.
pub(crate) struct Hostile {
    pub(crate) url: String,
    asked: Log<Asked>,
}

impl Hostile {
    pub(crate) async fn start<F, R>(serve: F) -> Self
    where
        F: Fn(Connection) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self::start_at(IpAddr::from([127, 0, 0, 1]), serve).await
    }

    pub(crate) async fn start_at<F, R>(address: IpAddr, serve: F) -> Self
    where
        F: Fn(Connection) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked = Log::default();
        let log = asked.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let stream = BufReader::new(listener.accept().await.unwrap().0);
                let connection = Connection { number, stream, asked: log.clone() };
                tokio::spawn(serve(connection));
            }
        });
        Self { url, asked }
    }

    /// Answers each request with these bytes, and keeps the connection open.
    pub(crate) async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |mut connection| {
            let bytes = bytes.clone();
            async move {
                while connection.asked().await.is_some() {
                    connection.say(&bytes).await;
                }
            }
        })
        .await
    }

    /// The requests that were read.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.all()
    }

    /// Waits for this many requests.
    pub(crate) async fn is_asked(&self, count: usize) -> Vec<Asked> {
        self.asked.reaches(count).await
    }
}

/// One connection. It is closed when this is dropped.
pub(crate) struct Connection {
    pub(crate) number: usize,
    stream: BufReader<TcpStream>,
    asked: Log<Asked>,
}

impl Connection {
    /// Reads a request, or `None` if the connection ends.
    pub(crate) async fn asked(&mut self) -> Option<Asked> {
        let mut asked = self.head().await?;
        let length = asked.header("content-length").map_or(0, |text| text.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.ok()?;
        asked.body = String::from_utf8_lossy(&body).into_owned();
        self.asked.push(asked.clone());
        Some(asked)
    }

    /// Reads the head of a request, without noting it, or `None` if the connection ends.
    pub(crate) async fn head(&mut self) -> Option<Asked> {
        let mut head = String::new();
        loop {
            let start = head.len();
            if self.stream.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
            if head[start..].trim().is_empty() {
                return Some(Asked { connection: self.number, head, body: String::new() });
            }
        }
    }

    /// Reads what comes until the client closes.
    pub(crate) async fn reads_all(&mut self) {
        let _ = tokio::io::copy(&mut self.stream, &mut tokio::io::sink()).await;
    }

    /// Closes the connection as a machine does that knows nothing of it.
    pub(crate) fn reset(self) {
        self.stream.get_ref().set_zero_linger().unwrap();
    }

    /// From now on nothing that comes is acknowledged, as behind a firewall that has forgotten the
    /// connection.
    pub(crate) fn forget(&self) {
        forget(self.stream.get_ref());
    }

    /// The address at which the client reached the server.
    pub(crate) fn address(&self) -> IpAddr {
        self.stream.get_ref().local_addr().unwrap().ip()
    }

    /// Says this until the client closes the connection. Returns how many bytes went out.
    pub(crate) async fn say_endlessly(&mut self, bytes: &[u8]) -> usize {
        let mut said = 0;
        while self.stream.write_all(bytes).await.is_ok() {
            said += bytes.len();
        }
        said
    }

    /// The client may be gone already.
    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }
}

/// The kernel drops whatever comes for this connection.
pub(crate) fn forget(stream: &TcpStream) {
    const RETURN: u16 = 0x06;
    let nothing = SockFilter::new(RETURN, 0, 0, 0);
    SockRef::from(stream).attach_filter(&[nothing]).unwrap();
}
