//! The broker is upgraded in place, with messages in every tier and parked: the data stay in a
//! volume, the node keeps its name.

use std::net::TcpListener;
use std::process::{Command, Output};

use rehop_testing::{Publish, eventually};

use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::service::{Does, QueueConfig, Service};

/// A broker whose version changes. Dropping it removes the container and the volume.
struct Upgraded {
    name: String,
    port: u16,
}

impl Upgraded {
    fn new() -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let name = format!("rehop-test-upgrade-{}-{port}", std::process::id());
        docker(&["volume", "create", &name]);
        Self { name, port }
    }

    fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }

    /// Starts this version on the existing data.
    fn start(&self, version: &str) {
        let (port, volume) =
            (format!("127.0.0.1:{}:5672", self.port), format!("{}:/var/lib/rabbitmq", self.name));
        let (node, image) = (format!("RABBITMQ_NODENAME=rabbit@{}", self.name), image_of(version));
        docker(&[
            "run",
            "--detach",
            "--name",
            &self.name,
            "--hostname",
            &self.name,
            "--env",
            &node,
            "--volume",
            &volume,
            "--publish",
            &port,
            &image,
        ]);
    }

    async fn started(&self, version: &str) {
        self.start(version);
        eventually(SOON, "the broker has started", async || {
            self.log().contains("Server startup complete")
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", self.log()));
        let status = docker(&["exec", &self.name, "rabbitmqctl", "version"]);
        assert!(status.starts_with(version), "the broker is of version {version}: {status}");
    }

    fn stop(&self) {
        docker(&["stop", &self.name]);
        docker(&["rm", &self.name]);
    }

    /// What has to be done before each upgrade.
    fn enable_all_feature_flags(&self) {
        docker(&["exec", &self.name, "rabbitmqctl", "enable_feature_flag", "all"]);
    }

    fn log(&self) -> String {
        let Output { stdout, stderr, .. } =
            Command::new("docker").args(["logs", &self.name]).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
    }

    fn is_running(&self) -> bool {
        docker(&["inspect", "--format", "{{.State.Running}}", &self.name]).trim() == "true"
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        for gone in [["rm", "--force", &self.name], ["volume", "rm", &self.name]] {
            let _ = Command::new("docker").args(gone).output();
        }
    }
}

/// The official image if it is present, else the one that `tests/scripts/broker-image` builds.
fn image_of(version: &str) -> String {
    let official = format!("rabbitmq:{version}-management");
    let looked = Command::new("docker").args(["image", "inspect", &official]).output().unwrap();
    if looked.status.success() { official } else { format!("rehop-rabbitmq:{version}") }
}

fn docker(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new("docker").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned();
    assert!(
        status.success(),
        "docker {}: {said}{}",
        args.join(" "),
        String::from_utf8_lossy(&stderr)
    );
    said
}

/// Long enough to replace the broker.
const TIERS: [u64; 2] = [30_000, 33_000];

/// A service with two queues, each with its own tier.
fn lab(ground: &Ground, broker: &Upgraded, name: &str) -> Lab {
    let mut lab = ground.lab_at(name, &broker.url());
    lab.config.url = broker.url();
    let other = QueueConfig::new(lab.exchange("invoices"));
    lab.config.queues.push(other);
    for (queue, tier) in lab.config.queues.iter_mut().zip(TIERS) {
        queue.delays = vec![tier];
    }
    lab
}

/// Messages in every tier, in each parked queue, and in each work queue. The service is stopped.
async fn everywhere(lab: &Lab) {
    lab.declare().await;
    let mut service = lab.service();
    let queues = 0..lab.config.queues.len();
    for queue in queues.clone() {
        lab.send_to(queue, 50, Does::Fail(1), |message: Publish| message).await;
        lab.send_to(queue, 20, Does::Permanent, |message: Publish| message).await;
    }
    for (queue, tier) in lab.config.queues.iter().zip(TIERS) {
        lab.depth(&lab.tier(tier), 50).await;
        lab.depth(&queue.parked(), 20).await;
    }
    service.stop().await;
    for queue in queues {
        lab.send_to(queue, 30, Does::Succeed, |message: Publish| message).await;
    }
}

async fn finish(lab: &Lab, mut service: Service) -> Account {
    lab.recovers(SOON * 2).await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

pub(crate) async fn upgraded(ground: Ground) -> Account {
    let broker = Upgraded::new();
    broker.started("4.0").await;
    let lab = lab(&ground, &broker, "upgraded");
    everywhere(&lab).await;
    broker.enable_all_feature_flags();
    // 4.3 keeps its metadata only there.
    docker(&[
        "exec",
        &broker.name,
        "rabbitmqctl",
        "enable_feature_flag",
        "--experimental",
        "khepri_db",
    ]);
    broker.stop();
    broker.started("4.3").await;
    let service = lab.service();
    finish(&lab, service).await.with_note("4.0 -> 4.3")
}

/// An upgrade from 3.10 to 4.0 skips versions that Debian never had, and 4.0 refuses it. Back on
/// 3.10, everything is still there.
pub(crate) async fn refused(ground: Ground) -> Account {
    const SAYS: &str =
        "required feature flag not enabled! It must be enabled before upgrading RabbitMQ.";
    let broker = Upgraded::new();
    broker.started("3.10").await;
    let lab = lab(&ground, &broker, "not-upgraded");
    everywhere(&lab).await;
    broker.enable_all_feature_flags();
    broker.stop();
    broker.start("4.0");
    eventually(SOON, "4.0 has ended", async || !broker.is_running()).await.unwrap();
    let log = broker.log();
    let said = log
        .lines()
        .find(|line| line.contains(SAYS))
        .unwrap_or_else(|| panic!("4.0 does not say why: {log}"));
    let said = said.split("Feature flags: ").last().unwrap_or_default().to_owned();
    broker.stop();
    broker.started("3.10").await;
    let service = lab.service();
    finish(&lab, service).await.with_note(format!("4.0 on the data of 3.10 says: {said}"))
}
