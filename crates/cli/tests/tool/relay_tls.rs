//! Endpoints behind TLS.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::endpoint::{class, through_nowhere};
use super::process::{Tool, variables};
use super::relay_answers::is_on_the_page;
use crate::support::{Fixture, Log, failures, millis};

/// An HTTPS server, and the authority that has signed its certificate.
pub(crate) struct Https {
    pub(crate) url: String,
    pub(crate) authority: String,
    /// The version of each request.
    pub(crate) asked: Log<Version>,
}

impl Https {
    async fn start(protocols: &[&str], expires: i32) -> Self {
        let server = auto::Builder::new(TokioExecutor::new());
        Self::start_as(server, protocols, expires).await
    }

    pub(crate) async fn start_as(
        server: auto::Builder<TokioExecutor>,
        protocols: &[&str],
        expires: i32,
    ) -> Self {
        let (tls, authority) = tls(protocols, expires);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
        let asked = Log::default();
        tokio::spawn(serve(listener, tls, server, asked.clone()));
        Self { url, authority, asked }
    }
}

/// A server's side of TLS for `localhost`, and the authority that has signed its certificate.
pub(crate) fn tls(protocols: &[&str], expires: i32) -> (TlsAcceptor, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "an authority");
    let key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let mut server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (server.not_before, server.not_after) =
        (date_time_ymd(2000, 1, 1), date_time_ymd(expires, 1, 1));
    let key = KeyPair::generate().unwrap();
    let certificate = server.signed_by(&key, &issuer).unwrap().pem();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), pem)
}

async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    server: auto::Builder<TokioExecutor>,
    asked: Log<Version>,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, server, asked) = (tls.clone(), server.clone(), asked.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let answer = service_fn(move |request: Request<Incoming>| {
                asked.push(request.version());
                std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
            });
            // The client may end it.
            let _ = server.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

/// A relay to this URL that trusts this authority, and is told of a proxy that it does not use.
pub(crate) async fn relay(fixture: &Fixture, url: &str, authority: &str, more: &[&str]) -> Tool {
    let file = std::env::temp_dir().join(format!("{}.pem", fixture.namespace.name()));
    std::fs::write(&file, authority).unwrap();
    let mut environment = variables(&fixture.settings);
    environment.push(("SSL_CERT_FILE".to_owned(), file.display().to_string()));
    environment.extend(through_nowhere());
    let arguments = ["relay", "--queue", &fixture.queue, "--to", url];
    let relay = Tool::start(&[&arguments, more].concat(), environment);
    relay.consumes().await;
    std::fs::remove_file(&file).unwrap();
    relay
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_posted_over_tls_with_http_2_if_the_endpoint_speaks_it() {
    for (protocols, version) in
        [(&["h2", "http/1.1"][..], Version::HTTP_2), (&[], Version::HTTP_11)]
    {
        let fixture = Fixture::new("https").await;
        let server = Https::start(protocols, 2100).await;
        let relay = relay(&fixture, &server.url, &server.authority, &[]).await;
        let messages = 20;
        fixture.client.publish_many((0..messages).map(|_| fixture.to_queue())).await.unwrap();
        assert_eq!(server.asked.reaches(messages).await, vec![version; messages]);
        let stopped = relay.stop().await;
        assert!(stopped.out.contains(&format!("handled {messages},")), "{}", stopped.out);
    }
}

/// The error of a message whose endpoint's certificate is not trusted.
async fn error_of_a_certificate(expires: i32, authority: Option<String>) -> String {
    let mut fixture = Fixture::new("certificate").await;
    fixture.settings.retry.delays = millis([]);
    let server = Https::start(&[], expires).await;
    let authority = authority.unwrap_or_else(|| server.authority.clone());
    let relay = relay(&fixture, &server.url, &authority, &[]).await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(class(&parked), "http_connect");
    relay.stop().await;
    let errors = failures(&parked);
    errors[0]["message"].as_str().unwrap().to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_has_expired_fails_the_connection_and_the_error_says_so() {
    let error = error_of_a_certificate(2001, None).await;
    assert!(error.contains("certificate") && error.contains("expired"), "{error}");
    is_on_the_page("the certificate of the endpoint has expired", "tried again", "http_connect");
}

/// Its name is the same as that of the authority that has signed the certificate.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_an_unknown_authority_fails_the_connection_and_the_error_says_so() {
    let (_, another) = tls(&[], 2100);
    let error = error_of_a_certificate(2100, Some(another)).await;
    assert!(error.contains("certificate") && !error.contains("expired"), "{error}");
    let what = "no trusted authority has signed the certificate of the endpoint";
    is_on_the_page(what, "tried again", "http_connect");
}
