//! The endpoint: one request per message.

use std::time::{Duration, SystemTime};

use anyhow::Context;
use bytes::Bytes;
use rehop::{Failure, Handler, Message};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};

use super::answer::{Treatments, retry_after};
use super::{Usage, request};

pub(super) struct Endpoint {
    client: Client,
    url: Url,
    queue: String,
    treatments: Treatments,
}

impl Endpoint {
    /// # Errors
    ///
    /// When the URL is not one that accepts a POST over http or https; the error does not quote it.
    pub(super) fn new(
        url: &str,
        queue: &str,
        timeout: Duration,
        treatments: Treatments,
    ) -> anyhow::Result<Self> {
        let usage = |problem: &str| Usage(format!("--to {problem}"));
        let url =
            Url::parse(url.trim()).map_err(|error| usage(&format!("is not a URL: {error}")))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(usage("needs a URL that starts with http:// or https://").into());
        }
        if cfg!(not(any(feature = "tls-ring", feature = "tls-aws-lc"))) {
            anyhow::bail!(
                "relay was built without TLS, and its HTTP client needs it: build with feature tls-ring"
            );
        }
        let client = Client::builder()
            .user_agent(concat!("rehop/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout)
            .redirect(Policy::none())
            .no_proxy();
        // Redirects are not followed, so http stays http and needs no certificate authorities,
        // which small images lack.
        let client = if url.scheme() == "http" { client.tls_certs_only([]) } else { client };
        let client = client.build().context(
            "cannot set up the HTTP client; https needs certificate authorities: install the package ca-certificates, or \
             name a file of them in SSL_CERT_FILE",
        )?;
        Ok(Self { client, url, queue: queue.to_owned(), treatments })
    }

    /// The URL as it may be shown.
    pub(super) fn masked(&self) -> String {
        masked(&self.url)
    }
}

impl Handler<Bytes> for Endpoint {
    async fn handle(&self, message: Message<Bytes>) -> Result<(), Failure> {
        let headers = request::headers(&message, &self.queue);
        let request = self.client.post(self.url.clone()).headers(headers).body(message.body);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return self.treatments.missing(error),
        };
        let retry_after = retry_after(response.headers(), SystemTime::now());
        let result = self.treatments.judge(response.status(), retry_after);
        drain(response).await;
        result
    }
}

/// Reads and discards the body, so that the connection can be reused. It gives up on a large or
/// slow body, because only the status matters.
async fn drain(mut response: Response) {
    const LIMIT: usize = 64 * 1024;
    const TIME_LIMIT: Duration = Duration::from_millis(500);
    let read = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            if read > LIMIT {
                return;
            }
        }
    };
    // What remains is dropped with the connection.
    let _ = tokio::time::timeout(TIME_LIMIT, read).await;
}

fn masked(url: &Url) -> String {
    let mut shown = format!("{}://", url.scheme());
    if !url.username().is_empty() || url.password().is_some() {
        shown.push_str("***@");
    }
    shown.push_str(url.host_str().unwrap_or_default());
    if let Some(port) = url.port() {
        shown.push_str(&format!(":{port}"));
    }
    shown.push_str(url.path());
    if url.query().is_some() {
        shown.push_str("?***");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_credentials_and_no_query() {
        let check = |url: &str, shown: &str| assert_eq!(masked(&Url::parse(url).unwrap()), shown);
        check("http://127.0.0.1:8080/orders", "http://127.0.0.1:8080/orders");
        check(
            "https://user:secret@api.example.com/o?token=secret#x",
            "https://***@api.example.com/o?***",
        );
        check("http://token@[::1]:1/", "http://***@[::1]:1/");
    }

    #[test]
    fn a_wrong_url_is_not_quoted() {
        for url in [
            "secret",
            "ftp://user:secret@host/",
            "http://",
            "http://user:secret@/",
            "http://user:secret@host:99999/",
        ] {
            let error = Endpoint::new(url, "q", Duration::from_secs(1), Treatments::default())
                .map(drop)
                .unwrap_err();
            assert!(error.is::<Usage>() && !error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
