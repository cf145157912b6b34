//! The ladder: any delay, by wait queues that add up to it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rehop::settings::{AskedDelays, BindingSettings, MaxAge, TopologyMode, WaitStrategy};
use rehop::topology::Role;
use rehop::{Consumer, Failure, Raw, Topology};
use rehop_testing::{Publish, eventually};
use serde_json::json;

use super::{delayed, native};
use crate::support::{Fixture, Log, Running, SOON, failures, millis};

/// A fixture whose queue waits on a ladder of five rungs, from 100 to 1,600 ms.
async fn on_ladder(test: &str) -> Fixture {
    let mut fixture = Fixture::new(test).await;
    low_ladder(&mut fixture);
    fixture.retry().strategy = Some(WaitStrategy::Ladder);
    fixture
}

fn low_ladder(fixture: &mut Fixture) {
    fixture.settings.ladder.rung = Duration::from_millis(100);
    fixture.settings.ladder.max = Duration::from_millis(1_600);
}

fn named(fixture: &Fixture, rest: &str) -> String {
    format!("{}.{rest}", fixture.namespace.name())
}

/// On 3.10, a copy that kept its death headers would vanish on its second trip.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_of_four_legs_works_twice_and_leaves_the_routing_key_as_it_was() {
    let mut fixture = on_ladder("four-legs").await;
    fixture.retry().delays = millis([1_500, 1_500]);
    let exchange = fixture.namespace.exchange("shop");
    fixture.client.declare_exchange(&exchange, "topic", json!({})).await.unwrap();
    let queue = fixture.queue.clone();
    fixture.settings.queue_mut(&queue).bindings.push(BindingSettings::new(&exchange, "order.#"));
    let note = |message: &rehop::Message<bytes::Bytes>| {
        let routed = (message.exchange().to_owned(), message.routing_key().to_owned());
        (Instant::now(), message.attempt(), message.hop(), routed, message.body.clone())
    };
    let (run, seen) = fixture.serve_noting(note, Err(Failure::transient("no"))).await;
    fixture.publish_when_bound(Publish::to(&exchange, "order.created").body("x")).await;
    let seen = seen.reaches(3).await;
    let parked = fixture.drain_parked(1).await.remove(0);
    let summary = run.stop().await;
    assert_eq!(summary.waited, 2, "no service is asked between legs");
    for (index, (_, attempt, hop, routed, body)) in (0u32..).zip(&seen) {
        assert_eq!((*attempt, *hop, &body[..]), (index + 1, index, &b"x"[..]));
        assert_eq!(routed, &(exchange.clone(), "order.created".to_owned()));
    }
    for step in seen.windows(2) {
        assert!(step[1].0 - step[0].0 >= Duration::from_millis(1_500), "{seen:?}");
    }
    assert_eq!(parked.headers["rehop-reason"], "exhausted");
    assert!(
        !parked.headers.keys().any(|name| name.starts_with("rehop-then-")),
        "{:?}",
        parked.headers
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_ladder_an_unknown_home_and_an_unknown_rung_end_in_the_stray_queue() {
    let fixture = on_ladder("ladder-stray").await;
    fixture.declare().await;
    let to_ladder = || Publish::to(named(&fixture, "ladder"), "key");
    let nowhere = to_ladder()
        .body("home")
        .header("rehop-wait-for", 200)
        .header("rehop-then-200", 100)
        .header("rehop-return-to", "nowhere");
    fixture.client.publish(nowhere).await.unwrap();
    fixture.client.publish(to_ladder().body("rung").header("rehop-wait-for", 7)).await.unwrap();
    let stray = fixture.client.drain(&fixture.stray(), 2, SOON).await.unwrap();
    assert_eq!(
        stray.iter().map(|message| message.text()).collect::<BTreeSet<_>>(),
        ["home", "rung"].map(str::to_owned).into()
    );
    assert!(stray.iter().all(|message| message.routing_key == "key"), "{stray:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rungs_that_lead_around_in_a_circle_bring_a_message_home() {
    let fixture = on_ladder("ladder-circle").await;
    fixture.declare().await;
    let circle = Publish::to(named(&fixture, "ladder"), "key")
        .header("rehop-wait-for", 400)
        .header("rehop-then-400", 200)
        .header("rehop-then-200", 400)
        .header("rehop-return-to", fixture.queue.as_str());
    fixture.client.publish(circle).await.unwrap();
    let back = fixture.client.drain(&fixture.queue, 1, SOON).await.unwrap().remove(0);
    assert_eq!(back.exchange, named(&fixture, "after.200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_binding_brings_a_copy_home_early_and_it_waits_for_the_rest_without_an_attempt() {
    let mut fixture = on_ladder("ladder-unbound").await;
    // A copy that comes home late has less to wait for. It waits again unless it is 2.8 s late.
    fixture.settings.ladder.rung = Duration::from_millis(400);
    fixture.settings.ladder.max = Duration::from_millis(6_400);
    fixture.retry().delays = millis([6_000]);
    let (run, seen) = fixture.serve_noting(|_| Instant::now(), Err(Failure::transient("no"))).await;
    let next = json!({ "x-match": "all", "rehop-then-3200": 1600 });
    fixture
        .client
        .unbind(&named(&fixture, "ladder.1600"), &named(&fixture, "after.3200"), "", next)
        .await
        .unwrap();
    fixture.publish("x").await;
    let seen = seen.reaches(2).await;
    fixture.drain_parked(1).await;
    let summary = run.stop().await;
    assert!(seen[1] - seen[0] >= Duration::from_millis(6_000), "{seen:?}");
    assert_eq!(seen.len(), 2);
    // 3,200, then 1,600 + 800 + 400, unless nothing is left to wait for on a busy machine.
    assert!((1..=2).contains(&summary.waited), "waited {} times", summary.waited);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_after_ladder_an_asked_delay_is_one_copy_and_tiers_take_the_policys_own() {
    let mut fixture = Fixture::new("after-ladder").await;
    low_ladder(&mut fixture);
    fixture.retry().delays = millis([100]);
    fixture.retry().after = Some(AskedDelays::Ladder);
    let asked = Duration::from_millis(1_100);
    let (run, seen) =
        fixture.serve_noting(|_| Instant::now(), Err(Failure::transient("no").after(asked))).await;
    fixture.publish("x").await;
    let seen = seen.reaches(2).await;
    fixture.drain_parked(1).await;
    assert_eq!(run.stop().await.waited, 1);
    assert!(seen[1] - seen[0] >= asked, "{seen:?}");
    let run = fixture
        .serve_always(Err(Failure::transient("busy").after(Duration::from_millis(1_601))))
        .await;
    fixture.publish("y").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(parked.headers["rehop-reason"], "delay_too_long");
    assert_eq!(
        failures(&parked)[0]["message"],
        "asked to wait 1s 601ms, but ladder.max allows 1s 600ms at most: busy"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wait_on_the_ladder_ends_past_the_deadline() {
    let mut fixture = on_ladder("ladder-deadline").await;
    fixture.retry().delays = millis([100, 1_600]);
    fixture.retry().max_age = Some(MaxAge(Some(Duration::from_millis(1_500))));
    let (run, seen) = fixture.serve_noting(|_| (), Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!((seen.all().len() <= 2, &parked.headers["rehop-reason"]), (true, &json!("expired")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ladder_that_is_declared_elsewhere_is_only_checked() {
    let mut fixture = on_ladder("ladder-check").await;
    fixture.retry().delays = millis([300]);
    fixture.settings.topology = TopologyMode::Check;
    let error = fixture.start_error().await;
    assert!(matches!(error, rehop::Error::Missing { .. }), "{error}");
    fixture.settings.topology = TopologyMode::Declare;
    fixture.declare().await;
    fixture.settings.topology = TopologyMode::Check;
    let (run, seen) =
        fixture.serve_noting(|message| message.attempt(), Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    fixture.drain_parked(1).await;
    run.stop().await;
    assert_eq!(seen.all(), [1, 2]);
}

/// As after a change of `ladder.rung`: the rungs that both ladders have keep their arguments.
#[tokio::test(flavor = "multi_thread")]
async fn another_ladder_can_take_the_place_of_one_on_which_messages_wait() {
    let mut fixture = on_ladder("ladder-rung").await;
    fixture.retry().delays = millis([1_500]);
    // The service stops while the handler runs, so it is gone when the wait ends.
    let (run, started, gate) = fixture.serve_gated(0, Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    started.reaches(1).await;
    let run = run.begin_stop();
    gate.add_permits(1);
    assert_eq!(run.ended().await.unwrap().waited, 1);
    fixture.settings.ladder.rung = Duration::from_millis(50);
    let (run, seen) = fixture.serve_noting(|message| message.attempt(), Ok(())).await;
    seen.reaches(1).await;
    assert_eq!((run.stop().await.handled, seen.all()), (1, vec![2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_of_one_namespace_wait_in_different_ways() {
    let mut fixture = on_ladder("mixed").await;
    let mut ways = vec![
        ("tiers", WaitStrategy::Tiers, 200),
        ("ladder", WaitStrategy::Ladder, 700),
        ("after", WaitStrategy::Tiers, 100),
        ("in-process", WaitStrategy::InProcess, 500),
        ("delayed", WaitStrategy::DelayedExchange, 300),
    ];
    if native::is_known().await {
        ways.push(("native", WaitStrategy::Native, 400));
    }
    let seen: Log<(String, u32, Instant)> = Log::default();
    for (name, strategy, delay) in &ways {
        let retry = &mut fixture.settings.queue_mut(&fixture.namespace.queue(name)).retry;
        (retry.strategy, retry.delays) = (Some(*strategy), millis([*delay]));
        if *name == "after" {
            retry.after = Some(AskedDelays::Ladder);
        }
    }
    // The exchange of the plugin cannot be declared, so what stands in for it is found, and with it
    // all the rest.
    let waits_in_exchange = fixture.namespace.queue("delayed");
    fixture.settings.queue_mut(&waits_in_exchange).retry.strategy = Some(WaitStrategy::Tiers);
    fixture.declare().await;
    delayed::stand_in(&fixture, Duration::from_millis(300)).await;
    fixture.settings.queue_mut(&waits_in_exchange).retry.strategy =
        Some(WaitStrategy::DelayedExchange);
    fixture.settings.topology = TopologyMode::Check;
    let mut service = fixture.service();
    for (name, ..) in &ways {
        let (log, name, asks) = (seen.clone(), (*name).to_owned(), *name == "after");
        let queue = fixture.namespace.queue(&name);
        let handler = move |message: rehop::Message<bytes::Bytes>| {
            log.push((name.clone(), message.attempt(), Instant::now()));
            let failure = Failure::transient("no");
            let failure = if asks { failure.after(Duration::from_millis(300)) } else { failure };
            async move { if message.attempt() == 1 { Err(failure) } else { Ok(()) } }
        };
        service = service.with_consumer(Consumer::new(queue, handler).decode(Raw));
    }
    // Queues take turns at the start of a service. 3.10 and 4.0 count a delivery of what is
    // published just as a turn ends.
    for (name, ..) in &ways {
        fixture.client.publish(Publish::to_queue(fixture.namespace.queue(name))).await.unwrap();
    }
    let run = Running::start(service);
    let seen = seen.reaches(2 * ways.len()).await;
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.waited), (ways.len() as u64, ways.len() as u64));
    for (name, _, delay) in ways {
        let at: Vec<_> = seen.iter().filter(|(of, ..)| of == name).map(|(_, _, at)| *at).collect();
        let least = Duration::from_millis(if name == "after" { 300 } else { delay });
        assert!(at[1] - at[0] >= least - Duration::from_millis(5), "{name}: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_wait_queue_with_a_ttl_per_message_is_late_because_a_long_wait_is_ahead() {
    for queue_type in ["quorum", "classic"] {
        let fixture = Fixture::new("head-of-line").await;
        let (wait, home) = (fixture.namespace.queue("wait"), fixture.namespace.queue("home"));
        fixture.client.declare_queue(&home, json!({ "x-queue-type": queue_type })).await.unwrap();
        let to_home = json!({
            "x-queue-type": queue_type, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": home,
        });
        fixture.client.declare_queue(&wait, to_home).await.unwrap();
        let started = Instant::now();
        for (body, ttl) in [("long", 2_000), ("short", 100)] {
            let message = Publish::to_queue(&wait)
                .body(body)
                .properties(|it| it.expiration = Some(ttl.to_string()));
            fixture.client.publish(message).await.unwrap();
        }
        let back = fixture.client.drain(&home, 2, SOON).await.unwrap();
        let late = started.elapsed();
        assert_eq!(
            back.iter().map(|message| message.text()).collect::<Vec<_>>(),
            ["long", "short"],
            "{queue_type}"
        );
        assert!(
            late >= Duration::from_millis(1_900),
            "the short wait of 100 ms ended after {late:?} ({queue_type})"
        );
    }
    // On the ladder, a short wait is home although a long one began first.
    let mut fixture = on_ladder("not-head-of-line").await;
    fixture.settings.ladder.max = Duration::from_millis(51_200);
    fixture.retry().delays = millis([100]);
    let homecomers = Log::default();
    let log = homecomers.clone();
    let run = fixture
        .serve(move |message| {
            let (text, is_first) = (String::from_utf8_lossy(&message.body).into_owned(), message.attempt() == 1);
            let delay = Duration::from_millis(if text == "long" { 51_200 } else { 100 });
            if !is_first {
                log.push(text);
            }
            async move { if is_first { Err(Failure::transient("no").after(delay)) } else { Ok(()) } }
        })
        .await;
    fixture.publish("long").await;
    fixture.publish("short").await;
    assert_eq!(homecomers.reaches(1).await, ["short"]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_standard_ladder_can_be_declared() {
    let mut fixture = on_ladder("ladder-standard").await;
    fixture.settings.ladder = rehop::Settings::default().ladder;
    fixture.declare().await;
    let mut settings = fixture.settings.clone();
    settings.queue_mut(&fixture.queue);
    let topology = Topology::of(&settings).unwrap();
    let rungs: Vec<_> = topology.queues.iter().filter(|queue| queue.role == Role::Wait).collect();
    assert_eq!(rungs.len(), 22);
    eventually(SOON, "every rung exists", async || {
        fixture.client.depth(&rungs[21].name).await.map(|_| true)
    })
    .await
    .unwrap();
    for rung in rungs {
        fixture.client.delete_queue(&rung.name).await.unwrap();
    }
}
