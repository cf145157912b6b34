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

use super::endpoint::class;
use super::process::{Tool, variables};
use crate::support::{Fixture, Log, failures, millis};

/// An HTTPS server, and the authority that has signed its certificate.
struct Https {
    url: String,
    authority: String,
    /// The version of each request.
    asked: Log<Version>,
}

impl Https {
    async fn start(protocols: &[&str], expires: i32) -> Self {
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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
        let asked = Log::default();
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), asked.clone()));
        Self { url, authority: pem, asked }
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, asked: Log<Version>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, asked) = (tls.clone(), asked.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let answer = service_fn(move |request: Request<Incoming>| {
                asked.push(request.version());
                std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
            });
            let server = auto::Builder::new(TokioExecutor::new());
            // The client may end it.
            let _ = server.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

/// A relay to this server that trusts its authority.
async fn relay(fixture: &Fixture, server: &Https) -> Tool {
    let file = std::env::temp_dir().join(format!("{}.pem", fixture.namespace.name()));
    std::fs::write(&file, &server.authority).unwrap();
    let mut environment = variables(&fixture.settings);
    environment.push(("SSL_CERT_FILE".to_owned(), file.display().to_string()));
    let relay =
        Tool::start(&["relay", "--queue", &fixture.queue, "--to", &server.url], environment);
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
        let relay = relay(&fixture, &server).await;
        let messages = 20;
        fixture.client.publish_many((0..messages).map(|_| fixture.to_queue())).await.unwrap();
        assert_eq!(server.asked.reaches(messages).await, vec![version; messages]);
        let stopped = relay.stop().await;
        assert!(stopped.out.contains(&format!("handled {messages},")), "{}", stopped.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_has_expired_fails_the_connection_and_the_error_says_so() {
    let mut fixture = Fixture::new("expired").await;
    fixture.settings.retry.delays = millis([]);
    let server = Https::start(&[], 2001).await;
    let relay = relay(&fixture, &server).await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(class(&parked), "http_connect");
    let errors = failures(&parked);
    let error = errors[0]["message"].as_str().unwrap();
    assert!(error.contains("certificate") && error.to_lowercase().contains("expired"), "{error}");
    relay.stop().await;
}
