//! What holds for copies whatever the broker does.

mod model;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use proptest::prelude::*;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::model::{Broker, EXCHANGES, Fate, LATENCY, Mood, Nature, Plan, Scenario, Weather};
use super::copy_publisher::LAST_CHANCE;
use super::shared::TRIALS;
use super::{CopyPublisher, GivenUp};
use crate::broker::connection::Link;
use crate::broker::dial::dialing;
use crate::broker::keeper::Keeper;
use crate::broker::lane::Outgoing;
use crate::broker::name::short;
use crate::broker::scout::Scout;
use crate::inputs::models;
use crate::settings::{BrokerSettings, TopologyMode};
use crate::topology::{Arguments, Exchange, ExchangeKind, Topology};

/// Long enough for everything to end by itself.
const LONGEST: Duration = Duration::from_secs(2 * 3_600);

/// How publishing ended, and after how long. `None`: it was given up.
type Ended = Option<(Result<(), GivenUp>, Duration)>;

struct Outcome {
    ended: Vec<Ended>,
    fates: Vec<Fate>,
    opened: usize,
    most_channels: usize,
}

/// Plays a scenario in virtual time.
fn play(scenario: &Scenario) -> Outcome {
    play_until(scenario, LONGEST)
}

/// The same; after this time, the queue of all copies stops.
fn play_until(scenario: &Scenario, stop: Duration) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let _seeded = crate::random::seed(scenario.seed);
    runtime.block_on(async {
        let broker = Broker::new(scenario);
        let ended =
            dialing(Arc::new(broker.clone()), publish_all(scenario, broker.clone(), stop)).await;
        let state = broker.lock();
        Outcome {
            ended,
            fates: state.fates.clone(),
            opened: state.opened,
            most_channels: state.most_channels,
        }
    })
}

fn start() -> (CopyPublisher, AbortOnDropHandle<()>) {
    let (publisher, running, ..) = start_with(Topology::default());
    (publisher, running)
}

/// With a topology that all queues share.
fn start_with(shared: Topology) -> (CopyPublisher, AbortOnDropHandle<()>, Arc<Keeper>, Arc<Link>) {
    let settings = BrokerSettings { timeout: Duration::from_secs(2), ..BrokerSettings::default() };
    let link = |name: &str| Arc::new(Link::new(name.to_owned(), settings.clone()));
    let scout = Arc::new(Scout::new(link("keeping")));
    let queues = vec![Topology::default()];
    let keeper = Arc::new(Keeper::new(scout, TopologyMode::Declare, shared, queues));
    let link = link("publishing");
    let (publisher, running) =
        CopyPublisher::start(link.clone(), keeper.clone(), ["x0".to_owned()], |_| ());
    (publisher, running, keeper, link)
}

fn copy(number: usize, exchange: usize) -> Arc<Outgoing> {
    let (exchange, key, body) =
        (short(&format!("x{exchange}")).unwrap(), short("key").unwrap(), vec![number as u8]);
    Arc::new(Outgoing::new(
        exchange,
        key,
        Bytes::from(body),
        BasicProperties::default(),
        BasicProperties::default,
    ))
}

async fn publish_all(scenario: &Scenario, broker: Broker, stop: Duration) -> Vec<Ended> {
    let (publisher, _running) = start();
    let stopping = CancellationToken::new();
    let living = tokio::spawn(broker.clone().live());
    let began = Instant::now();
    let publishing = scenario.copies.iter().enumerate().map(|(number, plan)| {
        let (broker, publisher, plan) = (broker.clone(), publisher.clone(), plan.clone());
        let stopping = stopping.clone();
        tokio::spawn(async move {
            let at = began + Duration::from_millis(plan.at);
            sleep_until(at).await;
            let limit = plan.withdrawn_after.map_or(LONGEST, Duration::from_millis);
            broker.lock().fates[number].is_wanted = true;
            let copy = copy(number, plan.exchange);
            let ended = timeout(limit, publisher.publish(copy, &stopping)).await;
            broker.lock().fates[number].is_wanted = false;
            ended.ok().map(|result| (result, at.elapsed()))
        })
    });
    let publishing: Vec<_> = publishing.collect();
    let _stops = AbortOnDropHandle::new(tokio::spawn(async move {
        sleep_until(began + stop).await;
        stopping.cancel();
    }));
    let mut ended = Vec::new();
    for one in publishing {
        ended.push(one.await.unwrap());
    }
    living.await.unwrap();
    ended
}

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        2 => Just(Mood::Open),
        1 => Just(Mood::Forbidden),
        1 => Just(Mood::Missing),
        1 => Just(Mood::Full),
        1 => Just(Mood::Unroutable),
        1 => Just(Mood::Slow),
    ]
}

/// Mostly within a few seconds, often at the same moment, sometimes within half an hour.
fn time() -> impl Strategy<Value = u64> {
    let same = prop::sample::select(&[500u64, 1_500, 4_000]);
    prop_oneof![6 => 0..8_000u64, 3 => same, 1 => 0..2_000_000u64]
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 1..6_000u64, 1 => 1..1_000_000u64]
}

fn nature() -> impl Strategy<Value = Nature> {
    prop_oneof![12 => Just(Nature::Fine), 1 => Just(Nature::Malformed), 1 => Just(Nature::Deadly)]
}

fn weather() -> impl Strategy<Value = Weather> {
    prop_oneof![
        Just(Weather::Drop),
        Just(Weather::Vanish),
        span().prop_map(Weather::Away),
        span().prop_map(Weather::Block),
        span().prop_map(Weather::Hang),
        (1..20_000u64).prop_map(Weather::NoChannels),
    ]
}

fn plan(nature: impl Strategy<Value = Nature>) -> impl Strategy<Value = Plan> {
    (time(), 0..EXCHANGES, nature, prop::option::weighted(0.2, span())).prop_map(
        |(at, exchange, nature, withdrawn_after)| Plan { at, exchange, nature, withdrawn_after },
    )
}

prop_compose! {
    fn scenario()(
        seed in any::<u64>(),
        goes_on_refusing in any::<bool>(),
        copies in prop::collection::vec(plan(nature()), 1..40),
        moods in prop::collection::vec((time(), 0..EXCHANGES, mood()), 0..12),
        weather in prop::collection::vec((time(), weather()), 0..5),
    ) -> Scenario {
        Scenario { seed, goes_on_refusing, copies, moods, weather }
    }
}

prop_compose! {
    /// Exchange 0 is well, and so is the connection. The others are not.
    fn with_a_healthy_exchange()(
        seed in any::<u64>(),
        goes_on_refusing in any::<bool>(),
        mut copies in prop::collection::vec(
            plan(prop_oneof![6 => Just(Nature::Fine), 1 => Just(Nature::Malformed)]),
            1..60,
        ),
        moods in prop::collection::vec((time(), 1..EXCHANGES, mood()), 0..12),
    ) -> Scenario {
        for copy in &mut copies {
            copy.nature = if copy.exchange == 0 { Nature::Fine } else { copy.nature };
        }
        Scenario { seed, goes_on_refusing, copies, moods, weather: Vec::new() }
    }
}

proptest! {
    #![proptest_config(models(60))]

    /// The model itself checks, at each send, that somebody waits for the copy, that it is not
    /// under way, that it has rested for long enough if it was refused, that the broker reads the
    /// connection, and that a copy which has broken a connection is sent with nothing beside it.
    #[test]
    fn whatever_the_broker_does_each_copy_is_confirmed_in_the_end_and_none_is_multiplied(
        scenario in scenario(),
    ) {
        let outcome = play(&scenario);
        let ended = scenario.copies.iter().zip(&outcome.ended);
        for ((plan, ended), fate) in ended.zip(&outcome.fates) {
            match ended {
                None => prop_assert!(plan.withdrawn_after.is_some(), "{plan:?} {fate:?}"),
                Some((Ok(()), _)) => prop_assert!(fate.stored > 0, "{plan:?} {fate:?}"),
                Some((Err(_), _)) => prop_assert!(plan.nature != Nature::Fine, "{plan:?} {fate:?}"),
            }
            prop_assert!(fate.stored <= 1 + fate.excuses, "{plan:?} {fate:?}");
        }
        let Outcome { most_channels, .. } = outcome;
        prop_assert!(most_channels <= EXCHANGES + scenario.copies.len(), "{most_channels} channels");
    }

    #[test]
    fn at_a_stop_only_what_is_under_way_is_awaited_and_what_was_refused_is_stored_nowhere(
        scenario in scenario(),
        stop in time(),
    ) {
        let outcome = play_until(&scenario, Duration::from_millis(stop));
        let ended = scenario.copies.iter().zip(&outcome.ended);
        for ((plan, ended), fate) in ended.zip(&outcome.fates) {
            let Some((result, waited)) = ended else { continue };
            match result {
                Ok(()) => prop_assert!(fate.stored > 0, "{plan:?} {fate:?}"),
                Err(GivenUp::Unpublishable { .. }) => {
                    prop_assert!(plan.nature != Nature::Fine, "{plan:?}");
                }
                Err(GivenUp::Stopped { may_be_stored }) => {
                    prop_assert!(*may_be_stored || fate.stored == 0, "{plan:?} {fate:?}");
                    let given_up_at = plan.at + waited.as_millis() as u64;
                    prop_assert!(given_up_at >= stop, "it was given up before");
                }
                Err(other) => prop_assert!(false, "{other:?}"),
            }
        }
    }

    #[test]
    fn a_healthy_copy_waits_for_no_other(scenario in with_a_healthy_exchange()) {
        let outcome = play(&scenario);
        // The first copy may have to wait for the connection and its lane.
        let limit = Duration::from_millis(10 * LATENCY);
        let ended = scenario.copies.iter().zip(&outcome.ended);
        for (plan, ended) in ended.filter(|(plan, _)| plan.exchange == 0) {
            let is_in_time = ended.as_ref().is_none_or(|(_, waited)| *waited <= limit);
            prop_assert!(is_in_time, "{ended:?} of {limit:?} {plan:?}");
        }
    }
}

/// Copies to one exchange in good health.
fn copies(nature: Nature, count: usize) -> Vec<Plan> {
    vec![Plan { at: 0, exchange: 0, nature, withdrawn_after: None }; count]
}

#[test]
fn refused_copies_use_at_most_a_few_channels_at_once() {
    let moods = vec![(0, 0, Mood::Full), (60_000, 0, Mood::Open)];
    let scenario = Scenario {
        seed: 1,
        goes_on_refusing: true,
        copies: copies(Nature::Fine, 200),
        moods,
        weather: Vec::new(),
    };
    let outcome = play(&scenario);
    assert!(outcome.ended.iter().all(|ended| matches!(ended, Some((Ok(()), _)))));
    assert!(
        outcome.most_channels <= 2 * TRIALS + 1,
        "{} channels, with those that are being closed",
        outcome.most_channels
    );
}

/// Copies that the broker refuses, or cannot read.
#[test]
fn a_stop_waits_a_moment_for_what_cannot_be_sent_and_not_at_all_for_what_was_refused() {
    const AT: u64 = 2_000;
    let (stop, moment) = (Duration::from_secs(30), Duration::from_millis(10 * LATENCY));
    for (mood, weather, count, limit) in [
        (Mood::Full, None, TRIALS, moment),
        (Mood::Unroutable, None, TRIALS, moment),
        (Mood::Full, None, 200, LAST_CHANCE + moment),
        (Mood::Missing, None, 200, LAST_CHANCE + moment),
        (Mood::Open, Some(Weather::Block(40_000)), 200, LAST_CHANCE + moment),
        (Mood::Open, Some(Weather::Away(40_000)), 200, LAST_CHANCE + moment),
    ] {
        let scenario = Scenario {
            seed: 1,
            goes_on_refusing: false,
            copies: vec![
                Plan { at: AT, exchange: 0, nature: Nature::Fine, withdrawn_after: None };
                count
            ],
            moods: vec![(0, 0, mood), (40_000, 0, Mood::Open)],
            weather: weather.into_iter().map(|weather| (1_000, weather)).collect(),
        };
        let outcome = play_until(&scenario, stop);
        for (ended, fate) in outcome.ended.iter().zip(&outcome.fates) {
            let Some((Err(GivenUp::Stopped { may_be_stored }), waited)) = ended else {
                panic!("{mood:?} {weather:?}: {ended:?}");
            };
            let ended_at = Duration::from_millis(AT) + *waited;
            assert!(ended_at <= stop + limit, "{mood:?} {weather:?}: {ended_at:?}");
            // A channel that is closed while a copy is under way does not tell which it was.
            assert!(!may_be_stored || mood == Mood::Missing, "{mood:?} {weather:?}");
            assert_eq!(fate.stored, 0);
        }
    }
}

/// The confirm comes a minute after the stop.
#[test]
fn a_stop_waits_for_the_confirm_of_what_is_under_way() {
    let scenario = Scenario {
        seed: 1,
        goes_on_refusing: false,
        copies: copies(Nature::Fine, 20),
        moods: vec![(0, 0, Mood::Slow), (90_000, 0, Mood::Open)],
        weather: Vec::new(),
    };
    let outcome = play_until(&scenario, Duration::from_secs(30));
    for (ended, fate) in outcome.ended.iter().zip(&outcome.fates) {
        assert!(matches!(ended, Some((Ok(()), _))), "{ended:?}");
        assert_eq!((fate.sent, fate.stored), (1, 1));
    }
}

/// A quorum queue without a majority confirms nothing. Each message comes again after the ack
/// timeout, and is copied again. The timeout may be shorter than that of an answer, which is 2 s.
#[test]
fn copies_that_were_given_up_without_an_answer_are_not_kept() {
    const ROUNDS: u64 = 5;
    for ack_timeout in [60_000, 2_500] {
        let plan = |at| Plan {
            at,
            exchange: 0,
            nature: Nature::Fine,
            withdrawn_after: Some(ack_timeout - 700),
        };
        // Not all at the same moment, so that some are under way whenever others are given up.
        let at = |round, number| 1_000 + round * ack_timeout + number * ack_timeout / 50;
        let rounds = (0..ROUNDS).flat_map(|round| (0..20).map(move |number| at(round, number)));
        let scenario = Scenario {
            seed: 1,
            goes_on_refusing: false,
            copies: rounds.map(plan).collect(),
            moods: vec![(0, 0, Mood::Slow), (2 * ROUNDS * ack_timeout, 0, Mood::Open)],
            weather: Vec::new(),
        };
        let outcome = play(&scenario);
        assert!(outcome.ended.iter().all(Option::is_none), "no copy was confirmed");
        let stored: Vec<_> = outcome.fates.iter().map(|fate| fate.stored).collect();
        // The next copy would have opened another lane.
        let (earlier, _last) = stored.split_at(stored.len() - 20);
        assert!(earlier.iter().all(|stored| *stored == 0), "the broker has some: {stored:?}");
        assert!(outcome.most_channels <= 3, "{} channels at once", outcome.most_channels);
    }
}

#[test]
fn one_copy_finds_out_whether_an_exchange_takes_any_again() {
    let moods = vec![(0, 0, Mood::Missing), (60_000, 0, Mood::Open)];
    let scenario = Scenario {
        seed: 1,
        goes_on_refusing: false,
        copies: copies(Nature::Fine, 200),
        moods,
        weather: Vec::new(),
    };
    let outcome = play(&scenario);
    assert!(outcome.ended.iter().all(|ended| matches!(ended, Some((Ok(()), _)))));
    let sends = outcome.fates.iter().map(|fate| fate.sent).sum::<u32>();
    assert!(outcome.opened < 100, "{} channels", outcome.opened);
    assert!(
        sends < 3 * 200,
        "{sends} sends of 200 copies: at first, one of them now and then, and in the end"
    );
}

/// An alarm begins while one copy is under way and a lane is opened for another. The broker answers
/// both soon after it.
#[test]
fn a_broker_has_time_to_answer_after_an_alarm() {
    for length in (1_900..2_100).chain(3_900..4_100) {
        let copies = [0, 1].map(|exchange| Plan {
            at: 500,
            exchange,
            nature: Nature::Fine,
            withdrawn_after: None,
        });
        let (moods, weather) = (Vec::new(), vec![(501, Weather::Block(length))]);
        let scenario = Scenario {
            seed: length,
            goes_on_refusing: false,
            copies: copies.to_vec(),
            moods,
            weather,
        };
        let outcome = play(&scenario);
        assert_eq!(
            outcome.opened, 2,
            "a lane for each of the two, on one connection, with an alarm of {length} ms"
        );
    }
}

/// Some copies are given up while another one waits on their lane. At a limit of channels no other
/// lane can be opened, and soon the queue is well again.
#[tokio::test(start_paused = true)]
async fn a_retired_lane_carries_copies_until_another_can_be_opened() {
    const LIMIT_ENDS: u64 = 600_000;
    let plan =
        |at, withdrawn_after| Plan { at, exchange: 0, nature: Nature::Fine, withdrawn_after };
    let given_up = vec![plan(1_000, Some(5_000)); 5];
    let next = vec![plan(20_000, None); 5];
    let scenario = Scenario {
        seed: 1,
        goes_on_refusing: false,
        copies: [given_up, vec![plan(1_000, None)], next].concat(),
        moods: vec![(0, 0, Mood::Slow), (15_000, 0, Mood::Open), (LIMIT_ENDS, 0, Mood::Open)],
        weather: vec![(5_000, Weather::NoChannels(LIMIT_ENDS))],
    };
    let broker = Broker::new(&scenario);
    broker.lock().has_scout = true;
    let publishing = publish_all(&scenario, broker.clone(), LONGEST);
    let ended = dialing(Arc::new(broker), publishing).await;
    for ended in &ended[6..] {
        let Some((Ok(()), waited)) = ended else { panic!("{ended:?}") };
        assert!(*waited < Duration::from_secs(60), "{waited:?}");
    }
}

/// The scout has no connection here.
#[tokio::test(start_paused = true)]
async fn what_a_copy_shows_to_be_missing_is_declared_again_also_without_a_third_connection() {
    let scenario = Scenario {
        seed: 1,
        goes_on_refusing: false,
        copies: copies(Nature::Fine, 1),
        moods: vec![(0, 0, Mood::Missing), (60_000, 0, Mood::Open)],
        weather: Vec::new(),
    };
    let broker = Broker::new(&scenario);
    dialing(Arc::new(broker.clone()), async {
        let (name, kind) = ("x0".to_owned(), ExchangeKind::Fanout);
        let exchanges = vec![Exchange { name, kind, arguments: Arguments::new() }];
        let (publisher, _running, keeper, link) =
            start_with(Topology { exchanges, ..Topology::default() });
        let living = tokio::spawn(broker.clone().live());
        keeper.declare(&link.get().await.unwrap(), 0).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = broker.lock().declared;
        broker.lock().fates[0].is_wanted = true;
        publisher.publish(copy(0, 0), &CancellationToken::new()).await.unwrap();
        assert!(broker.lock().declared > before, "declared {before} times before and after");
        living.await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_lane_panics_the_publishing_task() {
    let scenario = Scenario {
        seed: 1,
        goes_on_refusing: false,
        copies: Vec::new(),
        moods: Vec::new(),
        weather: Vec::new(),
    };
    let broker = Broker::new(&scenario);
    dialing(Arc::new(broker), async {
        let (publisher, running) = start();
        // The model has no such copy, and panics.
        let publishing =
            tokio::spawn(
                async move { publisher.publish(copy(7, 0), &CancellationToken::new()).await },
            );
        assert!(running.await.unwrap_err().is_panic());
        publishing.abort();
    })
    .await;
}
