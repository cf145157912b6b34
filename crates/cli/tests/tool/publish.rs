//! One message from the command line.

use std::fs;

use crate::process::{Tool, variables};
use crate::support::{Fixture, SOON, now_millis};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_published_with_its_properties() {
    let fixture = Fixture::new("tool-publish").await;
    fixture.declare().await;
    let publish = ["publish", "--queue", &fixture.queue];
    let json = [
        "--json",
        r#"{"id": 7}"#,
        "--message-id",
        "order-7",
        "--deadline",
        "1h",
        "--header",
        "tenant=a=b",
    ];
    let done = fixture.tool(&[&publish[..], &json].concat()).finished().await;
    assert_eq!((done.code(), done.out.as_str()), (0, "published order-7\n"), "{}", done.err);
    let file = std::env::temp_dir().join(format!("rehop-publish-{}", std::process::id()));
    fs::write(&file, b"\0\xff").unwrap();
    let path = file.to_str().unwrap();
    let done = fixture
        .tool(
            &[&publish[..], &["--file", path, "--content-type", "x/y", "--type", "order"]].concat(),
        )
        .finished()
        .await;
    fs::remove_file(&file).unwrap();
    assert_eq!(done.code(), 0, "{}", done.err);
    // The tool's standard input is empty here.
    assert_eq!(fixture.tool(&[&publish[..], &["--file", "-"]].concat()).finished().await.code(), 0);

    let kept = fixture.client.drain(&fixture.queue, 3, SOON).await.unwrap();
    assert_eq!(
        (kept[0].text().as_str(), kept[0].headers["tenant"].as_str()),
        (r#"{"id": 7}"#, Some("a=b"))
    );
    assert_eq!(kept[0].properties.content_type.as_deref(), Some("application/json"));
    let left = kept[0].headers["rehop-expires-at"].as_i64().unwrap() - now_millis();
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    assert_eq!(kept[1].body, b"\0\xff");
    assert_eq!(kept[1].properties.content_type.as_deref(), Some("x/y"));
    assert_eq!(kept[1].properties.kind.as_deref(), Some("order"));
    assert!(kept[2].body.is_empty());
    assert!(done.out.contains(kept[1].properties.message_id.as_deref().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_broker_can_be_named_on_the_command_line() {
    let fixture = Fixture::new("tool-url").await;
    fixture.declare().await;
    let mut environment = variables(&fixture.settings);
    environment.retain(|(name, _)| name != "REHOP_BROKER__URL");
    let publish =
        ["publish", "--queue", &fixture.queue, "--url", fixture.settings.broker.url.expose()];
    let done = Tool::start(&publish, environment).finished().await;
    assert_eq!(done.code(), 0, "{}", done.err);
    fixture.has_depth(&fixture.queue, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_published_is_an_error_that_says_what_to_do() {
    let fixture = Fixture::new("tool-publish-not").await;
    let check = async |arguments: &[&str], code, expected: &str| {
        let error = fixture.tool(&[&["publish"], arguments].concat()).finished().await.error(code);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    };
    let queue = fixture.queue.as_str();
    check(&["--queue", queue], 1, &format!("rehop topology declare --queue {queue}")).await;
    check(&["--exchange", queue], 1, "there is no exchange").await;
    check(&["--queue", queue, "--file", "/nowhere"], 1, "cannot read /nowhere").await;
    check(&["--queue", queue, "--deadline", "0s"], 1, "the deadline of the message was").await;
    check(&["--queue", queue, "--json", "{"], 2, "not valid JSON").await;
    check(&["--queue", queue, "--json", "1", "--file", "-"], 2, "cannot be used with").await;
    check(&["--queue", queue, "--header", "tenant"], 2, "NAME=VALUE").await;
    check(&["--json", "1"], 2, "required arguments").await;
}
