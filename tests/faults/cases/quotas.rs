//! The broker's limits: connections, channels, consumers and queues; and those of the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rehop::settings::{Order, WaitStrategy};
use rehop_testing::{Broker, Proxy, Publish, eventually};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::evidence::{Policy, all_broken, lasts, room_for_one, says};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::Step;
use crate::service::{Does, QueueConfig, Service};

/// The services' user, as the ground names it.
const USER: &str = "service";

/// What a service says when its looks are refused, and when they are not any more.
const REFUSED: &str = "leaves no room for looks and repairs";
const ADMITTED: &str = "there is room for looks and repairs again";

/// Sets a limit of the services' user.
async fn limit_user(broker: &Broker, key: &str, limit: usize) {
    let limits = format!("{{\"{key}\": {limit}}}");
    broker.rabbitmqctl(&["set_user_limits", USER, &limits]).await.unwrap();
}

/// Sets a limit of the virtual host; a negative one is none.
async fn limit_vhost(broker: &Broker, key: &str, limit: i64) {
    let limits = format!("{{\"{key}\": {limit}}}");
    broker.rabbitmqctl(&["set_vhost_limits", "-p", "/", &limits]).await.unwrap();
}

/// Sets a limit of the node.
async fn limit_node(broker: &Broker, key: &str, limit: &str) {
    let set = format!("application:set_env(rabbit, {key}, {limit}).");
    broker.rabbitmqctl(&["eval", &set]).await.unwrap();
}

/// How many channels the services have, by the names of their connections.
async fn channels(broker: &Broker) -> Result<BTreeMap<String, u64>, String> {
    let management = broker.management().unwrap();
    let listed = management.get("connections").await.map_err(|error| error.to_string())?;
    let of_services = listed.as_array().into_iter().flatten().filter(|it| it["user"] == USER);
    let named = of_services.filter_map(|it| {
        Some((it["user_provided_name"].as_str()?.to_owned(), it["channels"].as_u64()?))
    });
    Ok(named.collect())
}

/// The line with this text.
fn line(service: &Service, text: &str) -> String {
    let log = service.log();
    log.lines().find(|line| line.contains(text)).unwrap_or_default().to_owned()
}

/// Waits until the service has so many channels to consume and to publish, and no others.
async fn at_rest(broker: &Broker, lab: &Lab, consuming: u64, publishing: u64) -> usize {
    let of = |purpose: &str| format!("{} {purpose}", lab.config.namespace);
    eventually(SOON, "the service has its channels", async || {
        let all = channels(broker).await?;
        let has = |purpose: &str, wanted| all.get(&of(purpose)) == Some(&wanted);
        let is_at_rest =
            has("consuming", consuming) && has("publishing", publishing) && has("keeping", 0);
        if is_at_rest { Ok(true) } else { Err(format!("{all:?}")) }
    })
    .await
    .unwrap();
    (consuming + publishing) as usize
}

/// Each look of a running service is refused a channel. What is consumed and published goes on, on
/// the same connections.
pub(crate) async fn no_channel_for_looks(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = ground.lab_on("no-looks", broker.clone());
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    let load = lab.load(20);
    lab.done(50).await;
    let open = at_rest(&broker, &lab, 1, 2).await;
    let precious = [0, 1].map(|index| proxy.connection(index).unwrap());
    limit_user(&broker, "max-channels", open).await;
    says(&service, REFUSED).await;
    // The next look is refused as well.
    let accepted = proxy.accepted();
    eventually(SOON, "another look is tried", async || proxy.accepted() > accepted).await.unwrap();
    assert!(precious.iter().all(|connection| connection.is_open()), "nothing else was cut");
    let said = line(&service, REFUSED);
    for part in ["user \"service\" has as many channels", "set_user_limits", "max-channels"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(service.log().matches(REFUSED).count(), 1, "it is said once");
    limit_user(&broker, "max-channels", 100).await;
    says(&service, ADMITTED).await;
    load.stop().await;
    lab.settled(SOON * 2).await;
    assert!(precious.iter().all(|connection| connection.is_open()), "nothing else was cut");
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// Copies that a full queue refuses are tried on channels of their own. Where the broker allows
/// none, they wait, and what is under way on the connection is not lost with it.
pub(crate) async fn no_channel_for_refused_copies(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = ground.lab_on("no-trials", broker.clone());
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.send(20, Does::Fail(1)).await;
    lab.settled(SOON).await;
    let open = at_rest(&broker, &lab, 1, 2).await;
    let precious = [0, 1].map(|index| proxy.connection(index).unwrap());
    limit_user(&broker, "max-channels", open).await;
    let policy = Policy::set(&broker, &lab.parked(), room_for_one()).await;
    lab.send(30, Does::Permanent).await;
    says(&service, "no channel can be opened for copies").await;
    // Copies to other exchanges go on.
    lab.send(20, Does::Fail(1)).await;
    let said = line(&service, "no channel can be opened for copies");
    assert!(said.contains("max-channels"), "it says how to raise the limit: {said}");
    lasts(Duration::from_secs(5)).await;
    assert!(precious.iter().all(|connection| connection.is_open()), "nothing was cut");
    limit_user(&broker, "max-channels", 100).await;
    policy.clear().await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// A service that starts waits for a connection, and says for which one. Whose limit it is shows in
/// the line.
pub(crate) async fn no_connection_at_start(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let of_user = || limit_user(&broker, "max-connections", 0);
    let mut all = Account::default();
    for whose in ["user", "vhost", "node"] {
        // 3.10 knows no limit of a node.
        if whose == "node" && ground.is("3.10").await {
            continue;
        }
        let mut lab = ground.lab_on(&format!("no-start-{whose}"), broker.clone());
        lab.declare().await;
        lab.send(20, Does::Fail(1)).await;
        let (says_whose, remedy) = match whose {
            "user" => {
                of_user().await;
                ("user \"service\" has as many connections", "set_user_limits \"service\"")
            }
            "vhost" => {
                limit_vhost(&broker, "max-connections", 0).await;
                ("virtual host \"/\" has as many connections", "set_vhost_limits -p \"/\"")
            }
            _ => {
                limit_node(&broker, "connection_max", "0").await;
                ("the node has as many connections", "connection_max in rabbitmq.conf")
            }
        };
        lab.config.startup = Duration::from_secs(3);
        let mut given_up = lab.service();
        assert!(!given_up.ended(SOON).await.unwrap(), "{whose}: it waits no longer than it may");
        let log = given_up.log();
        assert!(!log.contains("password"), "{whose}: {log}");
        assert_eq!(log.matches("waiting for room").count(), 1, "{whose}: it is said once: {log}");
        lab.config.startup = SOON;
        let mut service = lab.service();
        says(&service, "waiting for room").await;
        let said = line(&service, "waiting for room");
        assert!(said.contains(says_whose) && said.contains(remedy), "{whose}: {said}");
        match whose {
            "user" => limit_user(&broker, "max-connections", 100).await,
            "vhost" => limit_vhost(&broker, "max-connections", -1).await,
            _ => limit_node(&broker, "connection_max", "infinity").await,
        }
        lab.recovers(SOON).await;
        lab.settled(SOON).await;
        service.stop().await;
        all.add(&lab.close(Allowed::nothing()).await.of(whose));
    }
    all
}

/// A running service loses its connections, and others have taken their places.
pub(crate) async fn no_connection_any_more(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = ground.lab_on("no-connection", broker.clone());
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    let load = lab.load(20);
    lab.done(50).await;
    limit_user(&broker, "max-connections", 0).await;
    let losses = all_broken(&proxy, Proxy::cut).await;
    says(&service, "not consuming; retrying").await;
    let said = line(&service, "not consuming; retrying");
    let of_limit = "user \"service\" has as many connections as it may have";
    eventually(SOON, "it says why", async || Ok::<_, String>(service.log().contains(of_limit)))
        .await
        .unwrap_or_else(|error| panic!("{error}: {said}"));
    limit_user(&broker, "max-connections", 100).await;
    lab.recovers(SOON).await;
    load.stop().await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.close(Allowed::losses(losses, 100)).await
}

/// With two connections, one to consume and one to publish, a service works. What is stray is
/// looked at while no copy is under way.
pub(crate) async fn two_connections(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = ground.lab_on("two", broker.clone());
    limit_user(&broker, "max-connections", 2).await;
    let mut service = lab.service();
    eventually(SOON, "the service consumes", async || {
        Ok::<_, String>(service.log().contains("consuming queue="))
    })
    .await
    .unwrap();
    lab.send(50, Does::Fail(1)).await;
    lab.send(10, Does::Permanent).await;
    lab.settled(SOON).await;
    says(&service, REFUSED).await;
    let client = lab.client().await;
    client.publish(Publish::to(lab.stray(), "nobody").body("nobody's")).await.unwrap();
    says(&service, "unroutable messages reached the stray queue").await;
    client.purge(&lab.stray()).await.unwrap();
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// A service that starts waits for a channel to consume with. Whose limit it is shows in the line.
pub(crate) async fn no_channel_at_start(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let mut all = Account::default();
    for whose in ["user", "node"] {
        // 3.10 knows no limit of a node.
        if whose == "node" && ground.is("3.10").await {
            continue;
        }
        let mut lab = ground.lab_on(&format!("no-channel-{whose}"), broker.clone());
        lab.declare().await;
        lab.send(20, Does::Fail(1)).await;
        let (says_whose, remedy) = match whose {
            "user" => {
                limit_user(&broker, "max-channels", 0).await;
                ("user \"service\" has as many channels as it may have", "set_user_limits")
            }
            _ => {
                limit_node(&broker, "channel_max_per_node", "0").await;
                ("the node has as many channels as it may have", "channel_max_per_node in")
            }
        };
        lab.config.startup = Duration::from_secs(3);
        let mut given_up = lab.service();
        assert!(!given_up.ended(SOON).await.unwrap(), "{whose}: it waits no longer than it may");
        lab.config.startup = SOON;
        let mut service = lab.service();
        says(&service, says_whose).await;
        let said = line(&service, says_whose);
        assert!(said.contains(remedy), "{whose}: it says how to raise the limit: {said}");
        match whose {
            "user" => limit_user(&broker, "max-channels", 100).await,
            _ => limit_node(&broker, "channel_max_per_node", "infinity").await,
        }
        lab.recovers(SOON).await;
        lab.settled(SOON).await;
        service.stop().await;
        all.add(&lab.close(Allowed::nothing()).await.of(whose));
    }
    all
}

/// A channel may have one consumer (4.0 and 4.3). The first one more ends the connection, and from
/// then on the service knows.
pub(crate) async fn one_consumer_for_each_channel(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    limit_node(&broker, "consumer_max_per_channel", "1").await;
    let lab = ground.lab_on("one-consumer", broker.clone());
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    let load = lab.load(40);
    lab.done(200).await;
    load.stop().await;
    lab.settled(SOON * 2).await;
    let is_old = ground.is("3.10").await;
    // 3.10 knows no such limit.
    let lost = usize::from(!is_old);
    assert_eq!(proxy.accepted() - 3, lost, "the connection was lost once");
    if !is_old {
        let said = line(&service, "not consuming; retrying");
        assert!(said.contains("consumer_max_per_channel in rabbitmq.conf"), "{said}");
    }
    service.stop().await;
    lab.close(Allowed::losses(lost, 100)).await
}

/// A connection may have as few channels as a service of one way to wait needs: the sizing page
/// counts them.
pub(crate) async fn five_channels_for_each_connection(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder.conf("channel_max = 5")).await;
    let lab = ground.lab_on("five-channels", broker.clone());
    lab.declare().await;
    let mut service = lab.service();
    lab.send(100, Does::Fail(1)).await;
    lab.send(10, Does::Permanent).await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// The virtual host or the cluster may have no more queues when a service starts that has to
/// declare some.
pub(crate) async fn no_queue_at_start(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let mut all = Account::default();
    for whose in ["vhost", "cluster"] {
        // 3.10 knows no limit of a cluster.
        if whose == "cluster" && ground.is("3.10").await {
            continue;
        }
        let mut lab = ground.lab_on(&format!("no-queue-{whose}"), broker.clone());
        let (says_whose, remedies) = match whose {
            "vhost" => {
                limit_vhost(&broker, "max-queues", 0).await;
                let remedies = ["set_vhost_limits -p \"/\"", "max-queues"];
                ("virtual host \"/\" has as many queues as it may have", remedies)
            }
            _ => {
                limit_node(&broker, "cluster_queue_limit", "0").await;
                let remedies = ["raise cluster_queue_limit", "rabbitmq.conf"];
                ("the cluster has as many queues as it may have", remedies)
            }
        };
        lab.config.startup = Duration::from_secs(3);
        let mut given_up = lab.service();
        assert!(!given_up.ended(SOON).await.unwrap(), "{whose}: it waits no longer than it may");
        lab.config.startup = SOON;
        let mut service = lab.service();
        says(&service, says_whose).await;
        let said = line(&service, says_whose);
        assert!(remedies.iter().all(|remedy| said.contains(remedy)), "{whose}: {said}");
        match whose {
            "vhost" => limit_vhost(&broker, "max-queues", -1).await,
            _ => limit_node(&broker, "cluster_queue_limit", "infinity").await,
        }
        eventually(SOON, "the service consumes", async || {
            Ok::<_, String>(service.log().contains("consuming queue="))
        })
        .await
        .unwrap();
        lab.send(20, Does::Fail(1)).await;
        lab.settled(SOON).await;
        service.stop().await;
        all.add(&lab.close(Allowed::nothing()).await.of(whose));
    }
    all
}

/// The broker ends connections whose handshake takes longer than this, until the network is
/// quicker.
pub(crate) async fn slow_handshake(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder.conf("handshake_timeout = 2000")).await;
    let lab = ground.lab_on("handshake", broker.clone());
    lab.declare().await;
    lab.send(20, Does::Fail(1)).await;
    let proxy = Proxy::start(&lab.admin_url).await.unwrap();
    proxy.delay(Duration::from_millis(1_200));
    let mut service = lab.service_with(&lab.behind(&proxy));
    says(&service, "raise handshake_timeout in rabbitmq.conf").await;
    let log = service.log();
    assert!(!log.contains("password"), "{log}");
    proxy.delay(Duration::ZERO);
    lab.recovers(SOON).await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// The limit of open files of a service: none beyond those that it has, and then as many as before.
/// The process has inherited the limit of this one.
fn no_more_files(service: &Service) -> impl FnOnce() + use<> {
    let pid = Pid::from_raw(service.pid() as i32);
    let few = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let before = prlimit(pid, Resource::Nofile, few).unwrap();
    move || {
        let _ = prlimit(pid, Resource::Nofile, before).unwrap();
    }
}

const NO_FILES: &str = "this process has as many files and sockets open as it may have";

/// A process that runs may open no more files and sockets for a time, and loses its connections.
pub(crate) async fn no_file_descriptor(ground: Ground) -> Account {
    let lab = ground.lab("no-files").await;
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    let load = lab.load(20);
    lab.done(50).await;
    let raise = no_more_files(&service);
    let losses = all_broken(&proxy, Proxy::cut).await;
    says(&service, NO_FILES).await;
    let said = line(&service, "files and sockets");
    assert!(said.contains("ulimit -n"), "{said}");
    raise();
    lab.recovers(SOON).await;
    load.stop().await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.close(Allowed::losses(losses, 100)).await
}

/// The same for one that starts, and has not had a connection yet.
pub(crate) async fn no_file_descriptor_at_start(ground: Ground) -> Account {
    let lab = ground.lab("no-files-at-start").await;
    lab.declare().await;
    lab.send(20, Does::Fail(1)).await;
    let proxy = Proxy::start(&lab.admin_url).await.unwrap();
    proxy.refuse().await;
    let mut service = lab.service_with(&lab.behind(&proxy));
    // It has opened all else that it needs.
    says(&service, "cannot reach the broker").await;
    let raise = no_more_files(&service);
    proxy.accept().await.unwrap();
    says(&service, NO_FILES).await;
    let said = line(&service, NO_FILES);
    assert!(said.contains("waiting for room") && said.contains("ulimit -n"), "{said}");
    raise();
    lab.recovers(SOON).await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// The prefetch of each consumer, by queue, once those of this one take so many together.
async fn consumers_once_one_has_all(
    broker: &Broker,
    queue: &str,
    all: u16,
) -> BTreeMap<String, Vec<u64>> {
    let mut consumers = BTreeMap::new();
    eventually(SOON, "the consumers of a busy queue take all that they may", async || {
        let listed = broker.management().unwrap().get("consumers").await;
        let listed = listed.map_err(|error| error.to_string())?;
        consumers = BTreeMap::<String, Vec<u64>>::new();
        for consumer in listed.as_array().into_iter().flatten() {
            let prefetch = consumer["prefetch_count"].as_u64().ok_or("no prefetch")?;
            let name = consumer["queue"]["name"].as_str().ok_or("no queue")?;
            consumers.entry(name.to_owned()).or_default().push(prefetch);
        }
        let taken = consumers.get(queue).map_or(0, |prefetches| prefetches.iter().sum());
        if taken == u64::from(all) { Ok(true) } else { Err(format!("{consumers:?}")) }
    })
    .await
    .unwrap();
    consumers
}

/// A service of several queues and delays has as many connections, channels, consumers and queues
/// as the page "Sizing" says.
pub(crate) async fn as_many_as_documented(ground: Ground) -> Account {
    let broker: Arc<Broker> = ground.own_broker(|builder| builder).await;
    let mut lab = ground.lab_on("counted", broker.clone());
    let more = ["bills", "refunds"].map(|name| lab.exchange(name));
    lab.config.queues.extend(more.map(QueueConfig::new));
    let ordered = QueueConfig::new(lab.exchange("ledger"));
    let (strategy, order) = (WaitStrategy::InProcess, Order::Queue);
    lab.config.queues.push(QueueConfig { strategy, order, ..ordered });
    let (queues, delays) = (lab.config.queues.len(), lab.work_mut().delays.len());
    let mut service = lab.service();
    let is_consuming = async || {
        let consuming = service.log().matches("consuming queue=").count();
        if consuming >= queues { Ok(true) } else { Err(format!("{consuming} queues")) }
    };
    eventually(SOON, "the service consumes all its queues", is_consuming).await.unwrap();
    for queue in 0..queues {
        lab.send_to(queue, 10, Does::Fail(2), |message| message).await;
        lab.send_to(queue, 5, Does::Permanent, |message| message).await;
    }
    lab.settled(SOON).await;
    let open = at_rest(&broker, &lab, queues as u64, 2).await;
    assert_eq!(channels(&broker).await.unwrap().len(), 3, "connections");
    let listed = broker.management().unwrap().get("queues").await.unwrap();
    let declared = listed.as_array().map_or(0, Vec::len);
    assert_eq!(declared, 2 * queues + delays + 1, "queues");
    // By now the process takes as much as it ever does.
    lab.send_to(0, 400, Does::Succeed, |message| message).await;
    lab.settled(SOON).await;
    let consumers = consumers_once_one_has_all(&broker, lab.work(), lab.config.work().prefetch);
    let consumers = consumers.await;
    assert_eq!(consumers.len(), queues, "each queue is consumed: {consumers:?}");
    for QueueConfig { name, order, .. } in &lab.config.queues {
        let (most, prefetches) = (if order.is_kept() { 1 } else { 4 }, &consumers[name]);
        assert!(prefetches.len() <= most, "at most {most} consumers of {name}: {prefetches:?}");
    }
    service.stop().await;
    let failed = lab.count(Step::Failed);
    lab.close(Allowed::nothing()).await.with_note(format!("{open} channels, {failed} failures"))
}
