use std::{env, io::Write as _, time::Duration};

use tokio::sync::OnceCell;

use super::{
    client::Client,
    client_error::ClientError,
    container::{self, AMQPS, Container, DEFAULT_TAG, MANAGEMENT},
    error::BrokerError,
    management::Management,
    node::{self, Node, Server},
    probe,
    recipe::{Recipe, TlsListener},
    url::{address_of, without_password},
};

const READY: Duration = Duration::from_secs(300);

/// A real RabbitMQ for tests; [the crate](crate) describes which one. A broker that it started ends
/// when it is dropped.
#[derive(Debug)]
pub struct Broker {
    hosting: Hosting,
    amqp_url: String,
    amqps_url: Option<String>,
    management_url: Option<String>,
    version: String,
}

#[derive(Debug)]
enum Hosting {
    External,
    /// Somebody else's container, which other processes use, too.
    Attached(Container),
    Container(Container),
    Node(Box<Node>),
}

impl Broker {
    /// A broker as [the crate](crate) describes.
    ///
    /// # Errors
    /// When this machine has no way to provide a broker; the error says what to do.
    pub async fn start() -> Result<Self, BrokerError> {
        Self::builder().start().await
    }

    /// A broker with options.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// The broker that all tests of a process share. The first call starts it, and it ends with the
    /// process.
    ///
    /// Each test isolates itself with a [`Namespace`](crate::Namespace). A test that restarts or
    /// reconfigures a broker starts its own.
    ///
    /// # Panics
    /// When no broker is available, because no test could continue.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Broker> = OnceCell::const_new();
        match SHARED.get_or_try_init(Self::start).await {
            Ok(broker) => broker,
            Err(error) => panic!("{error}"),
        }
    }

    /// The URL for clients, with user and password.
    #[must_use]
    pub fn amqp_url(&self) -> &str {
        &self.amqp_url
    }

    /// The URL for clients that use TLS; only after [`BrokerBuilder::tls`].
    #[must_use]
    pub fn amqps_url(&self) -> Option<&str> {
        self.amqps_url.as_deref()
    }

    /// The base of the management API, with user and password, for example
    /// `http://guest:guest@127.0.0.1:15672`.
    #[must_use]
    pub fn management_url(&self) -> Option<&str> {
        self.management_url.as_deref()
    }

    /// A client of the management API.
    ///
    /// # Errors
    /// When only the broker's AMQP address is known, or `REHOP_TEST_MANAGEMENT_URL` cannot be used.
    pub fn management(&self) -> Result<Management, BrokerError> {
        let url = self.management_url.as_deref().ok_or(BrokerError::NoManagement)?;
        Management::new(url, &self.amqp_url)
    }

    /// The broker's version, for example `4.3.6`; `unknown` for an external broker behind TLS.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The port of 127.0.0.1 that maps to this port of the broker, for ports of
    /// [`BrokerBuilder::publish`].
    ///
    /// A private node has no mapping: it listens where its configuration says.
    #[must_use]
    pub fn port(&self, inside: u16) -> Option<u16> {
        match &self.hosting {
            Hosting::Container(container) | Hosting::Attached(container) => {
                container.ports.get(&inside).copied()
            }
            Hosting::Node(_) => Some(inside),
            Hosting::External => None,
        }
    }

    /// Whether the fixture started this broker, so that it can restart, stop and pause it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        !matches!(self.hosting, Hosting::External | Hosting::Attached(_))
    }

    /// Whether [`rabbitmqctl`](Self::rabbitmqctl) can be run: on all but brokers of which only the
    /// address is known.
    #[must_use]
    pub fn has_rabbitmqctl(&self) -> bool {
        !matches!(self.hosting, Hosting::External)
    }

    /// A small client with a connection of its own.
    ///
    /// # Errors
    /// When the broker does not accept the connection.
    pub async fn client(&self) -> Result<Client, ClientError> {
        Client::connect(&self.amqp_url).await
    }

    /// Stops the broker cleanly, starts it again and waits until it is ready. Addresses stay the
    /// same.
    ///
    /// # Errors
    /// When the broker is not ours, or does not come back.
    pub async fn restart(&self) -> Result<(), BrokerError> {
        match &self.hosting {
            Hosting::External | Hosting::Attached(_) => {
                Err(BrokerError::NotOurs { what: "restart" })
            }
            Hosting::Container(container) => {
                container.control(&["restart"]).await?;
                self.ready().await
            }
            Hosting::Node(node) => {
                node.shut_down().await?;
                node.launch().await
            }
        }
    }

    /// Stops the broker cleanly. [`start_again`](Self::start_again) brings it back.
    ///
    /// # Errors
    /// When the broker is not ours, or does not stop.
    pub async fn stop(&self) -> Result<(), BrokerError> {
        match &self.hosting {
            Hosting::External | Hosting::Attached(_) => Err(BrokerError::NotOurs { what: "stop" }),
            Hosting::Container(container) => container.control(&["stop"]).await,
            Hosting::Node(node) => node.shut_down().await,
        }
    }

    /// Kills the broker, like a power cut. [`start_again`](Self::start_again) brings it back.
    ///
    /// # Errors
    /// When the broker is not ours, or is not running.
    pub async fn kill(&self) -> Result<(), BrokerError> {
        match &self.hosting {
            Hosting::External | Hosting::Attached(_) => Err(BrokerError::NotOurs { what: "kill" }),
            Hosting::Container(container) => container.control(&["kill"]).await,
            Hosting::Node(node) => node.kill().await,
        }
    }

    /// Starts a stopped or killed broker and waits until it is ready. Addresses and durable queues
    /// are as before.
    ///
    /// # Errors
    /// When the broker is not ours, or does not come up.
    pub async fn start_again(&self) -> Result<(), BrokerError> {
        match &self.hosting {
            Hosting::External | Hosting::Attached(_) => Err(BrokerError::NotOurs { what: "start" }),
            Hosting::Container(container) => {
                container.control(&["start"]).await?;
                self.ready().await
            }
            Hosting::Node(node) => node.launch().await,
        }
    }

    /// Freezes the broker (SIGSTOP): connections stay open, but nothing is answered.
    ///
    /// # Errors
    /// When the broker is not ours, or is not running.
    pub async fn pause(&self) -> Result<(), BrokerError> {
        match &self.hosting {
            Hosting::External | Hosting::Attached(_) => Err(BrokerError::NotOurs { what: "pause" }),
            Hosting::Container(container) => container.pause().await,
            Hosting::Node(node) => node.signal("STOP").await,
        }
    }

    /// Resumes a frozen broker.
    ///
    /// # Errors
    /// When the broker is not ours, or is not paused.
    pub async fn resume(&self) -> Result<(), BrokerError> {
        match &self.hosting {
            Hosting::External | Hosting::Attached(_) => {
                Err(BrokerError::NotOurs { what: "resume" })
            }
            Hosting::Container(container) => container.control(&["unpause"]).await,
            Hosting::Node(node) => node.signal("CONT").await,
        }
    }

    /// Runs `rabbitmqctl --quiet` with these arguments and returns what it printed.
    ///
    /// # Errors
    /// When only the broker's address is known, or the command fails.
    pub async fn rabbitmqctl(&self, args: &[&str]) -> Result<String, BrokerError> {
        match &self.hosting {
            Hosting::External => Err(BrokerError::NotOurs { what: "run rabbitmqctl on" }),
            Hosting::Container(container) | Hosting::Attached(container) => {
                container.rabbitmqctl(args).await
            }
            Hosting::Node(node) => node.rabbitmqctl(args).await,
        }
    }

    async fn ready(&self) -> Result<(), BrokerError> {
        probe::amqp(&address_of(&self.amqp_url)?, READY).await?;
        match &self.hosting {
            Hosting::Container(container) => match container.ports.get(&MANAGEMENT) {
                Some(port) => probe::http(&format!("127.0.0.1:{port}"), READY).await,
                None => Ok(()),
            },
            Hosting::Node(_) | Hosting::External | Hosting::Attached(_) => Ok(()),
        }
    }
}

/// Options of a [`Broker`].
///
/// A broker that runs already cannot provide any of them, so each option makes the fixture start
/// its own, even if `REHOP_TEST_AMQP_URL` or `REHOP_TEST_CONTAINER` is set.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens until `start`"]
pub struct BrokerBuilder {
    tag: Option<String>,
    own: bool,
    recipe: Recipe,
}

impl BrokerBuilder {
    /// The tag of the `rabbitmq` image, for example `4.0-management`. A bare version such as `4.0`
    /// means its management image. With a colon, such as `registry/rabbitmq:4.0`, it is the whole
    /// name of an image that is on this machine.
    ///
    /// The default is `REHOP_TEST_RABBITMQ_TAG`, else `4.3-management`.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self.own()
    }

    /// Never uses a broker that runs already, for tests that restart, stop or pause it.
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

    /// Publishes one more port of the broker; [`Broker::port`] tells on which port of this machine.
    pub fn publish(mut self, port: u16) -> Self {
        self.recipe.ports.push(port);
        self.own()
    }

    /// Adds a TLS listener; its address is [`Broker::amqps_url`].
    pub fn tls(mut self, listener: TlsListener) -> Self {
        self.recipe.tls = Some(listener);
        self.own()
    }

    /// Starts the broker, or finds the one that runs already.
    ///
    /// # Errors
    /// When no such broker is available; the error says what to do.
    pub async fn start(self) -> Result<Broker, BrokerError> {
        let broker = match (variable("REHOP_TEST_AMQP_URL"), variable("REHOP_TEST_CONTAINER")) {
            (Some(url), _) if !self.own => external(url).await?,
            (None, Some(name)) if !self.own => {
                of_container(container::attach(name).await?, Hosting::Attached).await?
            }
            _ => self.start_own().await?,
        };
        broker.announce();
        Ok(broker)
    }

    async fn start_own(self) -> Result<Broker, BrokerError> {
        let asked = self.tag.as_deref().map(full_tag).or_else(tag_by_environment);
        let no_container = match container::docker_answers().await {
            Ok(()) => match container::image_of(asked.as_deref().unwrap_or(DEFAULT_TAG)).await {
                Ok(image) => return in_container(&image, &self.recipe).await,
                Err(error) => error,
            },
            Err(docker) => BrokerError::Nothing { docker },
        };
        let Some(server) = Server::installed() else {
            return Err(no_container);
        };
        let broker = on_private_node(server, &self.recipe).await?;
        // An installed server does not satisfy a request for another version. The version comes
        // from its greeting, because `rabbitmqctl version` would leave an Erlang port mapper
        // running.
        let (without_docker, installed) =
            (matches!(no_container, BrokerError::Nothing { .. }), broker.version.clone());
        match asked {
            Some(wanted)
                if !installed
                    .starts_with(&format!("{}.", wanted.trim_end_matches("-management"))) =>
            {
                let other = BrokerError::OtherVersion { wanted, installed };
                Err(if without_docker { other } else { no_container })
            }
            Some(_) | None => Ok(broker),
        }
    }
}

/// The variable's value, unless it is empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The tag in `REHOP_TEST_RABBITMQ_TAG`.
pub(super) fn tag_by_environment() -> Option<String> {
    variable("REHOP_TEST_RABBITMQ_TAG").as_deref().map(full_tag)
}

pub(super) fn full_tag(tag: &str) -> String {
    if tag.chars().all(|c| c.is_ascii_digit() || c == '.') {
        format!("{tag}-management")
    } else {
        tag.to_owned()
    }
}

async fn external(amqp_url: String) -> Result<Broker, BrokerError> {
    let address = address_of(&amqp_url)?;
    let version = if amqp_url.starts_with("amqps:") {
        "unknown".to_owned()
    } else {
        probe::amqp(&address, Duration::from_secs(10)).await?
    };
    let management_url = variable("REHOP_TEST_MANAGEMENT_URL");
    Ok(Broker { hosting: Hosting::External, amqp_url, amqps_url: None, management_url, version })
}

async fn in_container(image: &str, recipe: &Recipe) -> Result<Broker, BrokerError> {
    of_container(container::start(image, recipe).await?, Hosting::Container).await
}

async fn of_container(
    container: Container,
    hosting: fn(Container) -> Hosting,
) -> Result<Broker, BrokerError> {
    let port = |inside| container.ports.get(&inside).copied();
    let (amqp, amqps, management) = (container.amqp()?, port(AMQPS), port(MANAGEMENT));
    started(hosting(container), amqp, amqps, management).await
}

async fn on_private_node(server: Server, recipe: &Recipe) -> Result<Broker, BrokerError> {
    let node = node::start(server, recipe).await?;
    let (amqp, amqps, management) = (node.amqp, node.amqps, node.management);
    started(Hosting::Node(Box::new(node)), amqp, amqps, Some(management)).await
}

async fn started(
    hosting: Hosting,
    amqp: u16,
    amqps: Option<u16>,
    management: Option<u16>,
) -> Result<Broker, BrokerError> {
    // A container that somebody else has started may not publish its management port.
    let management_url = management
        .map(|port| format!("http://guest:guest@127.0.0.1:{port}"))
        .or_else(|| variable("REHOP_TEST_MANAGEMENT_URL"));
    let version = probe::amqp(&format!("127.0.0.1:{amqp}"), READY).await?;
    Ok(Broker {
        hosting,
        amqp_url: format!("amqp://guest:guest@127.0.0.1:{amqp}/%2f"),
        amqps_url: amqps.map(|port| format!("amqps://guest:guest@127.0.0.1:{port}/%2f")),
        management_url,
        version,
    })
}

impl Broker {
    /// Writes to standard error directly, because output of the print macros is captured and shown
    /// only for failed tests.
    fn announce(&self) {
        let what = match &self.hosting {
            Hosting::External => "the broker named by REHOP_TEST_AMQP_URL".to_owned(),
            Hosting::Container(container) | Hosting::Attached(container) => {
                format!("container {}", container.name)
            }
            Hosting::Node(node) => format!("private node {}", node.name),
        };
        let url = without_password(&self.amqp_url);
        // A closed standard error must not make a test fail.
        let _ = writeln!(
            std::io::stderr(),
            "rehop testing: RabbitMQ {} by {what} at {url}",
            self.version
        );
    }
}
