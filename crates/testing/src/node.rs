use std::{
    env,
    ffi::OsString,
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{
    command::{errors_of, run},
    error::BrokerError,
    eventually::eventually,
    namespace::random_suffix,
    ports::Port,
    probe,
    recipe::Recipe,
    watchdog::Watchdog,
};

const COMMAND: Duration = Duration::from_secs(60);
const STARTUP: Duration = Duration::from_secs(300);

/// Kills the process groups whose leaders' ids are in the directory, then deletes the directory. A
/// dying process may still write a file after the signal, hence the pause and the second try.
const CLEANUP: &str = r#"
for process in node epmd; do
    [ -s "$1/$process.pid" ] && kill -s KILL -- "-$(cat "$1/$process.pid")"
done
sleep 0.1
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

/// Writes its id into a file and then becomes the program named by the arguments, as the leader of
/// a process group.
const LEADER: &str = r#"echo $$ >"$1"; shift; exec "$@""#;

/// A private RabbitMQ node of the installed server. Dropping it kills the node and removes
/// everything that belongs to it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) amqp: u16,
    pub(super) amqps: Option<u16>,
    pub(super) management: u16,
    server: Server,
    directory: PathBuf,
    env: Vec<(String, OsString)>,
    children: Mutex<Vec<Child>>,
    _ports: [Port; 5],
    _watchdog: Watchdog,
}

/// The programs of an installed RabbitMQ.
#[derive(Clone, Debug)]
pub(super) struct Server {
    programs: PathBuf,
    epmd: PathBuf,
}

impl Server {
    /// The server of a Debian package, else the one on the path.
    ///
    /// Debian's wrappers on the path change to the user `rabbitmq` and refuse everyone except root,
    /// so the directory with RabbitMQ's own scripts comes first.
    pub(super) fn installed() -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let on_path = || env::split_paths(&path);
        let programs = std::iter::once(PathBuf::from("/usr/lib/rabbitmq/bin"))
            .chain(on_path())
            .find(|directory| directory.join("rabbitmq-server").is_file())?;
        let epmd = on_path()
            .chain(["/usr/bin".into(), "/usr/lib/erlang/bin".into()])
            .map(|directory| directory.join("epmd"))
            .find(|program| program.is_file())?;
        Some(Self { programs, epmd })
    }
}

/// Starts a private node.
pub(super) async fn start(server: Server, recipe: &Recipe) -> Result<Node, BrokerError> {
    let id = random_suffix();
    let directory = env::temp_dir().join(format!("rehop-test-{id}"));
    let watchdog = Watchdog::start(CLEANUP, [&directory])?;
    fs::create_dir(&directory)
        .map_err(BrokerError::io(format!("create {}", directory.display())))?;

    let ports = [Port::claim()?, Port::claim()?, Port::claim()?, Port::claim()?, Port::claim()?];
    let [amqp, amqps, management, distribution, epmd] = ports.each_ref().map(Port::number);
    let tls_directory = directory.join("tls");
    let listeners = format!(
        "listeners.tcp.1 = 127.0.0.1:{amqp}\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {management}\n\
         loopback_users = none\n"
    );
    let conf = listeners
        + &recipe.conf(format_args!("127.0.0.1:{amqps}"), &tls_directory.display().to_string());
    write(&directory.join("rabbitmq.conf"), conf.as_bytes())?;
    write(&directory.join("enabled_plugins"), b"[rabbitmq_management].")?;
    write(&directory.join("rabbitmq-env.conf"), b"")?;
    if let Some(tls) = &recipe.tls {
        fs::create_dir(&tls_directory)
            .map_err(BrokerError::io("create a directory for certificates"))?;
        for (file, contents) in tls.files() {
            write(&tls_directory.join(file), contents)?;
        }
    }

    let node = Node {
        name: format!("rehop-{id}@localhost"),
        amqp,
        amqps: recipe.tls.as_ref().map(|_| amqps),
        management,
        env: environment(&directory, &id, distribution, epmd, recipe),
        server,
        directory,
        children: Mutex::default(),
        _ports: ports,
        _watchdog: watchdog,
    };
    let epmd = [
        node.server.epmd.as_os_str().to_owned(),
        "-address".into(),
        "127.0.0.1".into(),
        "-port".into(),
        epmd.to_string().into(),
    ];
    node.spawn("epmd", &epmd)?;
    node.launch().await?;
    Ok(node)
}

/// Separates everything through which two nodes on one machine could interfere.
fn environment(
    directory: &Path,
    id: &str,
    distribution: u16,
    epmd: u16,
    recipe: &Recipe,
) -> Vec<(String, OsString)> {
    let within = |name: &str| directory.join(name).into_os_string();
    let only_here = "-kernel inet_dist_use_interface {127,0,0,1}";
    let mut env: Vec<(String, OsString)> = [
        ("HOME", directory.into()),
        ("LANG", "C.UTF-8".into()),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
        ("ERL_EPMD_PORT", epmd.to_string().into()),
        ("RABBITMQ_NODENAME", format!("rehop-{id}@localhost").into()),
        ("RABBITMQ_DIST_PORT", distribution.to_string().into()),
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", only_here.into()),
        ("RABBITMQ_CTL_ERL_ARGS", only_here.into()),
        ("RABBITMQ_CONF_ENV_FILE", within("rabbitmq-env.conf")),
        ("RABBITMQ_CONFIG_FILE", within("rabbitmq.conf")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", within("enabled_plugins")),
        ("RABBITMQ_MNESIA_BASE", within("data")),
        ("RABBITMQ_GENERATED_CONFIG_DIR", within("generated")),
        ("RABBITMQ_LOG_BASE", within("log")),
        ("RABBITMQ_LOGS", "-".into()),
        ("RABBITMQ_PID_FILE", within("rabbitmq.pid")),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    env.extend(recipe.env.iter().map(|(key, value)| (key.clone(), value.into())));
    env
}

impl Node {
    /// Starts the server and waits until it is ready.
    pub(super) async fn launch(&self) -> Result<(), BrokerError> {
        self.spawn("node", &[self.server.programs.join("rabbitmq-server").into_os_string()])?;
        let explain = |error: BrokerError| BrokerError::Node {
            name: self.name.clone(),
            reason: format!("{error}; from its log:\n{}", self.log()),
        };
        tokio::select! {
            served = self.served() => served.map_err(explain),
            _ = eventually(STARTUP, "the server's process has ended", async || self.is_gone()) => Err(BrokerError::Node {
                name: self.name.clone(),
                reason: format!("it ended before it was ready; from its log:\n{}", self.log()),
            }),
        }
    }

    async fn served(&self) -> Result<(), BrokerError> {
        probe::amqp(&format!("127.0.0.1:{}", self.amqp), STARTUP).await?;
        probe::http(&format!("127.0.0.1:{}", self.management), STARTUP).await
    }

    /// Stops the server cleanly.
    pub(super) async fn shut_down(&self) -> Result<(), BrokerError> {
        self.rabbitmqctl(&["shutdown"]).await?;
        // The start script may end slightly later than the server.
        self.signal("KILL")
            .await
            .or_else(|error| if self.is_gone() { Ok(()) } else { Err(error) })?;
        self.forget("node")
    }

    /// Kills the server.
    pub(super) async fn kill(&self) -> Result<(), BrokerError> {
        self.signal("KILL").await?;
        // Sending the signal does not wait for its effect.
        let gone = async || TcpStream::connect(("127.0.0.1", self.amqp)).is_err();
        eventually(COMMAND, "the killed node's port is closed", gone).await.map_err(|late| {
            BrokerError::Node { name: self.name.clone(), reason: late.to_string() }
        })?;
        self.forget("node")
    }

    /// Sends a signal to the server and everything that it started.
    pub(super) async fn signal(&self, signal: &str) -> Result<(), BrokerError> {
        let mut command = tokio::process::Command::new("sh");
        command
            .args(["-c", r#"kill -s "$1" -- "-$(cat "$2")""#, "sh", signal])
            .arg(self.directory.join("node.pid"));
        run(command, COMMAND).await.map(drop)
    }

    pub(super) async fn rabbitmqctl(&self, args: &[&str]) -> Result<String, BrokerError> {
        let mut command = tokio::process::Command::new(self.server.programs.join("rabbitmqctl"));
        command.arg("--quiet").args(args);
        for (key, _) in env::vars_os().filter(|(key, _)| is_rabbitmqs(&key.to_string_lossy())) {
            command.env_remove(key);
        }
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        run(command, COMMAND).await
    }

    /// Starts a program in a process group of its own, whose id is in `<what>.pid`.
    fn spawn(&self, what: &str, program: &[OsString]) -> Result<(), BrokerError> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.join(format!("{what}.log")))
            .map_err(BrokerError::io(format!("open the log of {what}")))?;
        let errors = log.try_clone().map_err(BrokerError::io(format!("open the log of {what}")))?;
        let mut command = Command::new("sh");
        command
            .args(["-c", LEADER, "sh"])
            .arg(self.directory.join(format!("{what}.pid")))
            .args(program);
        for (key, _) in env::vars_os().filter(|(key, _)| is_rabbitmqs(&key.to_string_lossy())) {
            command.env_remove(key);
        }
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(log).stderr(errors);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(BrokerError::io(format!("start {what}")))?;
        self.children.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        Ok(())
    }

    /// The clean-up must not kill another process that has been given the id of a server that
    /// ended.
    fn forget(&self, what: &str) -> Result<(), BrokerError> {
        fs::remove_file(self.directory.join(format!("{what}.pid")))
            .map_err(BrokerError::io("forget the stopped node"))?;
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        Ok(())
    }

    /// Whether the server's process has ended.
    fn is_gone(&self) -> bool {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.last_mut().is_none_or(|server| matches!(server.try_wait(), Ok(Some(_))))
    }

    fn log(&self) -> String {
        errors_of(&fs::read_to_string(self.directory.join("node.log")).unwrap_or_default())
    }
}

/// The machine's own settings for RabbitMQ and Erlang must not affect the private node.
fn is_rabbitmqs(variable: &str) -> bool {
    variable.starts_with("RABBITMQ_") || variable.starts_with("ERL_")
}

fn write(path: &Path, contents: &[u8]) -> Result<(), BrokerError> {
    fs::write(path, contents).map_err(BrokerError::io(format!("write {}", path.display())))
}
