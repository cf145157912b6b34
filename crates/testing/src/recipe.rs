//! How the fixture starts a broker.

use std::fmt;

/// How the fixture starts a broker.
#[derive(Clone, Debug, Default)]
pub(super) struct Recipe {
    pub(super) conf: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) ports: Vec<u16>,
    pub(super) tls: Option<TlsListener>,
}

impl Recipe {
    /// The lines for rabbitmq.conf.
    pub(super) fn conf(&self, tls_listener: impl fmt::Display, tls_directory: &str) -> String {
        let mut conf = self.conf.join("\n");
        if let Some(tls) = &self.tls {
            let (verify, insist) = if tls.require_client_certificate {
                ("verify_peer", "true")
            } else {
                ("verify_none", "false")
            };
            conf += &format!(
                "\nlisteners.ssl.1 = {tls_listener}\nssl_options.cacertfile = {tls_directory}/ca.pem\n\
                 ssl_options.certfile = {tls_directory}/certificate.pem\nssl_options.keyfile = {tls_directory}/key.pem\n\
                 ssl_options.verify = {verify}\nssl_options.fail_if_no_peer_cert = {insist}"
            );
        }
        conf + "\n"
    }
}

/// A TLS listener for [`BrokerBuilder::tls`](crate::BrokerBuilder::tls); all files as PEM.
#[derive(Clone)]
pub struct TlsListener {
    /// The certificate authorities that the broker trusts when it verifies a client.
    pub ca: Vec<u8>,
    /// The broker's certificate; `127.0.0.1` or `localhost` should be among its names.
    pub certificate: Vec<u8>,
    /// The certificate's private key.
    pub key: Vec<u8>,
    /// Whether a client without a certificate from these authorities is refused (mutual TLS).
    pub require_client_certificate: bool,
}

impl TlsListener {
    pub(super) fn files(&self) -> [(&'static str, &[u8]); 3] {
        [("ca.pem", &self.ca), ("certificate.pem", &self.certificate), ("key.pem", &self.key)]
    }
}

impl fmt::Debug for TlsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsListener")
            .field("require_client_certificate", &self.require_client_certificate)
            .finish_non_exhaustive()
    }
}
