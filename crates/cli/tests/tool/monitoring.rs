//! `relay --listen`: probes and metrics.

use std::io::Write;
use std::net::TcpListener;

use bytes::Bytes;
use rehop::{Consumer, Message, Raw};
use rehop_testing::{Port, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::endpoint::{Endpoint, status};
use super::process::Tool;
use crate::support::{Fixture, Running, SOON};

pub(crate) async fn get(address: &str, path: &str) -> Result<(u16, String), String> {
    request(address, "GET", path).await.map_err(|error| error.to_string())
}

/// Status and body, without an HTTP client, which would need a crypto provider.
async fn request(address: &str, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())
        .await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0),
        body.to_owned(),
    ))
}

async fn answers(address: &str, path: &str, status: u16, part: &str) {
    let look = async || match get(address, path).await {
        Ok((seen, body)) if seen == status && body.contains(part) => Ok(true),
        other => Err(format!("{other:?}")),
    };
    eventually(SOON, &format!("{path} answers {status} with {part:?}"), look).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_metrics_follow_the_relay_through_an_outage() {
    let (fixture, proxy) = Fixture::behind_proxy("listen").await;
    let endpoint = Endpoint::start(|_| async { status(204) }).await;
    let port = Port::claim().unwrap();
    let address = port.address().to_string();
    proxy.refuse().await;
    let tool = fixture.tool(&[
        "relay",
        "--queue",
        &fixture.queue,
        "--to",
        &endpoint.url,
        "--listen",
        &address,
    ]);
    answers(&address, "/livez", 200, "live").await;
    answers(&address, "/readyz", 503, "the connection that publishes is not open").await;
    proxy.accept().await.unwrap();
    answers(&address, "/readyz", 200, "ready").await;
    fixture.publish("x").await;
    let queue = &fixture.queue;
    let settled = format!(
        "rehop_settled_total{{messaging_destination_template=\"{queue}\",rehop_outcome=\"ack\"}} 1\n"
    );
    answers(&address, "/metrics", 200, &settled).await;
    let consuming =
        |is: u8| format!("rehop_consuming{{messaging_destination_template=\"{queue}\"}} {is}\n");
    answers(&address, "/metrics", 200, &consuming(1)).await;
    for name in [
        "messaging_process_duration_seconds_bucket",
        "rehop_in_flight",
        "service_name=\"rehop relay\"",
    ] {
        answers(&address, "/metrics", 200, name).await;
    }
    proxy.refuse().await;
    proxy.cut();
    answers(&address, "/readyz", 503, &format!("queue {queue:?} has not been consumed since"))
        .await;
    answers(&address, "/metrics", 200, &consuming(0)).await;
    answers(&address, "/livez", 200, "live").await;
    proxy.accept().await.unwrap();
    answers(&address, "/readyz", 200, "ready").await;
    tool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_an_error_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let relay = ["relay", "--queue", "q", "--to", "http://127.0.0.1:1/", "--listen"];
    for (address, says) in
        [(address.as_str(), "another process has this port"), ("nonsense", "a host and a port")]
    {
        let url = ("REHOP_BROKER__URL", "amqp://127.0.0.1:1/%2f");
        let error =
            Tool::start(&[&relay[..], &[address]].concat(), [url]).finished().await.error(1);
        assert!(
            error.contains(&format!("cannot listen on {address}")) && error.contains(says),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_embeds_rehop_has_the_same_probes() {
    let fixture = Fixture::new("embedded").await;
    let monitoring = rehop::monitoring::listen("127.0.0.1:0").await.unwrap();
    let address = monitoring.address().to_string();
    let service = fixture.service().with_consumer(
        Consumer::new(fixture.queue.clone(), |_: Message<Bytes>| async {
            Ok::<_, rehop::Failure>(())
        })
        .decode(Raw),
    );
    monitoring.watch(service.status());
    let run = Running::start(service);
    answers(&address, "/readyz", 200, "ready").await;
    let refused =
        async || request(&address, "POST", "/readyz").await.map(|(status, _)| status == 405);
    eventually(SOON, "a POST is refused", refused).await.unwrap();
    answers(&address, "/", 404, "/livez, /readyz and /metrics").await;
    // A client that sends nothing holds up no other.
    let silent = TcpStream::connect(&address).await.unwrap();
    answers(&address, "/livez", 200, "live").await;
    drop(silent);
    run.stop().await;
    answers(&address, "/readyz", 503, &fixture.queue).await;
    drop(monitoring);
    let gone = async || Ok::<_, String>(TcpStream::connect(&address).await.is_err());
    eventually(SOON, "the server stops", gone).await.unwrap();
}

/// The server's clock is paused, so it closes no silent connection. An answer that needed that would
/// never come.
#[tokio::test]
async fn connections_that_send_nothing_keep_no_probe_from_its_answer_and_are_closed() {
    let monitoring = rehop::monitoring::listen("127.0.0.1:0").await.unwrap();
    let address = monitoring.address();
    tokio::time::pause();
    // While a blocking task runs, tokio does not advance a paused clock.
    let probed = tokio::task::spawn_blocking(move || {
        let connect = || std::net::TcpStream::connect(address).unwrap();
        let mut silent: Vec<_> = (0..300).map(|_| connect()).collect();
        let mut probe = connect();
        probe.set_read_timeout(Some(SOON)).unwrap();
        write!(probe, "GET /livez HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
        silent.extend((0..300).map(|_| connect()));
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut probe, &mut answer).expect("the probe is answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        silent
    });
    let silent = probed.await.unwrap();
    tokio::time::resume();
    for silent in silent {
        silent.set_nonblocking(true).unwrap();
        let mut silent = TcpStream::from_std(silent).unwrap();
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(SOON, silent.read_to_end(&mut answer)).await;
        closed.expect("a connection that sends nothing is closed").ok();
        assert!(
            !String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 200"),
            "it was asked nothing"
        );
    }
}
