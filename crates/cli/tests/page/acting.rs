//! What the page does: replay and discard, and what it may not do.

use std::sync::atomic::Ordering;

use rehop_page::Action;
use rehop_testing::{Broker, Publish, eventually};
use serde_json::json;

use super::http::{Response, Served, encode};
use super::stock;
use crate::support::{Fixture, SOON, not_tried};

async fn ends(page: &Served, cookie: &str, run: &str) -> Response {
    let what = format!("{run} ends");
    let over = async || {
        let seen = page.get(run, cookie).await;
        if seen.body.contains("Look at what is there now") { Ok(true) } else { Err(seen.body) }
    };
    eventually(SOON, &what, over).await.unwrap();
    page.get(run, cookie).await
}

/// A plan, when all messages have been read for it.
async fn plan(page: &Served, cookie: &str, path: &str) -> Response {
    let planned = async || {
        let plan = page.get(path, cookie).await;
        assert_eq!(plan.status, 200, "{}", plan.body);
        if plan.body.contains("Still reading") { Err(plan.body) } else { Ok(true) }
    };
    eventually(SOON, "the plan is there", planned).await.unwrap();
    page.get(path, cookie).await
}

/// Sends a plan's form, and returns the address of what it started.
async fn order(
    page: &Served,
    cookie: &str,
    action: &str,
    queue: &str,
    more: &[(&str, &str)],
) -> Response {
    let plan = plan(page, cookie, &format!("/plan/{action}?queue={}", encode(queue))).await;
    let (form, expect) = (plan.field("form"), plan.field("expect"));
    let fields = [&[("form", form.as_str()), ("expect", &expect), ("queue", queue)], more].concat();
    page.post(&format!("/plan/{action}"), cookie, &fields).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_read_only_does_nothing() {
    let fixture = Fixture::new("ui-readonly").await;
    fixture.declare().await;
    stock::park(&fixture, 1).await;
    let page = Served::start(&fixture, &[]).await;
    let cookie = page.enter().await;
    let list = page.get(&format!("/messages?queue={}", encode(&fixture.queue)), &cookie).await;
    assert!(!list.body.contains("/plan/"), "nothing is offered: {}", list.body);
    let form = page.get("/", &cookie).await.field("form");
    assert_eq!(
        page.post("/runs/1/undo", &cookie, &[("form", &form), ("why", "x")]).await.status,
        404
    );
    for action in ["replay", "discard"] {
        let path = format!("/plan/{action}");
        let fields =
            [("form", form.as_str()), ("queue", &fixture.queue), ("why", "x"), ("expect", "1")];
        let refused = page.post(&path, &cookie, &fields).await;
        assert!(refused.status == 403 && refused.body.contains("--allow"), "{action}: {refused:?}");
        assert_eq!(
            page.get(&format!("{path}?queue={}", encode(&fixture.queue)), &cookie).await.status,
            403
        );
    }
    fixture.has_depth(&fixture.parked(), 1).await;
    // What is allowed does not allow anything else.
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let cookie = page.enter().await;
    assert_eq!(
        page.get(&format!("/plan/discard?queue={}", encode(&fixture.queue)), &cookie).await.status,
        403
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_replayed_and_each_ones_fate_is_told() {
    let fixture = Fixture::new("ui-replay").await;
    fixture.declare().await;
    stock::park(&fixture, 7).await;
    let (serving, _) = stock::mended(&fixture).await;
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let cookie = page.enter().await;
    assert_eq!(
        order(&page, &cookie, "replay", &fixture.queue, &[("why", " ")]).await.status,
        400,
        "without a reason"
    );
    fixture.has_depth(&fixture.parked(), 7).await;
    let started = order(&page, &cookie, "replay", &fixture.queue, &[("why", "mended")]).await;
    assert_eq!(started.status, 303, "{started:?}");
    let run = started.header("location").unwrap().to_owned();
    let ended = ends(&page, &cookie, &run).await;
    assert!(ended.body.contains("every message was handled"), "{}", ended.body);
    assert!(
        ended.body.contains("<dd id=\"handled\">7</dd>") && ended.body.contains("mended"),
        "{}",
        ended.body
    );
    fixture.has_depth(&fixture.parked(), 0).await;
    assert!(page.get("/runs", &cookie).await.body.contains(&run));
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_parks_again_stops_the_replay_and_the_page_says_so() {
    let fixture = Fixture::new("ui-canary").await;
    fixture.declare().await;
    stock::park(&fixture, 12).await;
    let (serving, works) = stock::mended(&fixture).await;
    works.store(false, Ordering::SeqCst);
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let cookie = page.enter().await;
    let started = order(&page, &cookie, "replay", &fixture.queue, &[("why", "hope")]).await;
    let ended = ends(&page, &cookie, started.header("location").unwrap()).await;
    assert!(
        ended.body.contains("It stopped: a message of the canary parked again"),
        "{}",
        ended.body
    );
    assert!(ended.body.contains("still no customer"), "{}", ended.body);
    fixture.has_depth(&fixture.parked(), 12).await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_another_number_of_messages_than_planned_does_nothing() {
    let fixture = Fixture::new("ui-expect").await;
    fixture.declare().await;
    stock::park(&fixture, 2).await;
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let cookie = page.enter().await;
    let form = page.get("/", &cookie).await.field("form");
    let fields =
        [("form", form.as_str()), ("queue", &fixture.queue), ("why", "x"), ("expect", "3")];
    let started = page.post("/plan/replay", &cookie, &fields).await;
    let ended = ends(&page, &cookie, started.header("location").unwrap()).await;
    assert!(
        ended.body.contains("2 messages match, which is not the expected number"),
        "{}",
        ended.body
    );
    fixture.has_depth(&fixture.parked(), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_of_a_replay_says_which_messages_stay() {
    let fixture = Fixture::new("ui-stay").await;
    fixture.declare().await;
    let gone = fixture.namespace.queue("gone");
    let stray = Publish::to(fixture.stray(), "order.created").body("x");
    let of = |queue: &str| stray.clone().header("rehop-return-to", queue);
    fixture.client.publish_many([of(&fixture.queue), of(&gone), stray.clone()]).await.unwrap();
    fixture.has_depth(&fixture.stray(), 3).await;
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let cookie = page.enter().await;
    let shown = plan(&page, &cookie, "/plan/replay?place=stray").await.body;
    for part in [
        format!("Queue {}</dt><dd>1</dd>", fixture.queue),
        format!("1: queue {gone} does not exist"),
        "1: they do not say which queue they belong to".to_owned(),
        "Queue for those that name none".to_owned(),
    ] {
        assert!(shown.contains(&part), "{part:?} is missing: {shown}");
    }
    // More queues than a plan tells apart.
    let others = (0..1_001).map(|number| Publish {
        routing_key: "others".to_owned(),
        ..of(&format!("{gone}-{number}"))
    });
    fixture.client.publish_many(others).await.unwrap();
    fixture.has_depth(&fixture.stray(), 3 + 1_001).await;
    let shown = plan(&page, &cookie, "/plan/replay?place=stray&key=others").await.body;
    assert!(shown.contains("1: a plan names and looks up 1,000 queues at most"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_can_be_stopped() {
    let fixture = Fixture::new("ui-stop").await;
    fixture.declare().await;
    stock::park(&fixture, 20).await;
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let cookie = page.enter().await;
    // Nobody consumes, so the canary gets no verdict for a minute.
    let more = [("why", "x"), ("rate", "1")];
    let started = order(&page, &cookie, "replay", &fixture.queue, &more).await;
    let run = started.header("location").unwrap().to_owned();
    let form = page.get("/", &cookie).await.field("form");
    assert_eq!(page.post(&format!("{run}/stop"), &cookie, &[("form", &form)]).await.status, 303);
    let ended = ends(&page, &cookie, &run).await;
    assert!(ended.body.contains("It stopped: it was told to stop"), "{}", ended.body);
    assert_eq!(page.get("/runs/99", &cookie).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn discarded_messages_are_kept_where_they_can_be_seen() {
    let fixture = Fixture::new("ui-discard").await;
    fixture.declare().await;
    stock::park(&fixture, 2).await;
    let page = Served::start(&fixture, &[Action::Discard]).await;
    let cookie = page.enter().await;
    let planned =
        plan(&page, &cookie, &format!("/plan/discard?queue={}", encode(&fixture.queue))).await;
    assert!(planned.body.contains("One at a time"), "{}", planned.body);
    let one_at_a_time = [("why", "test data"), ("strict", "1")];
    let started = order(&page, &cookie, "discard", &fixture.queue, &one_at_a_time).await;
    let ended = ends(&page, &cookie, started.header("location").unwrap()).await;
    assert!(ended.body.contains("discarded queue for seven days"), "{}", ended.body);
    fixture.has_depth(&fixture.parked(), 0).await;
    let discarded = page.get("/messages?place=discarded", &cookie).await;
    assert!(discarded.body.contains(">2</span> match"), "{}", discarded.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discard_is_undone_with_a_reason_and_a_receipt() {
    let fixture = Fixture::new("ui-undo").await;
    fixture.declare().await;
    stock::park(&fixture, 3).await;
    let page = Served::start(&fixture, &[Action::Discard]).await;
    let cookie = page.enter().await;
    // Somebody else's discard, which stays.
    let planned =
        plan(&page, &cookie, &format!("/plan/discard?queue={}&limit=1", encode(&fixture.queue)))
            .await;
    let (form, expect) = (planned.field("form"), planned.field("expect"));
    let fields = [
        ("form", form.as_str()),
        ("expect", &expect),
        ("queue", &fixture.queue),
        ("limit", "1"),
        ("why", "x"),
    ];
    let other = page.post("/plan/discard", &cookie, &fields).await;
    assert_eq!(other.status, 303, "{other:?}");
    ends(&page, &cookie, other.header("location").unwrap()).await;
    fixture.has_depth(&fixture.parked(), 2).await;
    let started = order(&page, &cookie, "discard", &fixture.queue, &[("why", "too many")]).await;
    let run = started.header("location").unwrap().to_owned();
    let ended = ends(&page, &cookie, &run).await;
    assert!(ended.body.contains(&format!("action=\"{run}/undo\"")), "{}", ended.body);
    fixture.has_depth(&fixture.parked(), 0).await;
    let (form, undo) = (ended.field("form"), format!("{run}/undo"));
    assert_eq!(page.post(&undo, &cookie, &[("form", &form)]).await.status, 400, "without a reason");
    let undone = page.post(&undo, &cookie, &[("form", &form), ("why", "it was a mistake")]).await;
    assert_eq!(undone.status, 303, "{undone:?}");
    let undoing = undone.header("location").unwrap().to_owned();
    let receipt = ends(&page, &cookie, &undoing).await;
    assert!(receipt.body.contains("The messages are back where they were"), "{}", receipt.body);
    assert!(
        receipt.body.contains("<dd id=\"moved\">2</dd>")
            && receipt.body.contains("it was a mistake")
    );
    assert!(receipt.body.contains("<dd id=\"gone\">0</dd>"), "{}", receipt.body);
    fixture.has_depth(&fixture.parked(), 2).await;
    let bin = format!("{}.discarded", fixture.namespace.name());
    fixture.has_depth(&bin, 1).await;
    // It is offered once, and whoever asks again sees what became of the first.
    let seen = page.get(&run, &cookie).await.body;
    assert!(!seen.contains("/undo\"") && seen.contains(&format!("href=\"{undoing}\"")), "{seen}");
    let again = page.post(&undo, &cookie, &[("form", &form), ("why", "again")]).await;
    assert_eq!(again.header("location"), Some(undoing.as_str()));
    let nothing =
        page.post(&format!("{undoing}/undo"), &cookie, &[("form", &form), ("why", "x")]).await;
    assert_eq!(nothing.status, 400, "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_brings_back_what_is_still_there_and_says_what_is_not() {
    let fixture = Fixture::new("ui-undo-rest").await;
    fixture.declare().await;
    stock::park(&fixture, 3).await;
    let page = Served::start(&fixture, &[Action::Discard]).await;
    let cookie = page.enter().await;
    let started = order(&page, &cookie, "discard", &fixture.queue, &[("why", "too many")]).await;
    let run = started.header("location").unwrap().to_owned();
    let form = ends(&page, &cookie, &run).await.field("form");
    let bin = format!("{}.discarded", fixture.namespace.name());
    fixture.client.get(&bin).await.unwrap().expect("a discarded message");
    fixture.has_depth(&bin, 2).await;
    let undone =
        page.post(&format!("{run}/undo"), &cookie, &[("form", &form), ("why", "a mistake")]).await;
    let receipt = ends(&page, &cookie, undone.header("location").unwrap()).await;
    assert!(receipt.body.contains("<dd id=\"moved\">2</dd>"), "{}", receipt.body);
    assert!(receipt.body.contains("<dd id=\"gone\">1</dd>"), "{}", receipt.body);
    fixture.has_depth(&fixture.parked(), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_whose_queue_is_gone_says_what_stays_and_is_offered_again() {
    let fixture = Fixture::new("ui-undo-gone").await;
    fixture.declare().await;
    stock::park(&fixture, 2).await;
    let page = Served::start(&fixture, &[Action::Discard]).await;
    let cookie = page.enter().await;
    let started = order(&page, &cookie, "discard", &fixture.queue, &[("why", "too many")]).await;
    let run = started.header("location").unwrap().to_owned();
    let form = ends(&page, &cookie, &run).await.field("form");
    fixture.client.delete_queue(&fixture.parked()).await.unwrap();
    let undo = format!("{run}/undo");
    let fields = [("form", form.as_str()), ("why", "a mistake")];
    let undone = page.post(&undo, &cookie, &fields).await;
    let receipt = ends(&page, &cookie, undone.header("location").unwrap()).await;
    for part in [
        "Some messages stay where they are",
        "<dd id=\"missing\">2</dd>",
        "<dd id=\"moved\">0</dd>",
    ] {
        assert!(receipt.body.contains(part), "{part}: {}", receipt.body);
    }
    fixture.declare().await;
    let offer = page.get(&run, &cookie).await;
    assert!(offer.body.contains(&format!("action=\"{undo}\"")), "{}", offer.body);
    let again = page.post(&undo, &cookie, &fields).await;
    let receipt = ends(&page, &cookie, again.header("location").unwrap()).await;
    assert!(receipt.body.contains("The messages are back where they were"), "{}", receipt.body);
    fixture.has_depth(&fixture.parked(), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_left_strays_in_place_does_not_call_the_fate_of_any_message_unknown() {
    let fixture = Fixture::new("ui-stayed").await;
    fixture.declare().await;
    let serving = fixture.serve_always(Ok(())).await;
    let stray = |queue: &str| {
        Publish::to(fixture.stray(), "order.created").body("x").header("rehop-return-to", queue)
    };
    let gone = fixture.namespace.queue("gone");
    fixture.client.publish_many([stray(&fixture.queue), stray(&gone)]).await.unwrap();
    fixture.has_depth(&fixture.stray(), 2).await;
    let page = Served::start(&fixture, &[Action::Replay]).await;
    let cookie = page.enter().await;
    let form = page.get("/", &cookie).await.field("form");
    let fields = [("form", form.as_str()), ("place", "stray"), ("why", "mended"), ("expect", "2")];
    let started = page.post("/plan/replay", &cookie, &fields).await;
    assert_eq!(started.status, 303, "{started:?}");
    let ended = ends(&page, &cookie, started.header("location").unwrap()).await;
    for part in [
        "<dd id=\"handled\">1</dd>",
        "<dd id=\"missing\">1</dd>",
        "Some messages stay where they are",
    ] {
        assert!(ended.body.contains(part), "{part}: {}", ended.body);
    }
    assert!(!ended.body.contains("fate is known"), "{}", ended.body);
    serving.stop().await;
}

/// How many messages the page of a run says that it has moved.
fn moved(answer: &Response) -> u32 {
    let (_, rest) =
        answer.body.split_once("<dd id=\"moved\">").expect("the page says how many were moved");
    rest.split('<').next().unwrap().parse().unwrap()
}

/// The discarded queue takes a part and refuses the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_discard_that_failed_half_way_says_what_it_moved_and_is_undone() {
    const COUNT: u32 = 400;
    if Broker::shared().await.management_url().is_none() {
        return not_tried(
            "a discard that fails half way, because REHOP_TEST_MANAGEMENT_URL is not set",
        );
    }
    let fixture = Fixture::new("ui-undo-failed").await;
    fixture.declare().await;
    let message =
        |n: u32| Publish::to_queue(fixture.parked()).message_id(n.to_string()).body(n.to_string());
    fixture.client.publish_many((0..COUNT).map(message)).await.unwrap();
    fixture.has_depth(&fixture.parked(), COUNT).await;
    let bin = format!("{}.discarded", fixture.namespace.name());
    fixture.set_policy(&bin, json!({ "max-length": 20, "overflow": "reject-publish" })).await;

    let page = Served::start(&fixture, &[Action::Discard]).await;
    let cookie = page.enter().await;
    let started = order(&page, &cookie, "discard", &fixture.queue, &[("why", "too many")]).await;
    let run = started.header("location").unwrap().to_owned();
    let ended = ends(&page, &cookie, &run).await;
    fixture.clear_policy(&bin).await;
    assert!(ended.body.contains("It failed: the broker refused a message"), "{}", ended.body);
    let part = moved(&ended);
    assert!((20..COUNT).contains(&part), "{part} were moved");
    assert!(!ended.body.contains("Fate unknown"), "a discard has no fates: {}", ended.body);
    fixture.has_depth(&bin, part).await;
    fixture.has_depth(&fixture.parked(), COUNT - part).await;

    let undo = format!("{run}/undo");
    for offer in [
        "would put those messages there twice",
        &format!("action=\"{undo}\""),
        &format!("Moves {part} back"),
    ] {
        assert!(ended.body.contains(offer), "{offer}: {}", ended.body);
    }
    let form = ended.field("form");
    let undone = page.post(&undo, &cookie, &[("form", &form), ("why", "a mistake")]).await;
    let receipt = ends(&page, &cookie, undone.header("location").unwrap()).await;
    assert_eq!(moved(&receipt), part, "{}", receipt.body);
    fixture.has_depth(&fixture.parked(), COUNT).await;
    fixture.has_depth(&bin, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_message_is_sent_and_its_original_is_kept() {
    let fixture = Fixture::new("ui-edit").await;
    fixture.declare().await;
    stock::park_bytes(&fixture, b"a\nb <wrong> & \"x\"".to_vec(), "one").await;
    let page = Served::start(&fixture, &[Action::Edit]).await;
    let cookie = page.enter().await;
    let link = format!("/edit?queue={}&chain=one", encode(&fixture.queue));
    let form = page.get(&link, &cookie).await;
    assert!(form.body.contains("&#60;wrong&#62;"), "{}", form.body);
    let (token, original) = (form.field("form"), form.field("original"));
    let send = async |original: &str, why: &str| {
        let fields = [
            ("form", token.as_str()),
            ("original", original),
            ("why", why),
            ("queue", &fixture.queue),
            ("chain", "one"),
            ("body", "a\r\nb right"),
        ];
        page.post("/edit", &cookie, &fields).await
    };
    assert_eq!(send(&original, "").await.status, 400, "without a reason");
    assert_eq!(send("another", "a typing error").await.status, 409, "a form of another message");
    fixture.has_depth(&fixture.parked(), 1).await;
    let (serving, seen) = fixture.serve_noting(|message| message.body.clone(), Ok(())).await;
    let started = send(&original, "a typing error").await;
    let ended = ends(&page, &cookie, started.header("location").unwrap()).await;
    assert!(ended.body.contains("has handled the edited message"), "{}", ended.body);
    assert_eq!(seen.all(), ["a\nb right"], "the line ends are those of the original");
    fixture.has_depth(&fixture.parked(), 0).await;
    assert!(page.get("/messages?place=discarded", &cookie).await.body.contains(">1</span> match"));
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_masked_is_not_edited_unless_it_may_be_revealed() {
    let fixture = Fixture::new("ui-edit-mask").await;
    fixture.declare().await;
    stock::park_bytes(&fixture, br#"{"password": "hunter2"}"#.to_vec(), "one").await;
    stock::park_bytes(&fixture, vec![0xff], "binary").await;
    let link = |chain: &str| format!("/edit?queue={}&chain={chain}", encode(&fixture.queue));
    for (actions, status) in [
        (&[Action::Edit][..], 403),
        (&[Action::Reveal], 403),
        (&[Action::Edit, Action::Reveal], 200),
    ] {
        let page = Served::start(&fixture, actions).await;
        let cookie = page.enter().await;
        let seen = page.get(&link("one"), &cookie).await;
        assert_eq!(
            (seen.status, seen.body.contains("hunter2")),
            (status, status == 200),
            "{actions:?}"
        );
        if status == 200 {
            assert_eq!(page.get(&link("binary"), &cookie).await.status, 422);
        }
    }
}
