use std::{fs, io::Write as _, path::Path, time::Duration};

use futures_util::future::try_join_all;

use super::{
    broker::{full_tag, tag_by_environment},
    client::Client,
    client_error::ClientError,
    command::docker,
    container::{AMQP, DEFAULT_TAG, MANAGEMENT, docker_answers, image_of, pause, rabbitmqctl},
    error::BrokerError,
    management::Management,
    namespace::random_suffix,
    ports::Port,
    probe,
    recipe::Recipe,
    watchdog::Watchdog,
};

const COMMAND: Duration = Duration::from_secs(60);
const READY: Duration = Duration::from_secs(120);

/// Removes the containers first, because a network with containers in it cannot be removed.
const CLEANUP: &str = r#"
prefix=$1 nodes=$2
docker container inspect "$prefix-0" >/dev/null 2>&1 || sleep 2
names= networks=$prefix-peers i=0
while [ "$i" -lt "$nodes" ]; do
    names="$names $prefix-$i" networks="$networks $prefix-client-$i" i=$((i + 1))
done
docker rm --force --volumes $names
docker network rm $networks
"#;

/// Several RabbitMQ nodes in Docker that form one cluster. Dropping it removes them and their
/// networks.
///
/// Each node is in two networks: one for its clients, with the published port, and one for its
/// peers. So a node can be cut off from its peers while its clients still reach it, and no node can
/// be reached through another one's client network. `net_ticktime` is 5 s, so that the nodes notice
/// within seconds, not a minute, that one is cut off.
#[derive(Debug)]
pub struct Cluster {
    prefix: String,
    ports: Vec<NodePorts>,
    _watchdog: Watchdog,
}

#[derive(Debug)]
struct NodePorts {
    amqp: Port,
    management: Port,
}

impl Cluster {
    /// A cluster of this many nodes. Three are the minimum for surviving the loss of one.
    ///
    /// # Errors
    /// Without Docker or the image, or when the nodes do not find each other.
    pub async fn start(nodes: usize) -> Result<Self, BrokerError> {
        let tag = tag_by_environment();
        Self::start_tag(nodes, tag.as_deref().unwrap_or(DEFAULT_TAG)).await
    }

    /// A cluster of this tag of the `rabbitmq` image, for example `4.0-management`.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub async fn start_tag(nodes: usize, tag: &str) -> Result<Self, BrokerError> {
        docker_answers().await.map_err(|reason| BrokerError::ClusterNeedsDocker { reason })?;
        let image = image_of(&full_tag(tag)).await?;

        let prefix = format!("rehop-test-{}", random_suffix());
        let watchdog = Watchdog::start(CLEANUP, [prefix.clone(), nodes.to_string()])?;
        let claim = |_| Ok(NodePorts { amqp: Port::claim()?, management: Port::claim()? });
        let ports = (0..nodes).map(claim).collect::<Result<_, BrokerError>>()?;
        let cluster = Self { prefix, ports, _watchdog: watchdog };
        cluster.create(&image).await?;
        cluster.wait_until_formed().await?;
        // A closed standard error must not make a test fail.
        let _ = writeln!(
            std::io::stderr(),
            "rehop testing: a cluster of {nodes} in containers {}-*",
            cluster.prefix
        );
        Ok(cluster)
    }

    /// How many nodes the cluster has, up or down.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.ports.len()
    }

    /// The URL for clients of node `i` (from 0). It stays the same when the node comes back.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn amqp_url(&self, i: usize) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.ports[i].amqp.number())
    }

    /// The management API of node `i`.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn management(&self, i: usize) -> Result<Management, BrokerError> {
        self.name(i)?;
        Management::new(&self.management_url(i), &self.amqp_url(i))
    }

    /// The URL of node `i`'s management API, with user and password.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn management_url(&self, i: usize) -> String {
        format!("http://guest:guest@127.0.0.1:{}", self.ports[i].management.number())
    }

    /// A small client of node `i`.
    ///
    /// # Errors
    /// When the node does not accept the connection.
    pub async fn client(&self, i: usize) -> Result<Client, ClientError> {
        Client::connect(&self.amqp_url(i)).await
    }

    /// Kills node `i` (SIGKILL).
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill(&self, i: usize) -> Result<(), BrokerError> {
        docker(&["kill", &self.name(i)?], COMMAND).await.map(drop)
    }

    /// Stops node `i` cleanly.
    ///
    /// # Errors
    /// When Docker refuses.
    pub async fn stop(&self, i: usize) -> Result<(), BrokerError> {
        docker(&["stop", &self.name(i)?], COMMAND).await.map(drop)
    }

    /// Starts node `i` again and waits until clients can connect to it.
    ///
    /// The node that was stopped last must come back first or together with the others, because
    /// nodes wait for it. Use [`start_nodes`](Self::start_nodes) for this.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_node(&self, i: usize) -> Result<(), BrokerError> {
        self.start_nodes(&[i]).await
    }

    /// Starts several nodes at once and waits until clients can connect to each.
    ///
    /// # Errors
    /// When one does not come up.
    pub async fn start_nodes(&self, nodes: &[usize]) -> Result<(), BrokerError> {
        let names = nodes.iter().map(|&i| self.name(i)).collect::<Result<Vec<_>, _>>()?;
        let mut line = vec!["start"];
        line.extend(names.iter().map(String::as_str));
        docker(&line, COMMAND).await?;
        for &i in nodes {
            probe::amqp(&format!("127.0.0.1:{}", self.ports[i].amqp.number()), READY).await?;
        }
        Ok(())
    }

    /// Freezes node `i` (SIGSTOP).
    ///
    /// # Errors
    /// When it is not running.
    pub async fn pause(&self, i: usize) -> Result<(), BrokerError> {
        pause(&self.name(i)?).await
    }

    /// Resumes a frozen node.
    ///
    /// # Errors
    /// When it is not paused.
    pub async fn resume(&self, i: usize) -> Result<(), BrokerError> {
        docker(&["unpause", &self.name(i)?], COMMAND).await.map(drop)
    }

    /// Cuts node `i` off from its peers. Its clients still reach it.
    ///
    /// Returns when the node is cut off; the nodes notice it some seconds later.
    ///
    /// # Errors
    /// When it is already cut off.
    pub async fn disconnect(&self, i: usize) -> Result<(), BrokerError> {
        docker(&["network", "disconnect", &self.peers(), &self.name(i)?], COMMAND).await.map(drop)
    }

    /// Reconnects node `i` with its peers. They find each other some seconds later.
    ///
    /// # Errors
    /// When it is already connected.
    pub async fn reconnect(&self, i: usize) -> Result<(), BrokerError> {
        docker(&["network", "connect", &self.peers(), &self.name(i)?], COMMAND).await.map(drop)
    }

    /// The index of the node that leads this quorum queue, according to the first node that
    /// answers.
    ///
    /// After a failover the new leader serves clients before any node lists it, so look again with
    /// [`eventually`](super::eventually).
    ///
    /// # Errors
    /// When no node lists a leader: the queue does not exist, has no majority, or has only just
    /// elected one.
    pub async fn leader_of(&self, queue: &str) -> Result<usize, BrokerError> {
        let mut reason = "no node answered".to_owned();
        for i in 0..self.nodes() {
            let listed = ["list_queues", "--formatter", "json", "name", "leader"];
            match rabbitmqctl(&self.name(i)?, &listed, Duration::from_secs(20)).await {
                Ok(json) => match leader_in(&json, queue, &self.prefix) {
                    Some(leader) if leader < self.nodes() => return Ok(leader),
                    Some(_) | None => reason = format!("node {i} lists {json}"),
                },
                Err(error) => reason = error.to_string(),
            }
        }
        Err(BrokerError::NoLeader { queue: queue.to_owned(), reason })
    }

    /// Runs `rabbitmqctl --quiet` in node `i` and returns what it printed.
    ///
    /// # Errors
    /// When the node is down or the command fails.
    pub async fn rabbitmqctl(&self, i: usize, args: &[&str]) -> Result<String, BrokerError> {
        rabbitmqctl(&self.name(i)?, args, COMMAND).await
    }

    /// Waits until every node is up and knows all the others.
    ///
    /// # Errors
    /// When they do not find each other in two minutes.
    pub async fn wait_until_formed(&self) -> Result<(), BrokerError> {
        for ports in &self.ports {
            probe::amqp(&format!("127.0.0.1:{}", ports.amqp.number()), READY).await?;
        }
        let count = self.nodes().to_string();
        let all_known = (0..self.nodes()).map(|i| {
            let count = &count;
            async move {
                rabbitmqctl(
                    &self.name(i)?,
                    &["await_online_nodes", count, "--timeout", "120"],
                    READY,
                )
                .await
            }
        });
        try_join_all(all_known).await.map(drop)
    }

    async fn create(&self, image: &str) -> Result<(), BrokerError> {
        docker(&["network", "create", &self.peers()], COMMAND).await?;
        let directory = std::env::temp_dir().join(&self.prefix);
        fs::create_dir(&directory)
            .map_err(BrokerError::io(format!("create {}", directory.display())))?;
        let created = self.create_nodes(image, &directory).await;
        // If this fails, one small temporary file is left behind.
        let _ = fs::remove_dir_all(&directory);
        created
    }

    async fn create_nodes(&self, image: &str, directory: &Path) -> Result<(), BrokerError> {
        let conf = directory.join("90-rehop.conf");
        fs::write(&conf, self.conf())
            .map_err(BrokerError::io("write the cluster's configuration"))?;
        let conf = conf.display().to_string();
        let names = (0..self.nodes()).map(|i| self.name(i)).collect::<Result<Vec<_>, _>>()?;
        let cookie = format!("RABBITMQ_ERLANG_COOKIE={}", self.prefix);
        for (i, (name, ports)) in names.iter().zip(&self.ports).enumerate() {
            let clients = format!("{}-client-{i}", self.prefix);
            let amqp = format!("127.0.0.1:{}:{AMQP}", ports.amqp.number());
            let management = format!("127.0.0.1:{}:{MANAGEMENT}", ports.management.number());
            docker(&["network", "create", &clients], COMMAND).await?;
            let create = [
                "create",
                "--name",
                name,
                "--hostname",
                name,
                "--network",
                &clients,
                "--publish",
                &amqp,
                "--publish",
                &management,
                "--env",
                &cookie,
                image,
            ];
            docker(&create, COMMAND).await?;
            docker(&["network", "connect", &self.peers(), name], COMMAND).await?;
            docker(&["cp", &conf, &format!("{name}:/etc/rabbitmq/conf.d/90-rehop.conf")], COMMAND)
                .await?;
        }
        let mut start = vec!["start"];
        start.extend(names.iter().map(String::as_str));
        docker(&start, COMMAND).await.map(drop)
    }

    fn conf(&self) -> String {
        let peers = (0..self.nodes()).map(|i| {
            format!("cluster_formation.classic_config.nodes.{} = rabbit@{}-{i}", i + 1, self.prefix)
        });
        let mut conf = vec![
            "cluster_formation.peer_discovery_backend = classic_config".to_owned(),
            "net_ticktime = 5".to_owned(),
        ];
        conf.extend(peers);
        Recipe { conf, ..Recipe::default() }.conf("", "")
    }

    fn peers(&self) -> String {
        format!("{}-peers", self.prefix)
    }

    fn name(&self, i: usize) -> Result<String, BrokerError> {
        if i >= self.nodes() {
            return Err(BrokerError::NoSuchNode { index: i, nodes: self.nodes() });
        }
        Ok(format!("{}-{i}", self.prefix))
    }
}

fn leader_in(json: &str, queue: &str, prefix: &str) -> Option<usize> {
    let queues: Vec<serde_json::Value> = serde_json::from_str(json).ok()?;
    let leader = queues.iter().find(|it| it["name"] == queue)?["leader"].as_str()?;
    leader.strip_prefix("rabbit@")?.strip_prefix(prefix)?.strip_prefix('-')?.parse().ok()
}
