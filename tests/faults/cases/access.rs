//! Permissions and certificates.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rehop::settings::QueueType;
use rehop_testing::{Broker, Proxy, TlsListener, eventually};

use crate::evidence::all_broken;
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::service::{Config, Does};

/// A user of the shared broker with these permissions: configure, write, read.
async fn user(ground: &Ground, broker: &Broker, lab: &mut Lab, permissions: [&str; 3]) {
    let user = lab.config.namespace.clone();
    broker.management().unwrap().add_user(&user, &ground.password).await.unwrap();
    lab.config.url = ground.url_of(broker.amqp_url(), &user);
    permit(broker, lab, permissions).await;
}

/// Changes what this user may do.
async fn permit(broker: &Broker, lab: &Lab, permissions: [&str; 3]) {
    broker.management().unwrap().set_permissions(&lab.config.namespace, permissions).await.unwrap();
}

pub(crate) async fn least_permissions(ground: Ground) -> Account {
    let broker = ground.shared_broker().await;
    let mut lab = ground.lab("least").await;
    // The queues and exchanges of the namespace, which includes the work queue here.
    let own = format!("^{}\\..*$", lab.config.namespace);
    user(&ground, &broker, &mut lab, [&own, &own, &own]).await;
    let mut service = lab.service();
    eventually(SOON, "the service consumes", async || service.log().contains(": consuming queue="))
        .await
        .unwrap();
    lab.send(50, Does::Fail(1)).await;
    lab.send(10, Does::Permanent).await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// Without permission to declare or to read, the service does not start and says why. Without
/// permission to write to an exchange, it says so, and keeps the messages that it cannot send.
pub(crate) async fn too_few_permissions(ground: Ground) -> Account {
    let broker = ground.shared_broker().await;
    for (name, kind, lacking) in
        [("few-configure", 0, "wait\\.200"), ("few-read", 2, "orders"), ("few-bind", 1, "orders")]
    {
        let mut lab = ground.lab(name).await;
        let own = format!("^{}\\..*$", lab.config.namespace);
        let but = format!("^{}\\.(?!{lacking}$).*$", lab.config.namespace);
        let mut permissions = [own.as_str(); 3];
        permissions[kind] = &but;
        user(&ground, &broker, &mut lab, permissions).await;
        let mut service = lab.service();
        assert!(!service.ended(SOON).await.unwrap(), "it does not start");
        let (log, queue) = (service.log(), lacking.replace('\\', ""));
        let clear =
            log.lines().any(|line| line.contains("needs a permission") && line.contains(&queue));
        assert!(clear, "the error names what is lacking for {name}: {log}");
    }
    let mut lab = ground.lab("few-write").await;
    let own = format!("^{}\\..*$", lab.config.namespace);
    let but = format!("^{}\\.(?!wait$).*$", lab.config.namespace);
    user(&ground, &broker, &mut lab, [&own, &but, &own]).await;
    lab.declare().await;
    lab.send(10, Does::Fail(1)).await;
    let mut service = lab.service();
    // "access to exchange ..." on 3.10, "write access to exchange ..." since.
    let refused = format!("access to exchange '{}'", lab.exchange("wait"));
    eventually(SOON, "the log says what is lacking", async || service.log().contains(&refused))
        .await
        .unwrap();
    permit(&broker, &lab, [&own, &own, &own]).await;
    lab.recovers(SOON).await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// A service that has lost its permissions and its connections may not declare, check or consume
/// its queue. It tries again until it may.
pub(crate) async fn all_permissions_taken(ground: Ground) -> Account {
    let quorum = Some(QueueType::Quorum);
    let kinds = [
        ("own", None, false),
        ("own-checked", None, true),
        ("existing", quorum, false),
        ("checked", quorum, true),
    ];
    let rounds =
        kinds.map(|(name, existing, only_checks)| all_taken(&ground, name, existing, only_checks));
    let mut sum = Account::default();
    join_all(rounds).await.iter().for_each(|account| sum.add(account));
    sum
}

async fn all_taken(
    ground: &Ground,
    name: &str,
    existing: Option<QueueType>,
    only_checks: bool,
) -> Account {
    let broker = ground.shared_broker().await;
    let mut lab = ground.lab(&format!("taken-{name}")).await;
    user(ground, &broker, &mut lab, [".*"; 3]).await;
    lab.declare().await;
    (lab.work_mut().existing, lab.config.only_checks) = (existing, only_checks);
    let (mut service, proxy) = lab.service_behind().await;
    lab.recovers(SOON).await;
    permit(&broker, &lab, ["^$"; 3]).await;
    let losses = all_broken(&proxy, Proxy::cut).await;
    lab.send(10, Does::Succeed).await;
    lab.send(10, Does::Fail(1)).await;
    eventually(SOON, "the service is refused again and again, and says what to do", async || {
        let log = service.log();
        let is_refusal = |line: &&str| {
            line.contains("not consuming; retrying") && line.contains("Least permissions")
        };
        let refusals = log.lines().filter(is_refusal).count();
        if refusals >= 3 { Ok(true) } else { Err(format!("{refusals} times")) }
    })
    .await
    .unwrap();
    permit(&broker, &lab, [".*"; 3]).await;
    lab.recovers(SOON).await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::losses(losses, 10)).await.of(name)
}

/// A certificate authority, and the certificates that it has signed.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // The broker treats a certificate whose issuer has the same name as self-signed.
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let key = KeyPair::generate().unwrap();
        Self { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// A certificate for this machine, and its key.
    fn sign(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params =
            CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn listener(&self, require_client_certificate: bool) -> TlsListener {
        let (certificate, key) = self.sign();
        TlsListener {
            ca: self.pem.clone().into_bytes(),
            certificate: certificate.into_bytes(),
            key: key.into_bytes(),
            require_client_certificate,
        }
    }
}

fn file(lab: &Lab, name: &str, contents: &str) -> Option<PathBuf> {
    let path = lab.file(name);
    std::fs::write(&path, contents).unwrap();
    Some(path)
}

async fn encrypted(ground: &Ground, authority: &Authority, mutual: bool) -> (Arc<Broker>, Lab) {
    let broker = ground.own_broker(|builder| builder.tls(authority.listener(mutual))).await;
    let mut lab = ground.lab_on("tls", broker.clone());
    lab.config.url = ground.url(broker.amqps_url().unwrap());
    lab.config.ca_file = file(&lab, "ca.pem", &authority.pem);
    lab.config.startup = Duration::from_secs(10);
    lab.declare().await;
    lab.send(20, Does::Fail(1)).await;
    (broker, lab)
}

/// The service does not start, and names TLS as the reason.
async fn refused(lab: &Lab, config: &Config, expected: &str) {
    let mut service = lab.service_with(config);
    assert!(!service.ended(SOON).await.unwrap(), "it does not start");
    let log = service.log();
    assert!(log.contains(expected), "the error says {expected:?}: {log}");
}

async fn works(lab: &Lab) -> Account {
    let mut service = lab.service_with(&Config { startup: SOON, ..lab.config.clone() });
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

pub(crate) async fn tls(ground: Ground) -> Account {
    let authority = Authority::new();
    let (_broker, lab) = encrypted(&ground, &authority, false).await;
    let wrong =
        Config { ca_file: file(&lab, "wrong.pem", &Authority::new().pem), ..lab.config.clone() };
    refused(&lab, &wrong, "no TLS connection to the broker").await;
    refused(
        &lab,
        &Config { ca_file: None, ..lab.config.clone() },
        "no TLS connection to the broker",
    )
    .await;
    works(&lab).await
}

pub(crate) async fn mutual_tls(ground: Ground) -> Account {
    let authority = Authority::new();
    let (_broker, mut lab) = encrypted(&ground, &authority, true).await;
    refused(&lab, &lab.config, "service failed").await;
    let (certificate, key) = Authority::new().sign();
    let foreign = Config {
        cert_file: file(&lab, "foreign.pem", &certificate),
        key_file: file(&lab, "foreign.key", &key),
        ..lab.config.clone()
    };
    refused(&lab, &foreign, "service failed").await;
    let (certificate, key) = authority.sign();
    lab.config.cert_file = file(&lab, "client.pem", &certificate);
    lab.config.key_file = file(&lab, "client.key", &key);
    works(&lab).await
}
