//! Where requests go: what `--to` says.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Uri;
use http::header::HeaderValue;
use percent_encoding::percent_decode_str;
use url::Url;

use super::Usage;

/// It has no secrets, except in `credentials` and in the path and query of `uri`. Those are sent
/// only. It has no `Debug`, so that no error and no panic shows them by accident.
pub(super) struct Target {
    pub(super) uri: Uri,
    /// User and password of the URL, as basic authentication.
    pub(super) credentials: Option<HeaderValue>,
    /// The URL as it may be shown: some services keep tokens in the path.
    pub(super) shown: String,
}

impl Target {
    /// # Errors
    ///
    /// When the URL is not one that accepts a POST over http or https; the error does not quote it.
    pub(super) fn parse(url: &str) -> Result<Self, Usage> {
        let usage = |problem: &str| Usage(format!("--to {problem}"));
        let url =
            Url::parse(url.trim()).map_err(|error| usage(&format!("is not a URL: {error}")))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(usage("needs a URL that starts with http:// or https://"));
        }
        let uri =
            uri(&url).ok_or_else(|| usage("has characters that no HTTP request can carry"))?;
        Ok(Self { uri, credentials: credentials(&url), shown: masked(&url) })
    }

    pub(super) fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }
}

/// What is asked for: no credentials, and no fragment.
fn uri(url: &Url) -> Option<Uri> {
    let mut url = url.clone();
    url.set_fragment(None);
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    Uri::try_from(url.as_str()).ok()
}

fn credentials(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut value =
        HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn masked(url: &Url) -> String {
    let mut shown = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
    if let Some(port) = url.port() {
        shown.push_str(&format!(":{port}"));
    }
    if url.path() != "/" || url.query().is_some() {
        shown.push_str("/***");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_only_scheme_host_and_port_are_shown() {
        let check = |url: &str, shown: &str| {
            let target = Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(target.shown, shown);
        };
        check("http://127.0.0.1:8080", "http://127.0.0.1:8080");
        check("https://hooks.slack.com/services/T0/B0/secret", "https://hooks.slack.com/***");
        check("https://user:secret@api.example.com/?token=secret#x", "https://api.example.com/***");
        check("http://token@[::1]:1/", "http://[::1]:1");
    }

    #[test]
    fn credentials_are_sent_in_a_header_and_the_rest_in_the_request() {
        let target =
            Target::parse("https://a%40b:p%3A%2Fw@host/x%20y?q=1#f").unwrap_or_else(|_| panic!());
        assert_eq!(target.uri, "https://host/x%20y?q=1");
        let credentials = target.credentials.unwrap();
        assert_eq!(credentials, format!("Basic {}", BASE64_STANDARD.encode("a@b:p:/w")));
        assert!(credentials.is_sensitive());
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
            let error = Target::parse(url).map(drop).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
