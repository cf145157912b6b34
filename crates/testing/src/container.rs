use std::{collections::HashMap, time::Duration};

use testcontainers::{
    ContainerAsync, CopyTargetOptions, GenericImage, ImageExt as _, TestcontainersError,
    bollard::models::PortBinding,
    core::{IntoContainerPort as _, WaitFor, error::WaitContainerError, logs::WaitLogError},
    runners::AsyncRunner as _,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::Command,
    sync::oneshot,
    time::timeout,
};

use super::{
    command::{docker, errors_of, last_lines},
    error::BrokerError,
    namespace::random_suffix,
    ports::Port,
    recipe::Recipe,
    watchdog::Watchdog,
};

pub(super) const AMQP: u16 = 5672;
pub(super) const AMQPS: u16 = 5671;
pub(super) const MANAGEMENT: u16 = 15672;
pub(super) const DEFAULT_TAG: &str = "4.3-management";

const STARTUP: Duration = Duration::from_secs(300);
const COMMAND: Duration = Duration::from_secs(60);

/// Removes the containers named by the arguments. A missing one may still be in creation, so it
/// gets two seconds.
const CLEANUP: &str = r#"
docker container inspect "$1" >/dev/null 2>&1 || sleep 2
docker rm --force --volumes "$1"
"#;

/// A broker in a container. Dropping it removes the container.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) name: String,
    /// Ports of the container and the ports of 127.0.0.1 that map to them.
    pub(super) ports: HashMap<u16, u16>,
    /// Not of a container that somebody else started.
    _own: Option<Own>,
}

/// What a container that the fixture started has. Its ports are fixed, so that they survive a
/// restart.
#[derive(Debug)]
struct Own {
    _watchdog: Watchdog,
    _ports: Vec<Port>,
}

/// `Ok` if Docker answers, else the error of its command-line tool.
pub(super) async fn docker_answers() -> Result<(), String> {
    docker(&["version", "--format", "{{.Server.Version}}"], Duration::from_secs(10))
        .await
        .map(drop)
        .map_err(|error| {
            if let BrokerError::Io { source, .. } = &error {
                format!("docker: {source}")
            } else {
                last_lines(&error.to_string(), 1)
            }
        })
}

/// A tag with a colon is an image itself. Otherwise the image of this tag: the official one if it
/// is on this machine, else one that `tests/scripts/broker-image` has built, else the official one,
/// pulled.
pub(super) async fn image_of(tag: &str) -> Result<String, BrokerError> {
    if tag.contains(':') {
        return Ok(tag.to_owned());
    }
    let official = format!("rabbitmq:{tag}");
    for image in [Some(official.clone()), built_image(tag)].into_iter().flatten() {
        if docker(&["image", "inspect", "--format", "{{.Id}}", &image], COMMAND).await.is_ok() {
            return Ok(image);
        }
    }
    match pull(&official).await {
        Ok(()) => Ok(official),
        Err(reason) => Err(BrokerError::NoImage { image: official, reason }),
    }
}

/// The name of an image that `tests/scripts/broker-image` builds in place of the official one. It
/// has the management plugin.
fn built_image(tag: &str) -> Option<String> {
    tag.strip_suffix("-management").map(|version| format!("rehop-rabbitmq:{version}"))
}

/// A registry that cannot be reached may never answer. So the first line has 30 seconds to appear,
/// and the rest has as long as a slow connection may need.
async fn pull(image: &str) -> Result<(), String> {
    let mut child = Command::new("docker")
        .args(["pull", image])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut errors = child.stderr.take().ok_or("docker pull has no standard error")?;
    let mut lines =
        BufReader::new(child.stdout.take().ok_or("docker pull has no standard output")?).lines();
    timeout(Duration::from_secs(30), lines.next_line())
        .await
        .map_err(|_| "no registry answered within 30 s")?
        .map_err(|error| error.to_string())?;
    let rest = async {
        while let Ok(Some(_)) = lines.next_line().await {}
        let mut said = String::new();
        let _ = errors.read_to_string(&mut said).await;
        (child.wait().await, said)
    };
    let (status, said) =
        timeout(Duration::from_secs(900), rest).await.map_err(|_| "not pulled within 15 min")?;
    if status.map_err(|error| error.to_string())?.success() {
        Ok(())
    } else {
        Err(last_lines(&said, 2))
    }
}

/// Starts a container of this image.
///
/// A program that is no test may take a port before Docker binds it, so after a clash it tries new
/// ports, up to twice.
pub(super) async fn start(image: &str, recipe: &Recipe) -> Result<Container, BrokerError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let name = format!("rehop-test-{}", random_suffix());
        let mut wanted = vec![AMQP, MANAGEMENT];
        wanted.extend(recipe.tls.as_ref().map(|_| AMQPS));
        wanted.extend(&recipe.ports);
        let claimed = wanted.iter().map(|_| Port::claim()).collect::<Result<Vec<_>, _>>()?;
        let ports: HashMap<u16, u16> =
            wanted.iter().copied().zip(claimed.iter().map(Port::number)).collect();
        let watchdog = Watchdog::start(CLEANUP, [&name])?;
        match create(image, name.clone(), recipe.clone(), ports.clone()).await {
            Ok(()) => {
                return Ok(Container {
                    name,
                    ports,
                    _own: Some(Own { _watchdog: watchdog, _ports: claimed }),
                });
            }
            Err(reason) if attempt < 3 && is_port_clash(&reason) => {}
            Err(reason) => {
                return Err(BrokerError::Container { name, image: image.to_owned(), reason });
            }
        }
    }
}

/// A container that somebody else has started, and removes.
pub(super) async fn attach(name: String) -> Result<Container, BrokerError> {
    let network = docker(
        &["container", "inspect", "--format", "{{.HostConfig.NetworkMode}}", &name],
        COMMAND,
    )
    .await?;
    let shown = docker(&["port", &name], COMMAND).await?;
    Ok(Container { ports: reachable(&network, &shown), name, _own: None })
}

/// The ports of the broker in somebody else's container, and those of 127.0.0.1 by which it can be
/// reached. A container on the host's network publishes none: its ports are the host's.
fn reachable(network: &str, shown: &str) -> HashMap<u16, u16> {
    if network == "host" {
        [AMQP, MANAGEMENT].map(|port| (port, port)).into()
    } else {
        mappings(shown)
    }
}

/// Reads lines such as `5672/tcp -> 127.0.0.1:32768`. What is published on all addresses can be
/// reached by 127.0.0.1 too.
fn mappings(shown: &str) -> HashMap<u16, u16> {
    // The last one counts: Docker may give IPv6 another port than IPv4.
    let addresses = ["[::]", "0.0.0.0", "127.0.0.1"];
    addresses
        .iter()
        .flat_map(|address| shown.lines().filter_map(move |line| mapping(line, address)))
        .collect()
}

fn mapping(line: &str, address: &str) -> Option<(u16, u16)> {
    let (inside, outside) = line.split_once("/tcp -> ")?;
    let port = outside.trim().strip_prefix(address)?.strip_prefix(':')?;
    Some((inside.parse().ok()?, port.parse().ok()?))
}

/// testcontainers ties a container and its Docker client to the runtime that created them, but a
/// test's runtime ends with the test. So this uses its own thread and runtime, and leaves the
/// removal of the container to the watchdog.
async fn create(
    image: &str,
    name: String,
    recipe: Recipe,
    ports: HashMap<u16, u16>,
) -> Result<(), String> {
    let (image, tag) = image
        .split_once(':')
        .map(|(i, t)| (i.to_owned(), t.to_owned()))
        .ok_or("the image has no tag")?;
    let (done, result) = oneshot::channel();
    std::thread::spawn(move || {
        let outcome = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())
            .and_then(|runtime| runtime.block_on(run(image, tag, name, recipe, ports)));
        // If the test has given up, the receiver is gone, and the watchdog removes the container.
        let _ = done.send(outcome);
    });
    result.await.unwrap_or_else(|_| Err("the thread that creates containers panicked".to_owned()))
}

async fn run(
    image: String,
    tag: String,
    name: String,
    recipe: Recipe,
    ports: HashMap<u16, u16>,
) -> Result<(), String> {
    let mut generic = GenericImage::new(image, tag)
        .with_wait_for(WaitFor::message_on_stdout("Server startup complete"));
    for port in ports.keys() {
        generic = generic.with_exposed_port(port.tcp());
    }
    let mut request = generic
        .with_container_name(&name)
        .with_startup_timeout(STARTUP)
        .with_host_config_modifier(move |host| {
            host.publish_all_ports = Some(false);
            host.port_bindings = Some(ports.iter().map(binding).collect());
        })
        .with_copy_to(
            CopyTargetOptions::new("/etc/rabbitmq/conf.d/90-rehop.conf").with_mode(0o644),
            recipe.conf(AMQPS, TLS_DIRECTORY).into_bytes(),
        );
    for (key, value) in &recipe.env {
        request = request.with_env_var(key, value);
    }
    for (file, contents) in recipe.tls.iter().flat_map(|tls| tls.files()) {
        let target = CopyTargetOptions::new(format!("{TLS_DIRECTORY}/{file}")).with_mode(0o644);
        request = request.with_copy_to(target, contents.to_vec());
    }
    let container: ContainerAsync<GenericImage> = request.start().await.map_err(explain)?;
    std::mem::forget(container);
    Ok(())
}

const TLS_DIRECTORY: &str = "/etc/rabbitmq/rehop-tls";

fn binding((inside, outside): (&u16, &u16)) -> (String, Option<Vec<PortBinding>>) {
    let host =
        PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: Some(outside.to_string()) };
    (format!("{inside}/tcp"), Some(vec![host]))
}

fn is_port_clash(reason: &str) -> bool {
    reason.contains("port is already allocated") || reason.contains("address already in use")
}

/// A broker that refuses its configuration says so in its log and ends, so the error shows the log.
fn explain(error: TestcontainersError) -> String {
    if let TestcontainersError::WaitContainer(WaitContainerError::WaitLog(
        WaitLogError::EndOfStream(log),
    )) = &error
    {
        let log: String = log.iter().map(|chunk| String::from_utf8_lossy(chunk)).collect();
        return format!("it ended before it was ready; from its log:\n{}", errors_of(&log));
    }
    error.to_string()
}

impl Container {
    /// The port of 127.0.0.1 for AMQP.
    pub(super) fn amqp(&self) -> Result<u16, BrokerError> {
        // 5672 itself might be the port of another broker.
        self.ports.get(&AMQP).copied().ok_or_else(|| BrokerError::Command {
            command: format!("docker port {}", self.name),
            output: format!(
                "it does not run, or its port {AMQP} is not published on 127.0.0.1; start it with --publish 127.0.0.1::{AMQP}, \
                 or name the broker in REHOP_TEST_AMQP_URL"
            ),
        })
    }

    /// `docker <action> <name>`, for example `restart`.
    pub(super) async fn control(&self, action: &[&str]) -> Result<(), BrokerError> {
        let mut args = action.to_vec();
        args.push(&self.name);
        docker(&args, COMMAND).await.map(drop)
    }

    pub(super) async fn pause(&self) -> Result<(), BrokerError> {
        pause(&self.name).await
    }

    pub(super) async fn rabbitmqctl(&self, args: &[&str]) -> Result<String, BrokerError> {
        rabbitmqctl(&self.name, args, COMMAND).await
    }
}

/// How often a container is frozen at most until that succeeds.
const FREEZES: u32 = 10;

/// Freezes a container. runc gives up, and thaws what it has frozen, if a process starts or waits
/// for a disk meanwhile, as on a busy machine.
pub(super) async fn pause(container: &str) -> Result<(), BrokerError> {
    for _ in 1..FREEZES {
        match docker(&["pause", container], COMMAND).await {
            Err(BrokerError::Command { output, .. }) if output.contains("unable to freeze") => {}
            result => return result.map(drop),
        }
    }
    docker(&["pause", container], COMMAND).await.map(drop)
}

/// `rabbitmqctl` inside a container.
pub(super) async fn rabbitmqctl(
    container: &str,
    args: &[&str],
    within: Duration,
) -> Result<String, BrokerError> {
    let mut line = vec!["exec", container, "rabbitmqctl", "--quiet"];
    line.extend(args);
    docker(&line, within).await
}

#[cfg(test)]
mod tests {
    use super::{Container, built_image, mappings, reachable};

    #[test]
    fn the_ports_of_a_running_container_are_read_from_what_docker_shows() {
        let shown = mappings(
            "15672/tcp -> 127.0.0.1:32769\n5672/tcp -> 127.0.0.1:32768\n5672/udp -> 127.0.0.1:1\n",
        );
        assert_eq!(
            (shown.len(), shown.get(&5672), shown.get(&15672)),
            (2, Some(&32768), Some(&32769))
        );
    }

    #[test]
    fn a_port_that_is_published_on_all_addresses_is_reached_by_127_0_0_1() {
        for (shown, port) in [
            ("5672/tcp -> 0.0.0.0:25672\n5672/tcp -> [::]:25672\n", Some(25672)),
            ("5672/tcp -> [::]:2\n5672/tcp -> 0.0.0.0:1\n", Some(1)),
            ("5672/tcp -> 0.0.0.0:1\n5672/tcp -> [::]:2\n", Some(1)),
            ("5672/tcp -> 127.0.0.1:3\n5672/tcp -> 0.0.0.0:1\n", Some(3)),
            ("5672/tcp -> [::]:2\n", Some(2)),
            ("5672/tcp -> 10.0.0.5:4\n", None),
        ] {
            assert_eq!(mappings(shown).get(&5672).copied(), port, "{shown}");
        }
    }

    #[test]
    fn a_container_that_publishes_no_amqp_port_is_refused_unless_it_is_on_the_network_of_the_host()
    {
        let amqp = |network: &str, shown: &str| {
            Container { name: "rabbit".to_owned(), ports: reachable(network, shown), _own: None }
                .amqp()
        };
        assert_eq!(amqp("host", "").ok(), Some(5672));
        assert_eq!(amqp("bridge", "5672/tcp -> 0.0.0.0:25672").ok(), Some(25672));
        for shown in ["", "15672/tcp -> 127.0.0.1:1", "5672/tcp -> 10.0.0.5:4"] {
            let error = amqp("bridge", shown).map_err(|error| error.to_string());
            let says = |error: &String| {
                ["rabbit", "5672", "REHOP_TEST_AMQP_URL"].iter().all(|it| error.contains(it))
            };
            assert!(error.as_ref().is_err_and(says), "{shown}: {error:?}");
        }
    }

    #[test]
    fn an_image_of_our_own_takes_the_place_of_a_management_image_and_of_no_other() {
        assert_eq!(built_image("4.3-management").as_deref(), Some("rehop-rabbitmq:4.3"));
        for tag in ["4.3", "4.3-alpine", "latest"] {
            assert_eq!(built_image(tag), None, "{tag}");
        }
    }
}
