use std::{collections::HashMap, env, fmt, io::Write as _, time::Duration};

use tokio::sync::OnceCell;

use super::{
    client::{Client, ClientError},
    container::{self, AMQP, AMQPS, Container, DEFAULT_TAG, MANAGEMENT},
    error::BrokerError,
    node::{self, Node, Server},
    probe,
    url::{address_of, without_password},
};

const READY: Duration = Duration::from_secs(90);

/// A real RabbitMQ for tests; see [the module](super) for which one. One of our own ends when this is dropped.
#[derive(Debug)]
pub struct Broker {
    kind: Kind,
    amqp_url: String,
    amqps_url: Option<String>,
    management_url: Option<String>,
    version: String,
}

#[derive(Debug)]
enum Kind {
    External,
    Container(Container),
    Node(Box<Node>),
}

impl Broker {
    /// A broker as [the module](super) describes.
    ///
    /// # Errors
    /// When no way to a broker is open on this machine; the error says what to do.
    pub async fn start() -> Result<Self, BrokerError> {
        Self::builder().start().await
    }

    /// A broker with wishes.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// The one broker that all tests of a process share, started by whoever asks first. It ends with the process.
    ///
    /// Tests keep apart by a [`Namespace`](super::Namespace) each. A test that restarts or reconfigures a broker starts its own.
    ///
    /// # Panics
    /// When no broker can be had: no test could go on.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Broker> = OnceCell::const_new();
        match SHARED.get_or_try_init(Self::start).await {
            Ok(broker) => broker,
            Err(error) => panic!("{error}"),
        }
    }

    /// Where clients connect, with user and password.
    #[must_use]
    pub fn amqp_url(&self) -> &str {
        &self.amqp_url
    }

    /// Where clients connect by TLS: after [`BrokerBuilder::tls`] only.
    #[must_use]
    pub fn amqps_url(&self) -> Option<&str> {
        self.amqps_url.as_deref()
    }

    /// The base of the management API, with user and password, for example `http://guest:guest@127.0.0.1:15672`.
    #[must_use]
    pub fn management_url(&self) -> Option<&str> {
        self.management_url.as_deref()
    }

    /// The broker's version, for example `4.3.6`; `unknown` for an external broker behind TLS.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The port of 127.0.0.1 that leads to this port of the broker, for ports of [`BrokerBuilder::publish`].
    ///
    /// A private node is not behind a mapping: what its configuration says is where it listens.
    #[must_use]
    pub fn port(&self, inside: u16) -> Option<u16> {
        match &self.kind {
            Kind::Container(container) => container.ports.get(&inside).copied(),
            Kind::Node(_) => Some(inside),
            Kind::External => None,
        }
    }

    /// Whether this broker can be restarted, stopped, paused and asked by `rabbitmqctl`.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        !matches!(self.kind, Kind::External)
    }

    /// A small client with a connection of its own.
    ///
    /// # Errors
    /// When the broker does not take the connection.
    pub async fn client(&self) -> Result<Client, ClientError> {
        Client::connect(&self.amqp_url).await
    }

    /// Stops the broker in good order, starts it again and waits until it serves. Addresses stay.
    ///
    /// # Errors
    /// When the broker is not ours, or does not come back.
    pub async fn restart(&self) -> Result<(), BrokerError> {
        match &self.kind {
            Kind::External => Err(BrokerError::NotOurs { what: "restart" }),
            Kind::Container(container) => {
                container.control(&["restart"]).await?;
                self.ready().await
            }
            Kind::Node(node) => {
                node.shut_down().await?;
                node.launch().await
            }
        }
    }

    /// Stops the broker in good order. [`start_again`](Self::start_again) brings it back.
    ///
    /// # Errors
    /// When the broker is not ours, or does not stop.
    pub async fn stop(&self) -> Result<(), BrokerError> {
        match &self.kind {
            Kind::External => Err(BrokerError::NotOurs { what: "stop" }),
            Kind::Container(container) => container.control(&["stop"]).await,
            Kind::Node(node) => node.shut_down().await,
        }
    }

    /// Kills the broker at once, as a power cut does. [`start_again`](Self::start_again) brings it back.
    ///
    /// # Errors
    /// When the broker is not ours, or is not running.
    pub async fn kill(&self) -> Result<(), BrokerError> {
        match &self.kind {
            Kind::External => Err(BrokerError::NotOurs { what: "kill" }),
            Kind::Container(container) => container.control(&["kill"]).await,
            Kind::Node(node) => node.kill().await,
        }
    }

    /// Starts a broker that was stopped or killed and waits until it serves. Addresses and durable queues are as before.
    ///
    /// # Errors
    /// When the broker is not ours, or does not come up.
    pub async fn start_again(&self) -> Result<(), BrokerError> {
        match &self.kind {
            Kind::External => Err(BrokerError::NotOurs { what: "start" }),
            Kind::Container(container) => {
                container.control(&["start"]).await?;
                self.ready().await
            }
            Kind::Node(node) => node.launch().await,
        }
    }

    /// Freezes the broker (SIGSTOP): connections stay open and nothing is answered.
    ///
    /// # Errors
    /// When the broker is not ours, or is not running.
    pub async fn pause(&self) -> Result<(), BrokerError> {
        match &self.kind {
            Kind::External => Err(BrokerError::NotOurs { what: "pause" }),
            Kind::Container(container) => container.control(&["pause"]).await,
            Kind::Node(node) => node.signal("STOP").await,
        }
    }

    /// Lets a frozen broker go on.
    ///
    /// # Errors
    /// When the broker is not ours, or is not paused.
    pub async fn resume(&self) -> Result<(), BrokerError> {
        match &self.kind {
            Kind::External => Err(BrokerError::NotOurs { what: "resume" }),
            Kind::Container(container) => container.control(&["unpause"]).await,
            Kind::Node(node) => node.signal("CONT").await,
        }
    }

    /// Runs `rabbitmqctl --quiet` with these arguments and returns what it printed.
    ///
    /// # Errors
    /// When the broker is not ours, or the command fails.
    pub async fn rabbitmqctl(&self, args: &[&str]) -> Result<String, BrokerError> {
        match &self.kind {
            Kind::External => Err(BrokerError::NotOurs { what: "run rabbitmqctl on" }),
            Kind::Container(container) => container.rabbitmqctl(args).await,
            Kind::Node(node) => node.rabbitmqctl(args).await,
        }
    }

    async fn ready(&self) -> Result<(), BrokerError> {
        probe::amqp(&address_of(&self.amqp_url)?, READY).await?;
        match &self.kind {
            Kind::Container(container) => match container.ports.get(&MANAGEMENT) {
                Some(port) => probe::http(&format!("127.0.0.1:{port}"), READY).await,
                None => Ok(()),
            },
            Kind::Node(_) | Kind::External => Ok(()),
        }
    }
}

/// Wishes about a [`Broker`].
///
/// Every wish but [`own`](Self::own) is something that an external broker cannot grant, so each of them makes the broker our
/// own, also where `REHOP_TEST_AMQP_URL` is set.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens until `start`"]
pub struct BrokerBuilder {
    tag: Option<String>,
    own: bool,
    recipe: Recipe,
}

/// How a broker of our own is made.
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
            let (verify, insist) =
                if tls.require_client_certificate { ("verify_peer", "true") } else { ("verify_none", "false") };
            conf += &format!(
                "\nlisteners.ssl.1 = {tls_listener}\nssl_options.cacertfile = {tls_directory}/ca.pem\n\
                 ssl_options.certfile = {tls_directory}/certificate.pem\nssl_options.keyfile = {tls_directory}/key.pem\n\
                 ssl_options.verify = {verify}\nssl_options.fail_if_no_peer_cert = {insist}"
            );
        }
        conf + "\n"
    }
}

/// A TLS listener for [`BrokerBuilder::tls`]; all files as PEM.
#[derive(Clone)]
pub struct TlsListener {
    /// The authorities that the broker trusts when it verifies a client.
    pub ca: Vec<u8>,
    /// The broker's certificate; `127.0.0.1` or `localhost` should be among its names.
    pub certificate: Vec<u8>,
    /// The certificate's private key.
    pub key: Vec<u8>,
    /// Whether a client without a certificate of these authorities is refused (mutual TLS).
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

impl BrokerBuilder {
    /// The tag of the `rabbitmq` image, for example `4.0-management`. A bare version such as `4.0` means its management image.
    ///
    /// Without it `REHOP_TEST_RABBITMQ_TAG` decides, else `4.3-management`.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self.own()
    }

    /// Never an external broker: for tests that restart, stop or pause.
    pub fn own(mut self) -> Self {
        self.own = true;
        self
    }

    /// A line for `rabbitmq.conf`, for example `consumer_timeout = 10000`.
    pub fn conf(mut self, line: impl Into<String>) -> Self {
        self.recipe.conf.push(line.into());
        self.own()
    }

    /// An environment variable of the server.
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.recipe.env.push((key.into(), value.into()));
        self.own()
    }

    /// One more port of the broker to reach from here; ask [`Broker::port`] where.
    pub fn publish(mut self, port: u16) -> Self {
        self.recipe.ports.push(port);
        self.own()
    }

    /// A TLS listener beside the plain one; its address is [`Broker::amqps_url`].
    pub fn tls(mut self, listener: TlsListener) -> Self {
        self.recipe.tls = Some(listener);
        self.own()
    }

    /// Starts the broker, or connects to the external one.
    ///
    /// # Errors
    /// When no such broker can be had; the error says what to do.
    pub async fn start(self) -> Result<Broker, BrokerError> {
        let broker = match variable("REHOP_TEST_AMQP_URL") {
            Some(url) if !self.own => external(url).await?,
            Some(_) | None => self.start_own().await?,
        };
        broker.announce();
        Ok(broker)
    }

    async fn start_own(self) -> Result<Broker, BrokerError> {
        let asked = self.tag.as_deref().map(full_tag).or_else(tag_by_environment);
        let image = format!("rabbitmq:{}", asked.as_deref().unwrap_or(DEFAULT_TAG));
        let no_container = match container::docker_answers().await {
            Ok(()) => match container::ensure_image(&image).await {
                Ok(()) => return in_container(&image, &self.recipe).await,
                Err(error) => error,
            },
            Err(docker) => BrokerError::Nothing { docker },
        };
        let Some(server) = Server::installed() else {
            return Err(no_container);
        };
        let broker = on_private_node(server, &self.recipe).await?;
        // A server that is merely installed is no answer to the wish for a certain version. Its greeting tells the
        // version; `rabbitmqctl version` would leave an Erlang port mapper running.
        let (without_docker, installed) = (matches!(no_container, BrokerError::Nothing { .. }), broker.version.clone());
        match asked {
            Some(wanted) if !installed.starts_with(&format!("{}.", wanted.trim_end_matches("-management"))) => {
                let other = BrokerError::OtherVersion { wanted, installed };
                Err(if without_docker { other } else { no_container })
            }
            Some(_) | None => Ok(broker),
        }
    }
}

/// What the environment says, where it says anything.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The tag that `REHOP_TEST_RABBITMQ_TAG` asks for.
pub(super) fn tag_by_environment() -> Option<String> {
    variable("REHOP_TEST_RABBITMQ_TAG").as_deref().map(full_tag)
}

pub(super) fn full_tag(tag: &str) -> String {
    if tag.chars().all(|c| c.is_ascii_digit() || c == '.') { format!("{tag}-management") } else { tag.to_owned() }
}

async fn external(amqp_url: String) -> Result<Broker, BrokerError> {
    let address = address_of(&amqp_url)?;
    let version = if amqp_url.starts_with("amqps:") {
        "unknown".to_owned()
    } else {
        probe::amqp(&address, Duration::from_secs(10)).await?
    };
    let management_url = variable("REHOP_TEST_MANAGEMENT_URL");
    Ok(Broker { kind: Kind::External, amqp_url, amqps_url: None, management_url, version })
}

async fn in_container(image: &str, recipe: &Recipe) -> Result<Broker, BrokerError> {
    let container = container::start(image, recipe).await?;
    let port = |ports: &HashMap<u16, u16>, inside| ports.get(&inside).copied();
    let (amqp, amqps, management) = (
        port(&container.ports, AMQP).unwrap_or(AMQP),
        recipe.tls.as_ref().and_then(|_| port(&container.ports, AMQPS)),
        port(&container.ports, MANAGEMENT).unwrap_or(MANAGEMENT),
    );
    started(Kind::Container(container), amqp, amqps, management).await
}

async fn on_private_node(server: Server, recipe: &Recipe) -> Result<Broker, BrokerError> {
    let node = node::start(server, recipe).await?;
    let (amqp, amqps, management) = (node.amqp, node.amqps, node.management);
    started(Kind::Node(Box::new(node)), amqp, amqps, management).await
}

async fn started(kind: Kind, amqp: u16, amqps: Option<u16>, management: u16) -> Result<Broker, BrokerError> {
    let version = probe::amqp(&format!("127.0.0.1:{amqp}"), READY).await?;
    Ok(Broker {
        kind,
        amqp_url: format!("amqp://guest:guest@127.0.0.1:{amqp}/%2f"),
        amqps_url: amqps.map(|port| format!("amqps://guest:guest@127.0.0.1:{port}/%2f")),
        management_url: Some(format!("http://guest:guest@127.0.0.1:{management}")),
        version,
    })
}

impl Broker {
    /// Written to standard error itself: what a test prints by macro is captured and shown for failed tests only.
    fn announce(&self) {
        let what = match &self.kind {
            Kind::External => "the broker that REHOP_TEST_AMQP_URL names".to_owned(),
            Kind::Container(container) => format!("container {}", container.name),
            Kind::Node(node) => format!("private node {}", node.name),
        };
        let url = without_password(&self.amqp_url);
        // A closed standard error is no reason for a test to fail.
        let _ = writeln!(std::io::stderr(), "rehop testing: RabbitMQ {} by {what} at {url}", self.version);
    }
}
