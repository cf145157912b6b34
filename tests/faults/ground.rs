//! What all cases on one version share: brokers, users, and directories.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rehop_testing::{Broker, BrokerBuilder, Client, Cluster, Management, Namespace, eventually};
use tokio::sync::OnceCell;

use crate::lab::Lab;
use crate::service::{Config, QueueConfig};

/// The time limit for anything that should happen by itself.
pub(crate) const SOON: Duration = Duration::from_secs(150);

/// The services' user.
const USER: &str = "service";

/// What all cases on one version share.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) tag: Option<String>,
    pub(crate) long: bool,
    pub(crate) directory: PathBuf,
    /// The password of the services' user; it must not appear anywhere.
    pub(crate) password: Arc<str>,
    shared: Arc<OnceCell<Arc<Broker>>>,
}

impl Ground {
    pub(crate) fn new(
        tag: Option<String>,
        long: bool,
        directory: PathBuf,
        password: Arc<str>,
    ) -> Self {
        Self { tag, long, directory, password, shared: Arc::default() }
    }

    /// A number of repetitions.
    pub(crate) fn times(&self, quick: usize, long: usize) -> usize {
        if self.long { long } else { quick }
    }

    /// A shared broker without disturbances.
    pub(crate) async fn shared_broker(&self) -> Arc<Broker> {
        self.shared.get_or_init(|| self.own_broker(|builder| builder)).await.clone()
    }

    pub(crate) async fn version(&self) -> String {
        self.shared_broker().await.version().to_owned()
    }

    /// Whether the broker has this version, such as `4.3`.
    pub(crate) async fn is(&self, version: &str) -> bool {
        self.version().await.starts_with(&format!("{version}."))
    }

    /// A broker for one case, with the services' user.
    pub(crate) async fn own_broker(
        &self,
        wishes: impl FnOnce(BrokerBuilder) -> BrokerBuilder,
    ) -> Arc<Broker> {
        let mut builder = Broker::builder().own();
        if let Some(tag) = &self.tag {
            builder = builder.tag(tag);
        }
        let broker = wishes(builder).start().await.unwrap();
        self.add_user(&broker.management().unwrap()).await;
        Arc::new(broker)
    }

    pub(crate) async fn cluster(&self, nodes: usize) -> Cluster {
        let cluster = match &self.tag {
            Some(tag) => Cluster::start_tag(nodes, tag).await.unwrap(),
            None => Cluster::start(nodes).await.unwrap(),
        };
        self.add_user(&cluster.management(0).unwrap()).await;
        cluster
    }

    async fn add_user(&self, management: &Management) {
        management.add_user(USER, &self.password).await.unwrap();
        management.set_permissions(USER, [".*"; 3]).await.unwrap();
    }

    /// The URL for services, instead of the administrator's.
    pub(crate) fn url(&self, admin_url: &str) -> String {
        self.url_of(admin_url, USER)
    }

    pub(crate) fn url_of(&self, admin_url: &str, user: &str) -> String {
        admin_url.replace("guest:guest@", &format!("{user}:{}@", self.password))
    }

    /// A part of the shared broker.
    pub(crate) async fn lab(&self, name: &str) -> Lab {
        self.lab_on(name, self.shared_broker().await)
    }

    pub(crate) fn lab_on(&self, name: &str, broker: Arc<Broker>) -> Lab {
        let url = broker.amqp_url().to_owned();
        self.lab_at(name, &url).on(broker)
    }

    pub(crate) fn lab_at(&self, name: &str, admin_url: &str) -> Lab {
        let namespace = Namespace::new(name);
        let directory = self.directory.join(namespace.name());
        std::fs::create_dir_all(&directory).unwrap();
        let config = Config {
            url: self.url(admin_url),
            namespace: namespace.name().to_owned(),
            queues: vec![QueueConfig::new(namespace.queue("orders"))],
            only_checks: false,
            shipped: None,
            clock: None,
            grace: Duration::from_secs(10),
            answer: Duration::from_secs(5),
            // A busy machine misses shorter ones, and a connection that is lost by chance adds
            // handler runs.
            heartbeat: Duration::from_secs(30),
            ack_timeout: Duration::from_secs(30 * 60),
            startup: SOON,
            ca_file: None,
            cert_file: None,
            key_file: None,
            record: directory.join("record"),
        };
        Lab::new(admin_url, config, directory)
    }
}

/// A new client, as soon as the broker accepts one.
pub(crate) async fn connect(url: &str) -> Client {
    let mut connected = None;
    eventually(SOON, "the broker takes a client", async || match Client::connect(url).await {
        Ok(client) => {
            connected = Some(client);
            Ok(true)
        }
        Err(error) => Err(error.to_string()),
    })
    .await
    .unwrap();
    connected.unwrap()
}
