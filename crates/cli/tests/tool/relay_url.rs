//! What a relay makes of the URL of its endpoint: whom it connects to, and what it says of it.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use rehop_testing::{Port, eventually};

use super::endpoint::{Arrived, Endpoint, class, status, through_nowhere};
use super::folder::Folder;
use super::hostile::{Hostile, OK};
use super::monitoring::get;
use super::process::{Tool, variables};
use super::relay_answers::{NO_CONNECTION, is_on_the_page};
use super::relay_http2;
use crate::support::{Fixture, Log, SOON, millis, not_tried};

/// Everything that a relay with this URL outputs while a message fails with the class `failure`. The
/// relay trusts `authority`, if there is one.
async fn said_while_failing(url: &str, failure: &str, authority: Option<String>) -> String {
    let mut fixture = Fixture::new("secret").await;
    fixture.settings.retry.delays = millis([]);
    let to = url.replace("://", "://hunter1:hunter2@") + "hunter3?hunter4";
    let collector = Endpoint::start(|_| async { status(200) }).await;
    let mut environment = variables(&fixture.settings);
    environment.push(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), collector.url.clone()));
    let folder = Folder::of(&fixture);
    if let Some(authority) = authority {
        let file = folder.0.join("authority.pem");
        fs::write(&file, authority).unwrap();
        environment.push(("SSL_CERT_FILE".to_owned(), file.display().to_string()));
    }
    let port = Port::claim().unwrap();
    let address = port.address().to_string();
    let arguments = [
        &["relay", "--queue", &fixture.queue, "--to", &to, "-vv", "--listen", &address][..],
        &["--timeout", "2s"],
    ];
    let relay = Tool::start(&arguments.concat(), environment);
    relay.consumes().await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(class(&parked), failure);
    let exported = async || match &collector.arrived()[..] {
        all if all.iter().any(|it| is_of_an_attempt(it, failure)) => Ok(true),
        all => Err(format!("{:?}", all.iter().map(|it| &it.path).collect::<Vec<_>>())),
    };
    eventually(SOON, "the attempt's span is exported", exported).await.unwrap();
    let (_, metrics) = get(&address, "/metrics").await.unwrap();
    let (_, readiness) = get(&address, "/readyz").await.unwrap();
    let stopped = relay.stop().await;
    let mut said = format!("{}{}{:?}", stopped.out, stopped.err, parked.headers);
    assert!(said.contains(&format!(" to {url}***")), "{said}");
    said += &metrics;
    said += &readiness;
    for exported in collector.arrived() {
        said += &String::from_utf8_lossy(&exported.body);
    }
    said
}

/// Whether an exporter has sent the span of a failed attempt, whose text OTLP carries as it is.
fn is_of_an_attempt(sent: &Arrived, failure: &str) -> bool {
    let body = String::from_utf8_lossy(&sent.body);
    sent.path.ends_with("/v1/traces") && body.contains(failure)
}

/// Slack and Telegram keep tokens in the path.
#[tokio::test(flavor = "multi_thread")]
async fn of_the_url_only_scheme_host_and_port_are_ever_said() {
    let closing = Hostile::start(|mut connection| async move {
        connection.asked().await;
    })
    .await;
    let silent = Hostile::start(|mut connection| async move {
        connection.reads_all().await;
    })
    .await;
    let unreadable = Hostile::answering("SSH-2.0-OpenSSH_9.2\r\n").await;
    let (resetting, authority) = relay_http2::resetting().await;
    let without_tls = unreadable.url.replace("http://", "https://");
    for (url, failure, authority) in [
        (closing.url.as_str(), "http_connection", None),
        (&silent.url, "http_timeout", None),
        (&unreadable.url, "http_unreadable", None),
        (&without_tls, "http_connect", Some(authority.clone())),
        ("http://nowhere.invalid/", "http_connect", None),
        (&resetting, "http_connection", Some(authority)),
    ] {
        let said = said_while_failing(url, failure, authority).await;
        assert!(!said.contains("hunter"), "{said}");
    }
}

/// `localhost` may have several addresses. A relay connects to its endpoint directly.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_resolved_and_proxies_of_the_environment_are_not_used() {
    let fixture = Fixture::new("names").await;
    let endpoint = Hostile::answering(OK).await;
    let to = endpoint.url.replace("127.0.0.1", "localhost");
    let mut environment = variables(&fixture.settings);
    environment.extend(through_nowhere());
    let arguments = ["relay", "--queue", &fixture.queue, "--to", &to];
    let relay = Tool::start(&arguments, environment);
    relay.consumes().await;
    fixture.publish("").await;
    endpoint.is_asked(1).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_may_have_an_ipv6_address() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return crate::support::not_tried("an endpoint at ::1, because this machine has no IPv6");
    }
    let fixture = Fixture::new("ipv6").await;
    let endpoint =
        Hostile::start_at(std::net::Ipv6Addr::LOCALHOST.into(), |mut connection| async move {
            while connection.asked().await.is_some() {
                connection.say(OK).await;
            }
        })
        .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.publish("").await;
    endpoint.is_asked(1).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_resolve_is_a_failed_connection() {
    let mut fixture = Fixture::new("dns").await;
    fixture.settings.retry.delays = millis([]);
    let relay = fixture.relay("http://nowhere.invalid/", &[]).await;
    fixture.publish("").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(class(&parked), "http_connect");
    is_on_the_page(NO_CONNECTION, "tried again", "http_connect");
    relay.stop().await;
}

/// As when a service moves to another machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_address_counts_from_the_next_connection_on() {
    // The relay gets names of its own.
    const UNSHARE: [&str; 3] = ["unshare", "--map-root-user", "--mount"];
    let mounting = Command::new(UNSHARE[0])
        .args(&UNSHARE[1..])
        .args(["mount", "--bind", "/etc/hosts", "/etc/hosts"])
        .status();
    if !mounting.is_ok_and(|status| status.success()) {
        return not_tried("a changed address, because there may be no further mount namespace");
    }
    let fixture = Fixture::new("moves").await;
    let reached = Log::default();
    let log = reached.clone();
    let endpoint = Hostile::start_at(Ipv4Addr::UNSPECIFIED.into(), move |mut connection| {
        let log = log.clone();
        async move {
            if connection.asked().await.is_some() {
                log.push(connection.address().to_string());
                connection.say("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await;
            }
        }
    })
    .await;
    let name = format!("{}.invalid", fixture.namespace.name());
    let to = endpoint.url.replace("0.0.0.0", &name);
    let folder = Folder::of(&fixture);
    let hosts = folder.0.join("hosts");
    let moves_to = |address: &str| {
        fs::write(&hosts, format!("127.0.0.1 localhost\n{address} {name}\n")).unwrap();
    };
    moves_to("127.0.0.1");
    let arguments = ["relay", "--queue", &fixture.queue, "--to", &to];
    // In a mount namespace of its own, the relay sees this file as /etc/hosts.
    let mount = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
    let with_hosts = [&UNSHARE[..], &["sh", "-c", &mount, "sh"]].concat();
    let relay = Tool::start_by(&with_hosts, &arguments, variables(&fixture.settings));
    relay.consumes().await;
    fixture.publish("").await;
    reached.reaches(1).await;
    moves_to("127.0.0.2");
    fixture.publish("").await;
    assert_eq!(reached.reaches(2).await, ["127.0.0.1", "127.0.0.2"]);
    relay.stop().await;
}
