use std::time::Duration;

crate::debug_is_display!(BrokerError);

/// Why no test broker was available, or why it could not do what a test asked for.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// This machine has no way to provide a broker.
    #[error(
        "no RabbitMQ for tests: Docker does not answer ({docker}) and no rabbitmq-server is installed; start Docker, \
         install the rabbitmq-server package, or name a broker in REHOP_TEST_AMQP_URL"
    )]
    Nothing {
        /// What Docker's command-line tool said.
        docker: String,
    },

    /// Docker is available, but the image is neither present nor could it be pulled.
    #[error(
        "docker has no image {image} and could not pull it ({reason}); pull it where a registry answers, build it with \
         `make images` in a checkout of rehop, or name a broker in REHOP_TEST_AMQP_URL"
    )]
    NoImage {
        /// The image with its tag.
        image: String,
        /// What the pull said.
        reason: String,
    },

    /// A certain version was requested, but only an installed server of another version is
    /// available.
    #[error(
        "{wanted} was requested, but Docker does not answer and the installed rabbitmq-server is {installed}; start Docker"
    )]
    OtherVersion {
        /// The requested tag.
        wanted: String,
        /// The installed server's version.
        installed: String,
    },

    /// The container did not start.
    #[error("the container {name} of {image} did not start: {reason}")]
    Container {
        /// The container's name.
        name: String,
        /// The image with its tag.
        image: String,
        /// What went wrong, with the relevant part of the broker's log if there is one.
        reason: String,
    },

    /// The private node did not start.
    #[error("the private RabbitMQ node {name} did not start: {reason}")]
    Node {
        /// The node's name.
        name: String,
        /// What went wrong, with the relevant part of the node's log if there is one.
        reason: String,
    },

    /// The broker at this address sent no AMQP greeting.
    #[error("no RabbitMQ answered at {address} within {within:?}: {reason}")]
    Silent {
        /// Host and port.
        address: String,
        /// The time limit.
        within: Duration,
        /// The last failure.
        reason: String,
    },

    /// The fixture did not start this broker, so it cannot control it.
    #[error(
        "cannot {what} a broker that this test did not start; use Broker::builder().own().start() for a test that needs this"
    )]
    NotOurs {
        /// What was requested.
        what: &'static str,
    },

    /// Only the broker's AMQP address is known.
    #[error("the broker's management API is not known; name it in REHOP_TEST_MANAGEMENT_URL")]
    NoManagement,

    /// The URL in `REHOP_TEST_MANAGEMENT_URL` cannot be used.
    #[error(
        "the URL of the management API cannot be used: {reason}; it is like http://guest:guest@127.0.0.1:15672"
    )]
    ManagementUrl {
        /// What is wrong. It names neither user nor password.
        reason: String,
    },

    /// The management API refused a request or did not answer.
    #[error("the management API failed at {request}: {reason}")]
    Management {
        /// The method and the path.
        request: String,
        /// The API's answer, or why there was none.
        reason: String,
    },

    /// A cluster needs Docker.
    #[error("a cluster needs Docker, which does not answer: {reason}")]
    ClusterNeedsDocker {
        /// What Docker's command-line tool said.
        reason: String,
    },

    /// A cluster has no node of this index.
    #[error("the cluster has {nodes} nodes and no node {index}")]
    NoSuchNode {
        /// The index asked for, from 0.
        index: usize,
        /// How many nodes there are.
        nodes: usize,
    },

    /// No node of the cluster knows where the queue's leader is.
    #[error("no leader of queue {queue} is known: {reason}")]
    NoLeader {
        /// The queue.
        queue: String,
        /// The answer of the last node.
        reason: String,
    },

    /// A command failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command line.
        command: String,
        /// The end of what it printed.
        output: String,
    },

    /// A command did not finish.
    #[error("`{command}` did not finish within {within:?}")]
    CommandTimeout {
        /// The command line.
        command: String,
        /// The limit.
        within: Duration,
    },

    /// The URL is not an AMQP URL.
    #[error("{url} is not an AMQP URL such as amqp://guest:guest@127.0.0.1:5672/%2f")]
    Url {
        /// The URL without its password.
        url: String,
    },

    /// The operating system refused something.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
}

impl BrokerError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
