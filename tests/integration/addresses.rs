//! Several addresses, and a password that changes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rehop::settings::Secret;
use rehop::{Consumer, Error, Message, Raw};
use rehop_testing::{Broker, Proxy, eventually};

use crate::support::{Fixture, SOON, not_tried};

/// A fixture whose services know the shared broker by two addresses.
async fn with_two_addresses(test: &str) -> (Fixture, Proxy, Proxy) {
    let url = Broker::shared().await.amqp_url();
    let mut fixture = Fixture::new(test).await;
    let (one, other) = (Proxy::start(url).await.unwrap(), Proxy::start(url).await.unwrap());
    fixture.settings.broker.url = rehop::Settings::default().broker.url;
    fixture.settings.broker.urls =
        [&one, &other].map(|proxy| Secret::from(proxy.url_for(url).unwrap())).into_iter().collect();
    (fixture, one, other)
}

async fn succeeds(_: Message<bytes::Bytes>) -> Result<(), rehop::Failure> {
    Ok(())
}

async fn start_error(fixture: &Fixture) -> Error {
    match fixture.service().with_consumer(Consumer::new("orders", succeeds).decode(Raw)).await {
        Ok(_) => panic!("it connected"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_is_left_and_the_next_address_is_used() {
    let (fixture, one, other) = with_two_addresses("addresses").await;
    one.refuse().await;
    let (run, seen) = fixture.serve_noting(|_| (), Ok(())).await;
    fixture.publish("by the second").await;
    seen.reaches(1).await;
    assert!(one.accepted() == 0 && other.open() >= 2, "both connections use the second address");
    one.accept().await.unwrap();
    other.cut();
    eventually(SOON, "both connections are back", async || Ok::<_, String>(other.open() >= 2))
        .await
        .unwrap();
    assert_eq!(one.accepted(), 0, "the address that worked last comes first");
    other.refuse().await;
    other.cut();
    eventually(SOON, "the connections moved", async || Ok::<_, String>(one.open() >= 2))
        .await
        .unwrap();
    fixture.publish("by the first").await;
    seen.reaches(2).await;
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_accepts_connections_and_answers_nothing_is_left() {
    let (mut fixture, one, other) = with_two_addresses("silent").await;
    fixture.settings.broker.timeout = Duration::from_secs(5);
    fixture.settings.broker.startup_timeout = SOON;
    one.pause();
    let (run, seen) = fixture.serve_noting(|_| (), Ok(())).await;
    fixture.publish("x").await;
    seen.reaches(1).await;
    eventually(SOON, "both connections use the second address", async || {
        Ok::<_, String>(other.open() >= 2)
    })
    .await
    .unwrap();
    assert!(one.accepted() > 0);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_no_address_answers_one_error_names_all_and_no_password() {
    let (mut fixture, one, other) = with_two_addresses("none").await;
    one.refuse().await;
    other.refuse().await;
    fixture.settings.broker.startup_timeout = Duration::from_secs(1);
    fixture.settings.broker.password = Some(Secret::from("hidden"));
    let error = start_error(&fixture).await;
    assert!(
        matches!(&error, Error::ConnectAny { tried } if tried.len() == 2) && error.is_transient(),
        "{error}"
    );
    let text = format!("{error} {error:?}");
    assert!(
        text.contains(&one.address())
            && text.contains(&other.address())
            && !text.contains("hidden"),
        "{text}"
    );
    assert!(text.contains("broker.urls"), "{text}");
}

/// A password file that is removed with the test.
struct PasswordFile(PathBuf);

impl PasswordFile {
    fn new(fixture: &mut Fixture) -> Self {
        let path = std::env::temp_dir().join(format!("{}.password", fixture.namespace.name()));
        fixture.settings.broker.password_file = Some(path.clone());
        Self(path)
    }

    fn write(&self, password: &str) {
        std::fs::write(&self.0, password).unwrap();
    }
}

impl Drop for PasswordFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_password_is_read_at_the_next_connect() {
    let broker = Broker::shared().await;
    if broker.management_url().is_none() {
        not_tried("a rotated password, because REHOP_TEST_MANAGEMENT_URL is not set");
        return;
    }
    let (mut fixture, proxy) = Fixture::behind_proxy("rotated").await;
    let user = format!("rotated-{}", fixture.namespace.name());
    let management = broker.management().unwrap();
    management.add_user(&user, "first").await.unwrap();
    management.set_permissions(&user, [".*"; 3]).await.unwrap();
    fixture.settings.broker.username = Some(user.clone());
    let file = PasswordFile::new(&mut fixture);
    file.write("first\n");
    let (run, seen) = fixture.serve_noting(|_| (), Ok(())).await;
    fixture.publish("with the first").await;
    seen.reaches(1).await;
    management.add_user(&user, "second").await.unwrap();
    // Until the new secret is there, an empty file and a refused login are tried again.
    file.write("");
    let before = proxy.accepted();
    proxy.cut();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(proxy.accepted(), before, "without a password nothing is connected");
    file.write("first\n");
    eventually(SOON, "a login is tried", async || Ok::<_, String>(proxy.accepted() > before))
        .await
        .unwrap();
    file.write("second\n");
    fixture.publish("with the second").await;
    seen.reaches(2).await;
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_file_that_is_missing_or_empty_is_an_error_at_once() {
    let mut fixture = Fixture::new("no-password").await;
    fixture.settings.broker.startup_timeout = Duration::from_secs(600);
    let file = PasswordFile::new(&mut fixture);
    for what in ["No such file", "it is empty"] {
        let since = Instant::now();
        let error = start_error(&fixture).await;
        assert!(since.elapsed() < SOON, "the error does not wait for the startup timeout");
        assert!(matches!(&error, Error::PasswordFile { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(what) && text.contains("broker.password_file"), "{text}");
        file.write("\n");
    }
}
