//! What the page shows, as its HTML.

use std::time::Instant;

use rehop::settings::Secret;
use rehop_page::{Action, Listen, Options};
use rehop_testing::{Broker, Publish, eventually};
use serde_json::json;

use super::http::{Served, encode};
use super::stock::{self, HOSTILE};
use crate::support::{Fixture, SOON, not_tried};

/// Addresses in a page that begin like this.
fn links(body: &str, start: &str) -> Vec<String> {
    let pattern = format!("href=\"{start}");
    let found =
        body.match_indices(&pattern).map(|(at, _)| body[at + 6..].split('"').next().unwrap());
    found.map(|link| link.replace("&#38;", "&").replace("&amp;", "&")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_found_by_its_group_and_shown_with_masked_values() {
    let fixture = Fixture::new("ui-look").await;
    fixture.declare().await;
    stock::park(&fixture, 3).await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let front = page.get("/", &cookie).await;
    assert!(front.body.contains("<span id=\"parked-0\">3</span>"), "{}", front.body);
    let place = format!("/messages?queue={}", encode(&fixture.queue));
    let list = page.get(&place, &cookie).await;
    assert!(
        list.body.contains("all 3 messages</span>: <span id=\"matched\">3</span> match"),
        "{}",
        list.body
    );
    let group = links(&list.body, "/messages?queue")
        .into_iter()
        .find(|link| link.contains("class=no"))
        .unwrap();
    let grouped = page.get(&group, &cookie).await;
    assert!(grouped.body.contains("<span id=\"matched\">3</span> match"), "{}", grouped.body);
    let message = links(&grouped.body, "/message?").remove(0);
    let shown = page.get(&message, &cookie).await;
    assert_eq!(shown.status, 200);
    for part in [
        "<svg",
        "attempt 1 failed",
        "no_customer",
        "What a replay would do",
        "<b>name</b>",
        "2 elements",
    ] {
        assert!(shown.body.contains(part), "{part}: {}", shown.body);
    }
    assert!(!shown.body.contains("hunter") && shown.body.contains("***"), "{}", shown.body);
    assert_eq!(page.get(&format!("{message}&reveal=1"), &cookie).await.status, 403);
    assert_eq!(
        page.get(&format!("{place}&where=body.id%20%3D%3D%202"), &cookie)
            .await
            .body
            .matches("/message?")
            .count(),
        1
    );
    for wrong in [
        "/messages?queue=other",
        "/messages",
        &format!("{place}&limit=many"),
        "/message?place=stray",
    ] {
        assert!([400, 404].contains(&page.get(wrong, &cookie).await.status), "{wrong}");
    }
    fixture.has_depth(&fixture.parked(), 3).await;
    let revealing = Served::start(&fixture, &[Action::Reveal]).await;
    let cookie = revealing.enter().await;
    assert!(!revealing.get(&message, &cookie).await.body.contains("hunter"));
    assert!(
        revealing
            .get(&format!("{message}&reveal=1"), &cookie)
            .await
            .body
            .contains("Bearer hunter3")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_groups_link_selects_exactly_its_messages() {
    let fixture = Fixture::new("ui-exact").await;
    fixture.declare().await;
    let failure = |class: &str, text: &str| {
        json!([{"at": 1_700_000_000_000i64, "attempt": 1, "class": class, "message": text}])
            .to_string()
    };
    let park = format!("{}.park", fixture.namespace.name());
    let message =
        || Publish::to(&park, &fixture.queue).body("x").header("rehop-reason", "exhausted");
    let failed = |class: &str, text: &str| message().header("rehop-errors", failure(class, text));
    // Each group's reason, class or error is a part of another group's.
    let groups: [(u32, Publish); 5] = [
        (1, message()),
        (2, failed("io", "")),
        (3, failed("io", "order 7 failed")),
        (4, failed("io", "order 7 failed again")),
        (5, failed("", "order 7 failed")),
    ];
    let all = groups.iter().flat_map(|(count, message)| (0..*count).map(|_| message.clone()));
    fixture.client.publish_many(all.collect::<Vec<_>>()).await.unwrap();
    fixture.has_depth(&fixture.parked(), 15).await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    for limit in ["", "&limit=15"] {
        let list = page
            .get(&format!("/messages?queue={}{limit}", encode(&fixture.queue)), &cookie)
            .await
            .body;
        let links: Vec<_> = links(&list, "/messages?queue")
            .into_iter()
            .filter(|link| link.contains("reason="))
            .collect();
        let mut seen = Vec::new();
        for link in &links {
            let grouped = page.get(link, &cookie).await.body;
            assert_eq!(
                grouped.matches("<th scope=\"row\"><a href=\"/messages?").count(),
                1,
                "{link}: {grouped}"
            );
            let count =
                grouped.split_once("<span id=\"matched\">").unwrap().1.split('<').next().unwrap();
            seen.push(count.parse::<u32>().unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3, 4, 5], "{links:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_chain_with_very_many_messages_the_page_shows_the_first_and_says_how_many_there_are() {
    let fixture = Fixture::new("ui-chain").await;
    fixture.declare().await;
    let park = format!("{}.park", fixture.namespace.name());
    let message = |n: u32| {
        Publish::to(park.as_str(), &fixture.queue)
            .header("rehop-chain-id", "forged")
            .body(format!("m-{n}"))
    };
    fixture.client.publish_many((0..150).map(message)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 150).await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let shown =
        page.get(&format!("/message?queue={}&chain=forged", encode(&fixture.queue)), &cookie).await;
    assert_eq!(shown.status, 200, "{}", shown.body);
    assert_eq!(shown.body.matches("<article").count(), 100);
    for part in [
        "This chain has 150 messages here; this is number 100.",
        "50 more messages of this chain are not shown",
    ] {
        assert!(shown.body.contains(part), "{part}");
    }
    let list = links(&shown.body, "/messages?queue")
        .into_iter()
        .find(|link| link.contains("chain=forged"))
        .unwrap();
    assert!(
        page.get(&list, &cookie).await.body.contains("<span id=\"matched\">150</span> match"),
        "{list}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_message_is_markup() {
    let fixture = Fixture::new("ui-hostile").await;
    fixture.declare().await;
    stock::park_hostile(&fixture).await;
    stock::park_bytes(&fixture, vec![0, 159, 146, 150], "binary").await;
    stock::park_bytes(&fixture, "x".repeat(1 << 20).into_bytes(), "large").await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let list = page.get(&format!("/messages?queue={}", encode(&fixture.queue)), &cookie).await;
    let messages = links(&list.body, "/message?");
    assert_eq!(messages.len(), 3, "{}", list.body);
    for link in [&list.body].into_iter().cloned().chain({
        let mut bodies = Vec::new();
        for message in &messages {
            bodies.push(page.get(message, &cookie).await.body);
        }
        bodies
    }) {
        for markup in ["<script>", "<img", "<b>class", "x<i>y", "\u{202e}", "\u{1b}"] {
            assert!(!link.contains(markup), "{markup}");
        }
    }
    let shown = page.get(&messages[0], &cookie).await.body;
    assert!(shown.contains("document.title") && shown.contains("{{7*7}}"), "{HOSTILE}: {shown}");
    assert!(page.get(&messages[1], &cookie).await.body.contains("009f9296"));
    let large = page.get(&messages[2], &cookie).await.body;
    assert!(
        large.len() < 100_000 && large.contains("983,040 more bytes are not shown"),
        "{}",
        large.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_links_to_its_trace() {
    let fixture = Fixture::new("ui-trace").await;
    fixture.declare().await;
    let park = format!("{}.park", fixture.namespace.name());
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (id, parent) in [
        ("good", format!("00-{trace}-00f067aa0ba902b7-01")),
        ("bad", "00-\"onclick=\"-1-01".to_owned()),
    ] {
        let message = Publish::to(park.as_str(), &fixture.queue).body("x").message_id(id);
        fixture
            .client
            .publish(message.header("traceparent", parent).header("rehop-chain-id", id))
            .await
            .unwrap();
    }
    let mut options = Options::default();
    options.listen = Listen::Tcp("127.0.0.1:0".to_owned());
    options.trace_url = Some("http://jaeger:16686/trace/{trace_id}".to_owned());
    let page = Served::with(&fixture, options).await;
    let cookie = page.enter().await;
    let show = async |id: &str| {
        page.get(&format!("/message?queue={}&chain={id}", encode(&fixture.queue)), &cookie)
            .await
            .body
    };
    assert!(show("good").await.contains(&format!("href=\"http://jaeger:16686/trace/{trace}\"")));
    assert!(!show("bad").await.contains("jaeger"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_told_in_words_and_found_again() {
    let (fixture, proxy) = Fixture::behind_proxy("ui-outage").await;
    fixture.declare().await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    assert_eq!(page.get("/", &cookie).await.status, 200);
    proxy.refuse().await;
    proxy.cut();
    let is_told = async || {
        let front = page.get("/", &cookie).await;
        if front.status == 502 { Ok(true) } else { Err(format!("{front:?}")) }
    };
    eventually(SOON, "the page says that the broker is away", is_told).await.unwrap();
    proxy.accept().await.unwrap();
    assert_eq!(
        page.get(&format!("/messages?queue={}", encode(&fixture.queue)), &cookie).await.status,
        200
    );
    let is_back = async || Ok::<_, String>(page.get("/", &cookie).await.status == 200);
    eventually(SOON, "the page shows the queues again", is_back).await.unwrap();
}

/// `REHOP_TEST_PAGE_DEPTH=100000` tries it with so many.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_queue_is_read_to_the_end_only_when_asked() {
    let depth =
        std::env::var("REHOP_TEST_PAGE_DEPTH").map_or(2_500, |depth| depth.parse::<u32>().unwrap());
    let shown = format!("{},{:03}", depth / 1_000, depth % 1_000);
    let fixture = Fixture::new("ui-long").await;
    fixture.declare().await;
    let parked = fixture.parked();
    let message = |number| {
        Publish::to_queue(&parked).body("x".repeat(1_024)).message_id(format!("m-{number}"))
    };
    for first in (0..depth).step_by(10_000) {
        fixture.client.publish_many((first..depth.min(first + 10_000)).map(message)).await.unwrap();
    }
    fixture.has_depth(&parked, depth).await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let place = format!("/messages?queue={}", encode(&fixture.queue));
    let begun = Instant::now();
    let first = page.get(&place, &cookie).await;
    eprintln!("the first page of {shown} messages took {:?}", begun.elapsed());
    assert!(first.body.contains(&format!("first 1,000 of {shown}")), "{}", first.body);
    assert!(first.body.contains("Read them all"), "{}", first.body);
    let begun = Instant::now();
    let reading = page.get(&format!("{place}&all=1"), &cookie).await;
    eprintln!("the first page of all took {:?}", begun.elapsed());
    let is_partial = reading.body.contains("Still reading. Looked at")
        && reading.body.contains(&format!(" of {shown}"));
    assert!(is_partial || reading.body.contains(&format!("all {shown}")), "{}", reading.body);
    // The page is told when there is more to show, by as many requests as it takes.
    let live = format!("/messages/live?{}&all=1", place.split_once('?').unwrap().1);
    eventually(SOON, "the queue is read", async || {
        let told = page.get(&live, &cookie).await.body;
        if told.contains("event: reload") { Ok(true) } else { Err(told) }
    })
    .await
    .unwrap();
    eprintln!("all were read after {:?}", begun.elapsed());
    let all = page.get(&format!("{place}&all=1"), &cookie).await;
    let says = format!("all {shown} messages</span>: <span id=\"matched\">{shown}</span> match");
    assert!(all.body.contains(&says), "{}", all.body);
    // The last message is beyond the first thousand.
    let link = format!("/message?queue={}&chain=m%2D{}", encode(&fixture.queue), depth - 1);
    let missing = page.get(&link, &cookie).await;
    assert!(missing.status == 404 && missing.body.contains("Continue"), "{missing:?}");
    assert_eq!(page.get(&format!("{link}&all=1"), &cookie).await.status, 200);
    fixture.has_depth(&parked, depth).await;
}

/// The text of the element with this id.
fn cell(body: &str, id: &str) -> String {
    let start = format!("id=\"{id}\">");
    let (_, rest) = body.split_once(&start).unwrap_or_else(|| panic!("no element {id}: {body}"));
    rest.split('<').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_come_from_the_management_address_and_the_rest_by_amqp_alone() {
    let Some(url) = Broker::shared().await.management_url() else {
        return not_tried("rates, because REHOP_TEST_MANAGEMENT_URL is not set");
    };
    let mut fixture = Fixture::new("ui-rates").await;
    let refusing = fixture.serve_always(Err(rehop::Failure::permanent("no"))).await;
    let without = Served::start(&fixture, &[]).await;
    let front = without.get("/", &without.enter().await).await.body;
    assert!(front.contains("--management") && !front.contains("By the management API"), "{front}");
    fixture.settings.broker.management_url = Some(Secret::from(url));
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    // The broker counts between two of its samples, so messages have to come for longer than that.
    let counted = async || {
        fixture.publish("order").await;
        let front = page.get("/", &cookie).await.body;
        let seen = ["arrive-0", "settle-0", "park-0", "held-0", "return-0", "enter-0", "stuck-0"]
            .map(|id| cell(&front, id));
        let [arrive, settle, park, held, rest @ ..] = &seen;
        let are_above_zero = [arrive, settle, park]
            .iter()
            .all(|text| text.parse::<f64>().is_ok_and(|rate| rate > 0.0));
        let are_known = rest.iter().chain([held]).all(|text| text.parse::<f64>().is_ok());
        if are_above_zero && are_known { Ok(true) } else { Err(format!("{seen:?}")) }
    };
    eventually(SOON, "rates are shown", counted).await.unwrap();
    let front = page.get("/", &cookie).await.body;
    assert!(
        front.contains("By the management API") && front.contains("rehop.wait.lateness"),
        "{front}"
    );
    assert_eq!(cell(&front, "management"), "");
    refusing.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_management_address_that_does_not_answer_is_told_and_leaves_the_rest_as_it_is() {
    let mut fixture = Fixture::new("ui-unmanaged").await;
    fixture.declare().await;
    stock::park_bytes(&fixture, b"x".to_vec(), "one").await;
    fixture.has_depth(&fixture.parked(), 1).await;
    fixture.settings.broker.management_url =
        Some(Secret::from("http://somebody:hunter2@127.0.0.1:1"));
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let is_told = async || {
        let front = page.get("/", &cookie).await;
        assert_eq!((front.status, cell(&front.body, "parked-0").as_str()), (200, "1"));
        assert!(!front.body.contains("hunter2"));
        let told = cell(&front.body, "management");
        if told.starts_with("Not seen: statistics: the management API at 127.0.0.1:1") {
            Ok(true)
        } else {
            Err(told)
        }
    };
    eventually(SOON, "the page says that the management API is away", is_told).await.unwrap();
    assert_eq!(cell(&page.get("/", &cookie).await.body, "arrive-0"), "–");
}

/// Such a broker leaves the counts of its queues out of its answers.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_broker_does_not_count_is_shown_as_unknown_and_parked_messages_as_they_are() {
    let builder = Broker::builder().conf("management_agent.disable_metrics_collector = true");
    let broker = builder.start().await.unwrap();
    let mut fixture = Fixture::at("ui-uncounted", broker.amqp_url()).await;
    fixture.settings.broker.management_url = broker.management_url().map(Secret::from);
    fixture.declare().await;
    stock::park(&fixture, 1).await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    // Before the first answer everything is unknown.
    let answered = async || {
        let front = page.get("/", &cookie).await.body;
        let unseen = cell(&front, "management");
        if unseen.is_empty() { Ok(Some(front)) } else { Err(unseen) }
    };
    let front = eventually(SOON, "the management API has answered", answered).await.unwrap();
    for column in ["arrive", "settle", "return", "park", "held", "enter", "stuck"] {
        assert_eq!(cell(&front, &format!("{column}-0")), "–", "{column}: {front}");
    }
    // AMQP counts these.
    for (id, count) in [("parked-0", "1"), ("ready-0", "0"), ("waiting-0", "0"), ("stray", "0")] {
        assert_eq!(cell(&front, id), count, "{id}: {front}");
    }
    let list = page.get(&format!("/messages?queue={}", encode(&fixture.queue)), &cookie).await.body;
    let counted = "all 1 messages</span>: <span id=\"matched\">1</span> match";
    assert!(list.contains(counted), "{list}");
    let shown = page.get(&links(&list, "/message?").remove(0), &cookie).await;
    assert!(shown.status == 200 && shown.body.contains("no_customer"), "{shown:?}");
    fixture.has_depth(&fixture.parked(), 1).await;
}

/// Waits in the broker have an end that AMQP alone tells.
#[tokio::test(flavor = "multi_thread")]
async fn the_front_page_says_by_when_what_waits_has_left() {
    let mut fixture = Fixture::new("ui-until").await;
    fixture.settings.retry.delays = crate::support::millis([3_600_000]);
    let failing = fixture.serve_always(Err(rehop::Failure::transient("not yet"))).await;
    fixture.publish("order").await;
    fixture.has_depth(&format!("{}.wait.3600000", fixture.namespace.name()), 1).await;
    let page = Served::start(&fixture, &[]).await;
    let front = page.get("/", &page.enter().await).await.body;
    assert_eq!(cell(&front, "waiting-0"), "1");
    assert!(cell(&front, "until-0").ends_with(" UTC"), "{front}");
    failing.stop().await;
}

/// All leaders are silent at once, as on a frozen node. Each queue would be asked for seconds.
#[tokio::test(flavor = "multi_thread")]
async fn the_front_page_says_that_leaders_do_not_answer_and_comes_in_time() {
    let broker = Broker::shared().await;
    if !broker.has_rabbitmqctl() {
        return not_tried("queues whose leaders are suspended, because rabbitmqctl cannot be run");
    }
    let fixture = Fixture::new("ui-mute").await;
    fixture.declare().await;
    stock::park(&fixture, 3).await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let tell = async |what: &str| {
        let names = [&fixture.queue, &fixture.parked(), &fixture.stray()]
            .map(|queue| format!("'%2F_{queue}'"));
        let told = format!("[sys:{what}(whereis(Name)) || Name <- [{}]].", names.join(","));
        broker.rabbitmqctl(&["eval", &told]).await.unwrap();
    };
    // The time of an answer tells such a leader, so a busy machine may deceive a look now and then.
    // Without the check, each is deceived.
    for tries in 1.. {
        tell("suspend").await;
        let front = page.get("/", &cookie).await.body;
        tell("resume").await;
        let silent = front.matches("its leader does not answer").count();
        // A busy machine may make another leader look silent, too.
        if front.contains("<span id=\"parked-0\">cannot be read</span>") && silent >= 3 {
            break;
        }
        assert!(tries < 5, "{front}");
    }
    let works_again = async || {
        let front = page.get("/", &cookie).await.body;
        Ok::<_, String>(front.contains("<span id=\"parked-0\">3</span>"))
    };
    eventually(SOON, "the page shows the depth again", works_again).await.unwrap();
}
