//! A client that sends exactly what a test says, also what no browser would.

use std::path::Path;

use rehop::Settings;
use rehop_page::{Action, Listen, Options, Ui};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::support::{Fixture, SOON};

/// A page of this test's queue, served by this process.
pub(crate) struct Served {
    pub(crate) ui: Ui,
    /// Host and port.
    pub(crate) authority: String,
}

/// An answer, with the names of its headers in lower case.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of the first hidden field of this name.
    pub(crate) fn field(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let at = self.body.find(&start).unwrap_or_else(|| panic!("no field {name}: {}", self.body))
            + start.len();
        self.body[at..].split('"').next().unwrap().to_owned()
    }
}

pub(crate) fn settings(fixture: &Fixture) -> Settings {
    let mut settings = fixture.settings.clone();
    settings.queue_mut(&fixture.queue);
    settings
}

impl Served {
    pub(crate) async fn start(fixture: &Fixture, allowed: &[Action]) -> Self {
        let mut options = Options::default();
        options.listen = Listen::Tcp("127.0.0.1:0".to_owned());
        options.allowed = allowed.iter().copied().collect();
        Self::with(fixture, options).await
    }

    pub(crate) async fn with(fixture: &Fixture, options: Options) -> Self {
        let ui = rehop_page::start(&settings(fixture), options).await.unwrap();
        let authority = ui.address().split('/').nth(2).unwrap().to_owned();
        Self { ui, authority }
    }

    pub(crate) fn entrance(&self) -> String {
        self.ui.address().split_once(&self.authority).unwrap().1.to_owned()
    }

    pub(crate) async fn send(&self, head: &str, body: &str) -> Response {
        send(TcpStream::connect(&self.authority).await.unwrap(), head, body).await
    }

    /// A request whose further headers are given as lines.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &str,
    ) -> Response {
        let mut lines =
            vec![format!("{method} {path} HTTP/1.1"), format!("host: {}", self.authority)];
        lines.extend(headers.iter().map(|header| (*header).to_owned()));
        if method == "POST" {
            lines.push(format!("content-length: {}", body.len()));
            lines.push("content-type: application/x-www-form-urlencoded".to_owned());
        }
        self.send(&lines.join("\r\n"), body).await
    }

    /// The cookie of a session, as a header line.
    pub(crate) async fn enter(&self) -> String {
        let answer = self.request("GET", &self.entrance(), &[], "").await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = answer.header("set-cookie").unwrap();
        format!("cookie: {}", cookie.split(';').next().unwrap())
    }

    pub(crate) async fn get(&self, path: &str, cookie: &str) -> Response {
        self.request("GET", path, &[cookie], "").await
    }

    pub(crate) async fn post(&self, path: &str, cookie: &str, fields: &[(&str, &str)]) -> Response {
        self.request("POST", path, &[cookie, "sec-fetch-site: same-origin"], &form(fields)).await
    }
}

/// What a page answers that another process serves.
pub(crate) async fn ask(authority: &str, path: &str, header: &str) -> Response {
    let head = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\n{header}");
    send(TcpStream::connect(authority).await.unwrap(), &head, "").await
}

/// What a page answers to a form that another process serves.
pub(crate) async fn submit(
    authority: &str,
    path: &str,
    header: &str,
    fields: &[(&str, &str)],
) -> Response {
    let body = form(fields);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {authority}\r\n{header}\r\nsec-fetch-site: same-origin\r\ncontent-length: {}\r\n\
         content-type: application/x-www-form-urlencoded",
        body.len()
    );
    send(TcpStream::connect(authority).await.unwrap(), &head, &body).await
}

fn form(fields: &[(&str, &str)]) -> String {
    fields
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect::<Vec<_>>()
        .join("&")
}

pub(crate) fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

pub(crate) async fn through_socket(path: &Path, head: &str) -> Response {
    send(UnixStream::connect(path).await.unwrap(), head, "").await
}

async fn send(mut stream: impl AsyncRead + AsyncWrite + Unpin, head: &str, body: &str) -> Response {
    let answer = async {
        // A server that has refused the head may not read the rest.
        let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await;
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let text = tokio::time::timeout(SOON, answer).await.expect("an answer in time");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text.as_str(), ""));
    let mut lines = head.lines();
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    Response {
        status,
        headers: headers.collect(),
        body: if is_chunked { unchunked(body) } else { body.to_owned() },
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0).min(after.len());
        if size == 0 {
            break;
        }
        body.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}
