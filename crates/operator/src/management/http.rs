//! The HTTP client of the management API: certificates, credentials, and what may be shown of them.

use std::error::Error as _;
#[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
use std::path::Path;

use lapin::uri::AMQPUri;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

use rehop::internals::password;
use rehop::settings::BrokerSettings;

/// A client with the certificates and the time limit of the broker's settings.
///
/// # Errors
///
/// When the certificates cannot be used.
pub(super) fn client(url: &Url, broker: &BrokerSettings) -> Result<Client, String> {
    let builder = Client::builder()
        .user_agent(concat!("rehop/", env!("CARGO_PKG_VERSION")))
        .timeout(broker.timeout)
        .redirect(Policy::none())
        .no_proxy();
    choose_provider();
    let builder = with_certificates(builder, url, broker)?;
    builder.build().map_err(|error| format!("cannot set up the HTTP client: {}", describe(&error)))
}

/// The HTTP client uses the process's rustls crypto provider, and panics if there is none. A
/// provider that the program has chosen stays.
fn choose_provider() {
    #[cfg(all(feature = "tls-ring", not(feature = "tls-aws-lc")))]
    let provider = Some(rustls::crypto::ring::default_provider());
    #[cfg(feature = "tls-aws-lc")]
    let provider = Some(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
    let provider = None::<rustls::crypto::CryptoProvider>;
    if let Some(provider) =
        provider.filter(|_| rustls::crypto::CryptoProvider::get_default().is_none())
    {
        // This fails only if another thread was faster.
        let _ = provider.install_default();
    }
}

/// The certificates of `broker.tls`, as for AMQP. Redirects are not followed, so http stays http
/// and needs no certificate authorities, which small images lack.
#[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
fn with_certificates(
    builder: ClientBuilder,
    url: &Url,
    broker: &BrokerSettings,
) -> Result<ClientBuilder, String> {
    let read = |file: &Path| {
        std::fs::read(file)
            .map_err(|error| format!("cannot read the certificates in {}: {error}", file.display()))
    };
    if url.scheme() == "http" {
        return Ok(builder.tls_certs_only([]));
    }
    let mut builder = builder;
    if let Some(file) = &broker.tls.ca_file {
        let authorities = reqwest::Certificate::from_pem_bundle(&read(file)?);
        builder = builder.tls_certs_merge(authorities.map_err(|error| describe(&error))?);
    }
    if let (Some(certificate), Some(key)) = (&broker.tls.cert_file, &broker.tls.key_file) {
        let identity = reqwest::Identity::from_pem(&[read(key)?, read(certificate)?].join(&b'\n'));
        builder = builder.identity(identity.map_err(|error| describe(&error))?);
    }
    Ok(builder)
}

#[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
fn with_certificates(
    builder: ClientBuilder,
    _: &Url,
    _: &BrokerSettings,
) -> Result<ClientBuilder, String> {
    Ok(builder)
}

/// User and password of the URL, or else those of the AMQP connection.
///
/// # Errors
///
/// When the password file cannot be read.
pub(super) fn credentials(
    url: &Url,
    amqp: &AMQPUri,
    broker: &BrokerSettings,
) -> Result<(String, String), String> {
    let decode =
        |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    if !url.username().is_empty() {
        return Ok((decode(url.username()), decode(url.password().unwrap_or_default())));
    }
    let mut password_in_use = amqp.authority.userinfo.password.clone();
    if let Some(file) = &broker.password_file {
        password_in_use = password(file).map_err(|error| error.to_string())?;
    }
    Ok((amqp.authority.userinfo.username.clone(), password_in_use))
}

/// Host and port, the only parts of the URL that may be shown.
pub(super) fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The last cause says most. Errors of the client quote the URL, which has no credentials by now;
/// it is left out all the same.
pub(super) fn describe(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    match causes.last() {
        _ if error.is_timeout() => "no answer in time".to_owned(),
        Some(cause) => cause.to_string(),
        None => "the request failed".to_owned(),
    }
}
