//! Which names the page may be reached by. Pure.

use std::net::IpAddr;

use http::Uri;

/// The names by which the page may be reached. A page of somebody else whose name is made to
/// resolve to this machine (DNS rebinding) has another one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    /// In lower case; with the port, if only this one is meant.
    names: Vec<String>,
}

impl Hosts {
    /// `localhost` and the loopback addresses, with any port: a tunnel may use another one.
    pub(crate) fn loopback() -> Self {
        Self { names: ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec() }
    }

    pub(crate) fn and(mut self, authority: &str) -> Self {
        self.names.push(authority.to_ascii_lowercase());
        self
    }

    /// Whether this is one of them, with or without a port.
    pub(crate) fn allow(&self, authority: &str) -> bool {
        let authority = authority.to_ascii_lowercase();
        let name = without_port(&authority);
        self.names.iter().any(|allowed| *allowed == authority || Some(allowed.as_str()) == name)
    }
}

/// `None` if what follows the name is not a port.
fn without_port(authority: &str) -> Option<&str> {
    let end = match authority.find(']') {
        Some(bracket) => bracket + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (name, port) = authority.split_at(end);
    let is_port =
        |port: &str| port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    (port.is_empty() || is_port(port)).then_some(name)
}

/// The address at which a proxy serves the page: scheme and authority, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicUrl {
    pub(crate) is_https: bool,
    pub(crate) authority: String,
}

impl PublicUrl {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority().map(|authority| authority.as_str().to_owned())?;
        let is_bare =
            matches!(uri.path(), "" | "/") && uri.query().is_none() && !authority.contains('@');
        is_bare.then_some(Self { is_https, authority })
    }

    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", if self.is_https { "https" } else { "http" }, self.authority)
    }
}

/// How an address is written in a URL.
pub(crate) fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_machines_own_names_and_those_that_were_named_are_allowed() {
        let hosts = Hosts::loopback().and("Ops.example.com").and("10.0.0.5:7672");
        for (authority, allowed) in [
            ("localhost", true),
            ("LOCALHOST:7672", true),
            ("127.0.0.1:1", true),
            ("[::1]:7672", true),
            ("[::1]", true),
            ("ops.example.com", true),
            ("ops.example.com:443", true),
            ("10.0.0.5:7672", true),
            ("10.0.0.5:7673", false),
            ("10.0.0.5", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example:7672", false),
            ("evil.example", false),
            ("localhost:evil", false),
            ("localhost:", false),
            ("[::1]x", false),
            ("localhost@evil.example", false),
            ("", false),
        ] {
            assert_eq!(hosts.allow(authority), allowed, "{authority:?}");
        }
    }

    #[test]
    fn a_public_address_is_a_scheme_and_a_host() {
        let parsed = |text| PublicUrl::parse(text).map(|url| url.origin());
        assert_eq!(parsed("https://ops.example.com/").as_deref(), Some("https://ops.example.com"));
        assert_eq!(parsed("http://ops:8080").as_deref(), Some("http://ops:8080"));
        for wrong in [
            "ops.example.com",
            "ftp://ops",
            "https://ops/path",
            "https://u:p@ops",
            "https://ops/?a",
            "",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong:?}");
        }
    }
}
