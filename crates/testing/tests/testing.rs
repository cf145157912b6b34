//! Tests of the fixtures that all other tests use, on a real broker.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::{
    io,
    net::TcpStream as StdTcpStream,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rehop_testing::{
    Broker, BrokerError, Client, ClientError, Cluster, Namespace, Proxy, Publish, eventually,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use rehop_testing::not_tried;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const SOON: Duration = Duration::from_secs(150);

fn quorum() -> serde_json::Value {
    json!({ "x-queue-type": "quorum" })
}

#[tokio::test]
async fn the_shared_broker_serves_a_first_test_in_a_runtime_of_its_own() -> Result {
    publish_and_drain("first").await
}

#[tokio::test]
async fn the_shared_broker_serves_another_test_in_another_runtime() -> Result {
    publish_and_drain("another").await
}

async fn publish_and_drain(test: &str) -> Result {
    let broker = Broker::shared().await;
    let client = broker.client().await?;
    let queue = Namespace::new(test).queue("in");
    client.declare_queue(&queue, quorum()).await?;
    let messages = (0..1200).map(|n| Publish::to_queue(&queue).body(n.to_string()));
    assert_eq!(client.publish_many(messages).await?, 1200);
    let received = client.drain(&queue, 1200, SOON).await?;
    assert!(received.iter().enumerate().all(|(n, message)| message.text() == n.to_string()));
    assert_eq!(client.get(&queue).await?, None);
    client.delete_queue(&queue).await?;
    client.close().await?;
    Ok(())
}

#[tokio::test]
async fn a_published_message_comes_back_complete() -> Result {
    let client = Broker::shared().await.client().await?;
    let namespace = Namespace::new("whole");
    let (queue, exchange) = (namespace.queue("in"), namespace.exchange("events"));
    client.declare_exchange(&exchange, "headers", json!(null)).await?;
    client
        .declare_queue(&queue, json!({ "x-queue-type": "quorum", "x-delivery-limit": 3 }))
        .await?;
    client.bind(&queue, &exchange, "", json!({ "x-match": "all", "kind": "order" })).await?;

    let exact = json!({ "$amqp": { "DecimalValue": { "scale": 2, "value": 150 } } });
    let message = Publish::to(&exchange, "order.created")
        .json(&json!({ "id": 7 }))
        .header("kind", "order")
        .header("tries", 3)
        .header("nested", json!({ "list": [true, null, 1.5] }))
        .header("price", exact.clone())
        .message_id("m-1")
        .properties(|it| it.priority = Some(4));
    client.publish(message.clone()).await?;

    let received = client.drain(&queue, 1, SOON).await?.remove(0);
    assert_eq!(
        (received.exchange.as_str(), received.routing_key.as_str()),
        (exchange.as_str(), "order.created")
    );
    assert_eq!(received.text(), r#"{"id":7}"#);
    assert_eq!(received.properties, message.properties);
    assert_eq!(received.headers["tries"], json!(3));
    assert_eq!(received.headers["nested"], json!({ "list": [true, null, 1.5] }));
    assert_eq!(received.exact_headers["price"], exact);
    assert!(!received.redelivered);

    let astray =
        client.publish(Publish::to(&exchange, "order.created").header("kind", "other")).await;
    assert!(matches!(astray, Err(ClientError::Unroutable { .. })), "{astray:?}");
    client.unbind(&queue, &exchange, "", json!({ "x-match": "all", "kind": "order" })).await?;
    let unbound = client.publish(message).await;
    assert!(matches!(unbound, Err(ClientError::Unroutable { .. })), "{unbound:?}");
    client.delete_exchange(&exchange).await?;
    client.delete_queue(&queue).await?;
    Ok(())
}

#[tokio::test]
async fn a_client_works_on_after_an_error_and_the_error_names_what_was_tried() -> Result {
    let client = Broker::shared().await.client().await?;
    let queue = Namespace::new("errors").queue("in");
    let missing = client.depth(&queue).await.map_err(|error| error.to_string());
    assert!(
        missing.as_ref().is_err_and(|error| error.contains(&queue) && error.contains("NOT_FOUND")),
        "{missing:?}"
    );
    client.declare_queue(&queue, quorum()).await?;
    let other = client
        .declare_queue(&queue, json!({ "x-queue-type": "classic" }))
        .await
        .map_err(|e| e.to_string());
    assert!(other.as_ref().is_err_and(|error| error.contains("inequivalent arg")), "{other:?}");
    client.publish(Publish::to_queue(&queue)).await?;
    client.publish(Publish::to_queue(&queue)).await?;
    eventually(SOON, "two messages are ready", async || {
        client.depth(&queue).await.map(|depth| depth == 2)
    })
    .await?;
    let few =
        client.drain(&queue, 3, Duration::from_secs(25)).await.map_err(|error| error.to_string());
    assert!(
        few.as_ref()
            .is_err_and(|error| error.contains("3 messages") && error.contains("2 messages")),
        "{few:?}"
    );
    client.publish(Publish::to_queue(&queue)).await?;
    eventually(SOON, "one message is ready", async || {
        client.depth(&queue).await.map(|depth| depth == 1)
    })
    .await?;
    assert_eq!(client.purge(&queue).await?, 1);
    client.delete_queue(&queue).await?;
    Ok(())
}

#[tokio::test]
async fn a_started_broker_restarts_pauses_dies_and_comes_back_at_the_same_address() -> Result {
    let broker = Broker::builder().conf("consumer_timeout = 654321").start().await?;
    let timeout =
        broker.rabbitmqctl(&["eval", "application:get_env(rabbit, consumer_timeout)."]).await?;
    assert_eq!(timeout, "{ok,654321}");
    assert!(broker.version().starts_with(|c: char| c.is_ascii_digit()), "{}", broker.version());

    let queue = "kept";
    let client = broker.client().await?;
    client.declare_queue(queue, quorum()).await?;
    client.publish(Publish::to_queue(queue).body("still here")).await?;

    broker.restart().await?;
    assert_eq!(depth_now(&broker, queue).await?, 1);

    broker.pause().await?;
    let silent = tokio::time::timeout(Duration::from_millis(300), broker.client()).await;
    assert!(silent.is_err(), "a paused broker answered");
    broker.resume().await?;
    assert_eq!(depth_now(&broker, queue).await?, 1);

    broker.kill().await?;
    assert!(broker.client().await.is_err());
    broker.start_again().await?;
    assert_eq!(depth_now(&broker, queue).await?, 1);

    broker.stop().await?;
    assert!(broker.client().await.is_err());
    broker.start_again().await?;
    assert_eq!(depth_now(&broker, queue).await?, 1);
    Ok(())
}

/// After the broker is ready again, a quorum queue still needs a moment to elect its leader.
async fn depth_now(broker: &Broker, queue: &str) -> Result<u32> {
    Ok(eventually(SOON, "the queue can be looked at", async || {
        broker.client().await?.depth(queue).await.map(Some)
    })
    .await?)
}

#[tokio::test]
async fn a_dropped_broker_leaves_nothing_behind() -> Result {
    let broker = Broker::builder().own().start().await?;
    let url = broker.amqp_url().to_owned();
    let address = url.split(['@', '/']).nth(3).unwrap_or_default().to_owned();
    assert!(StdTcpStream::connect(&address).is_ok(), "{address}");
    drop(broker);
    assert!(StdTcpStream::connect(&address).is_err(), "{address} still listens");
    Ok(())
}

#[tokio::test]
async fn a_broker_that_refuses_its_configuration_shows_its_log() -> Result {
    let error =
        Broker::builder().conf("no.such.key = 1").start().await.err().ok_or("it started")?;
    assert!(error.to_string().contains("no.such.key"), "{error}");
    Ok(())
}

/// The process that is killed is this test binary itself. Its environment tells it to start a
/// broker and wait.
#[tokio::test]
async fn a_killed_test_process_leaves_no_broker_behind() -> Result {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "helper_that_waits_to_be_killed", "--nocapture"])
        .env("REHOP_TESTING_WAIT_TO_BE_KILLED", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no standard output")?;
    let address = tokio::task::spawn_blocking(move || {
        io::BufRead::lines(io::BufReader::new(stdout))
            .map_while(io::Result::ok)
            .find_map(|line| line.split_once("listens at ").map(|(_, address)| address.to_owned()))
    })
    .await?
    .ok_or("the helper said no address")?;
    child.kill()?;
    child.wait()?;
    eventually(SOON, "the killed process's broker is gone", async || {
        StdTcpStream::connect(&address).is_err()
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn helper_that_waits_to_be_killed() -> Result {
    if std::env::var_os("REHOP_TESTING_WAIT_TO_BE_KILLED").is_some() {
        let broker = Broker::builder().own().start().await?;
        let address = broker.amqp_url().split(['@', '/']).nth(3).unwrap_or_default();
        io::Write::write_all(&mut io::stdout(), format!("\nlistens at {address}\n").as_bytes())?;
        std::future::pending::<()>().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_cluster_of_three_survives_faults_of_one_node() -> Result {
    let cluster = match Cluster::start(3).await {
        Err(error @ BrokerError::ClusterNeedsDocker { .. }) => {
            not_tried(&format!("a cluster: {error}"));
            return Ok(());
        }
        cluster => cluster?,
    };
    let queue = "led";
    let client = cluster.client(0).await?;
    client
        .declare_queue(queue, json!({ "x-queue-type": "quorum", "x-quorum-initial-group-size": 3 }))
        .await?;
    let led_by = cluster.leader_of(queue).await?;
    let other = (led_by + 1) % 3;

    cluster.kill(led_by).await?;
    let client = cluster.client(other).await?;
    let publish = async || client.publish(Publish::to_queue(queue).body("x")).await.map(|()| true);
    eventually(SOON, "the others go on without the killed node", publish).await?;
    let new_leader = eventually(SOON, "another node leads", async || {
        cluster.leader_of(queue).await.map(|leader| Some(leader).filter(|&leader| leader != led_by))
    })
    .await?;
    cluster.start_node(led_by).await?;
    cluster.wait_until_formed().await?;

    cluster.disconnect(new_leader).await?;
    let cut_off = cluster.client(new_leader).await?;
    let connected = cluster.client((new_leader + 1) % 3).await?;
    let publish =
        async || connected.publish(Publish::to_queue(queue).body("y")).await.map(|()| true);
    eventually(
        Duration::from_secs(120),
        "the majority goes on without the node that is cut off",
        publish,
    )
    .await?;
    let outvoted =
        tokio::time::timeout(Duration::from_millis(500), cut_off.publish(Publish::to_queue(queue)))
            .await;
    assert!(!matches!(outvoted, Ok(Ok(()))), "a node without a majority confirmed a message");
    cluster.reconnect(new_leader).await?;
    let healed = async || {
        let client = cluster.client(new_leader).await?;
        client.publish(Publish::to_queue(queue).body("z")).await.map(|()| true)
    };
    eventually(Duration::from_secs(60), "the node that was cut off publishes again", healed)
        .await?;
    assert!(matches!(cluster.kill(3).await, Err(BrokerError::NoSuchNode { index: 3, nodes: 3 })));
    Ok(())
}

/// An echo server.
async fn echo() -> Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    Ok(address)
}

async fn echoes(stream: &mut TcpStream, text: &[u8]) -> io::Result<()> {
    stream.write_all(text).await?;
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).await?;
    assert_eq!(answer, text);
    Ok(())
}

#[tokio::test]
async fn a_proxy_cuts_and_resets_one_connection_or_all() -> Result {
    let proxy = Proxy::start(&echo().await?).await?;
    let mut streams = Vec::new();
    for n in 0..4_u8 {
        let mut stream = TcpStream::connect(proxy.address()).await?;
        echoes(&mut stream, &[n; 3]).await?;
        streams.push(stream);
    }
    assert_eq!((proxy.accepted(), proxy.open(), proxy.bytes_to_broker()), (4, 4, 12));
    eventually(SOON, "all bytes back are counted", async || proxy.bytes_to_client() == 12).await?;

    let first = proxy.connection(0).ok_or("no first connection")?;
    first.cut();
    assert_eq!(streams[0].read(&mut [0; 1]).await?, 0);
    assert!(!first.is_open());
    echoes(&mut streams[1], b"untouched").await?;

    proxy.connection(1).ok_or("no second connection")?.reset();
    let reset = streams[1].read(&mut [0; 1]).await;
    assert_eq!(reset.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    echoes(&mut streams[2], b"untouched").await?;

    proxy.reset();
    let reset = streams[2].read(&mut [0; 1]).await;
    assert_eq!(reset.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    let reset = streams[3].read(&mut [0; 1]).await;
    assert_eq!(reset.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    assert_eq!(proxy.open(), 0);
    Ok(())
}

#[tokio::test]
async fn a_silent_proxy_holds_bytes_and_ends_until_it_resumes() -> Result {
    let proxy = Proxy::start(&echo().await?).await?;
    let mut stream = TcpStream::connect(proxy.address()).await?;
    echoes(&mut stream, b"before").await?;
    proxy.pause();
    stream.write_all(b"held").await?;
    let mut newcomer = TcpStream::connect(proxy.address()).await?;
    newcomer.write_all(b"too").await?;
    let mut answer = [0; 4];
    let silent = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut answer)).await;
    assert!(silent.is_err(), "{silent:?}");
    let silent = tokio::time::timeout(Duration::from_millis(50), newcomer.read(&mut answer)).await;
    assert!(silent.is_err(), "{silent:?}");
    proxy.resume();
    stream.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"held");
    newcomer.read_exact(&mut answer[..3]).await?;
    assert_eq!(&answer[..3], b"too");
    Ok(())
}

#[tokio::test]
async fn a_refusing_proxy_leaves_open_connections_alone_and_accepts_again_at_the_same_address()
-> Result {
    let proxy = Proxy::start(&echo().await?).await?;
    let mut stream = TcpStream::connect(proxy.address()).await?;
    echoes(&mut stream, b"one").await?;
    proxy.refuse().await;
    let refused = TcpStream::connect(proxy.address()).await.map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(io::ErrorKind::ConnectionRefused));
    echoes(&mut stream, b"two").await?;
    proxy.accept().await?;
    echoes(&mut TcpStream::connect(proxy.address()).await?, b"three").await?;
    Ok(())
}

#[tokio::test]
async fn a_slow_proxy_delays_and_limits_without_losing_a_byte() -> Result {
    let proxy = Proxy::start(&echo().await?).await?;
    let mut stream = TcpStream::connect(proxy.address()).await?;
    proxy.delay(Duration::from_millis(40));
    let started = Instant::now();
    echoes(&mut stream, b"there and back").await?;
    assert!(started.elapsed() >= Duration::from_millis(80), "{:?}", started.elapsed());
    proxy.delay(Duration::ZERO);
    proxy.rate(20_000);
    let started = Instant::now();
    echoes(&mut stream, &[7; 4_000]).await?;
    assert!(started.elapsed() >= Duration::from_millis(150), "{:?}", started.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_client_works_through_a_proxy_and_a_broken_one_breaks_it() -> Result {
    let broker = Broker::shared().await;
    if broker.amqp_url().starts_with("amqps:") {
        not_tried("a proxy in front of a broker behind TLS");
        return Ok(());
    }
    let proxy = Proxy::start(broker.amqp_url()).await?;
    let client = Client::connect(&proxy.url_for(broker.amqp_url())?).await?;
    let queue = Namespace::new("proxied").queue("in");
    client.declare_queue(&queue, quorum()).await?;
    client.publish(Publish::to_queue(&queue).body("through")).await?;
    assert!(proxy.bytes_to_broker() > 0 && proxy.bytes_to_client() > 0);
    proxy.cut();
    assert!(client.depth(&queue).await.is_err());
    assert_eq!(broker.client().await?.drain(&queue, 1, SOON).await?[0].text(), "through");
    broker.client().await?.delete_queue(&queue).await?;
    Ok(())
}

#[tokio::test]
async fn if_something_does_not_happen_in_time_the_error_shows_what_was_seen_last() {
    let mut looks = 0;
    let late = eventually(Duration::from_millis(30), "the tide turns", async || {
        looks += 1;
        Err::<bool, _>(format!("ebb {looks}"))
    })
    .await;
    let told = late.map_err(|late| late.to_string()).err().unwrap_or_default();
    assert!(told.contains("the tide turns") && told.contains("ebb"), "{told}");

    let hanging = eventually(Duration::from_millis(30), "an answer", async || {
        std::future::pending::<bool>().await
    })
    .await;
    assert!(hanging.is_err());
}

#[tokio::test]
async fn messages_that_are_published_at_the_same_time_each_get_their_own_answer() -> Result {
    let client = Broker::shared().await.client().await?;
    let namespace = Namespace::new("at-once");
    let (queue, nowhere) = (namespace.queue("in"), namespace.queue("nowhere"));
    client.declare_queue(&queue, quorum()).await?;
    let (to, queue, nowhere) = (&client, &queue, &nowhere);
    let published = (0..40).map(|number| async move {
        let is_routable = number % 2 == 0;
        (
            is_routable,
            to.publish(Publish::to_queue(if is_routable { queue } else { nowhere })).await,
        )
    });
    for (is_routable, result) in futures_util::future::join_all(published).await {
        match result {
            Ok(()) => assert!(is_routable),
            Err(error) => {
                assert!(!is_routable && matches!(error, ClientError::Unroutable { .. }), "{error}")
            }
        }
    }
    client.delete_queue(queue).await?;
    Ok(())
}
