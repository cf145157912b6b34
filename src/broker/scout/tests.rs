//! What a service does where the broker allows it few connections or channels, by a broker that
//! knows nothing but its limits.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use futures_util::stream::BoxStream;
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Confirmation, ErrorKind, Event, ExchangeKind};
use tokio::time::sleep;

use super::*;
use crate::broker::acks::Frame;
use crate::broker::client::{Answer, Channel, QueueCounts, Subscription};
use crate::broker::dial::{Dial, dialing};
use crate::settings::BrokerSettings;

/// What anything takes on its way.
const LATENCY: Duration = Duration::from_millis(5);
/// For how long a closed channel is counted.
const COUNTED_FOR: Duration = Duration::from_millis(20);

/// What happens to a connection that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialed {
    Opened,
    Refused,
    OverLimit,
    Silent,
}

/// A broker that allows so many channels.
struct Limited {
    channels: AtomicUsize,
    most_channels: AtomicUsize,
    dialed: Mutex<Dialed>,
    /// It answers nothing.
    is_silent: AtomicBool,
}

impl Limited {
    fn new(most_channels: usize) -> Arc<Self> {
        Arc::new(Self {
            channels: AtomicUsize::new(0),
            most_channels: AtomicUsize::new(most_channels),
            dialed: Mutex::new(Dialed::Opened),
            is_silent: AtomicBool::new(false),
        })
    }

    fn dials(&self, dialed: Dialed) {
        *lock(&self.dialed) = dialed;
    }
}

impl Dial for Arc<Limited> {
    fn dial(
        &self,
        _: &BrokerSettings,
        address: &str,
        _: &str,
        _: Duration,
    ) -> BoxFuture<'_, Result<Arc<dyn Connection>, Error>> {
        let (broker, dialed) = (address.to_owned(), *lock(&self.dialed));
        let connection = LimitedConnection { broker: self.clone(), is_open: true.into() };
        async move {
            match dialed {
                Dialed::Opened => Ok(Arc::new(connection) as Arc<dyn Connection>),
                Dialed::Refused => {
                    Err(Error::Connect { broker, problem: "connection refused".to_owned().into() })
                }
                Dialed::Silent => std::future::pending().await,
                Dialed::OverLimit => Err(Error::of_operation(
                    "connecting",
                    &not_allowed(
                        "connection refused for user 'svc': user connection limit (2) is reached",
                    ),
                )),
            }
        }
        .boxed()
    }
}

fn not_allowed(text: &str) -> lapin::Error {
    let kind = AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED);
    let text = format!("NOT_ALLOWED - {text}");
    ErrorKind::ProtocolError(AMQPError::new(kind, text.as_str().into())).into()
}

struct LimitedConnection {
    broker: Arc<Limited>,
    is_open: AtomicBool,
}

impl Connection for LimitedConnection {
    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn frame_max(&self) -> u32 {
        0
    }

    fn channel_max(&self) -> u16 {
        2_047
    }

    fn events(&self) -> BoxStream<'static, Event> {
        unreachable!()
    }

    fn open_channel(&self) -> Answer<'_, Arc<dyn Channel>> {
        async {
            sleep(LATENCY).await;
            let broker = &self.broker;
            if broker.is_silent.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            if broker.channels.load(Ordering::Relaxed) >= broker.most_channels.load(Ordering::Relaxed)
            {
                self.is_open.store(false, Ordering::Relaxed);
                let text = "number of channels opened for user 'svc' has reached the maximum allowed user limit of 1";
                return Err(not_allowed(text));
            }
            broker.channels.fetch_add(1, Ordering::Relaxed);
            sleep(LATENCY).await;
            let channel = LimitedChannel { broker: broker.clone(), is_closed: false.into() };
            Ok(Arc::new(channel) as Arc<dyn Channel>)
        }
        .boxed()
    }

    fn close(&self, _: &'static str) -> Answer<'_, ()> {
        self.is_open.store(false, Ordering::Relaxed);
        async { Ok(()) }.boxed()
    }
}

struct LimitedChannel {
    broker: Arc<Limited>,
    is_closed: AtomicBool,
}

impl LimitedChannel {
    fn ends(&self) {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let broker = self.broker.clone();
        tokio::spawn(async move {
            sleep(COUNTED_FOR).await;
            broker.channels.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl Drop for LimitedChannel {
    fn drop(&mut self) {
        self.ends();
    }
}

impl Channel for LimitedChannel {
    fn is_open(&self) -> bool {
        true
    }

    fn closed_by_broker(&self) -> Option<lapin::Error> {
        None
    }

    fn set_prefetch(&self, _: u16) -> Answer<'_, ()> {
        unreachable!()
    }

    fn consume(
        &self,
        _: ShortString,
        _: BasicConsumeOptions,
        _: FieldTable,
    ) -> Answer<'_, Subscription> {
        unreachable!()
    }

    fn cancel(&self, _: ShortString) -> Answer<'_, ()> {
        unreachable!()
    }

    fn get(&self, _: ShortString) -> Answer<'_, Option<Delivery>> {
        unreachable!()
    }

    fn send_settlement(&self, _: Frame) -> bool {
        unreachable!()
    }

    fn flush(&self) -> Answer<'static, ()> {
        unreachable!()
    }

    fn confirm_select(&self) -> Answer<'_, ()> {
        unreachable!()
    }

    fn publish<'a>(
        &'a self,
        _: ShortString,
        _: ShortString,
        _: &'a [u8],
        _: BasicProperties,
        _: bool,
    ) -> Answer<'a, Confirmation> {
        unreachable!()
    }

    fn declare_queue(
        &self,
        _: ShortString,
        _: QueueDeclareOptions,
        _: FieldTable,
    ) -> Answer<'_, QueueCounts> {
        unreachable!()
    }

    fn declare_exchange(
        &self,
        _: ShortString,
        _: ExchangeKind,
        _: ExchangeDeclareOptions,
        _: FieldTable,
    ) -> Answer<'_, ()> {
        unreachable!()
    }

    fn bind_queue(
        &self,
        _: ShortString,
        _: ShortString,
        _: ShortString,
        _: FieldTable,
    ) -> Answer<'_, ()> {
        unreachable!()
    }

    fn unbind_queue(
        &self,
        _: ShortString,
        _: ShortString,
        _: ShortString,
        _: FieldTable,
    ) -> Answer<'_, ()> {
        unreachable!()
    }

    fn bind_exchange(&self, _: ShortString, _: ShortString) -> Answer<'_, ()> {
        unreachable!()
    }

    fn delete_queue(&self, _: ShortString) -> Answer<'_, ()> {
        unreachable!()
    }

    fn delete_exchange(&self, _: ShortString, _: bool) -> Answer<'_, ()> {
        unreachable!()
    }

    fn close(&self, _: &'static str) -> Answer<'_, ()> {
        async {
            sleep(LATENCY).await;
            self.ends();
            Ok(())
        }
        .boxed()
    }
}

/// Runs this with a scout, and a link that is not the scout's, at a broker with these limits.
fn at<F: Future<Output = ()>>(
    most_channels: usize,
    run: impl FnOnce(Arc<Limited>, Arc<Scout>, Arc<Link>) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let broker = Limited::new(most_channels);
    runtime.block_on(dialing(Arc::new(broker.clone()), async {
        let link = |name: &str| Arc::new(Link::new(name.to_owned(), BrokerSettings::default()));
        let (scout, other) = (Arc::new(Scout::new(link("keeping"))), link("consuming"));
        run(broker, scout, other).await;
    }));
}

async fn look(connection: Arc<dyn Connection>) -> Result<(), Error> {
    let opening = connection.open_channel();
    let channel = answer("opening a channel", TRIAL_LIMIT, opening).await?;
    sleep(LATENCY).await;
    answer("closing a channel", TRIAL_LIMIT, channel.close("done")).await
}

/// The second one begins at each moment in turn.
#[test]
fn two_channels_that_are_opened_at_the_same_moment_do_not_both_take_the_last_place() {
    for after in 0..100 {
        at(1, async |_, scout, link| {
            let connection = link.get().await.unwrap();
            let open = async |after| {
                sleep(Duration::from_millis(after)).await;
                let place = scout.place().await.ok()?;
                Some(place.open(connection.open_channel()).await)
            };
            let (one, other) = join(open(0), open(after)).await;
            let opened = [one, other].into_iter().flatten().map(|opened| opened.is_ok());
            assert_eq!(opened.collect::<Vec<_>>(), [true], "{after} ms: the other was not tried");
            assert!(connection.is_open());
        });
    }
}

#[test]
fn several_channels_that_wait_for_their_places_are_tried_together() {
    at(20, async |_, scout, link| {
        let connection = link.get().await.unwrap();
        let began = clock::now();
        let open = || async {
            scout.place().await.unwrap().open(connection.open_channel()).await.unwrap()
        };
        let channels = join_all((0..17).map(|_| open())).await;
        assert_eq!(channels.len(), 17);
        let openings = 17 * 2 * LATENCY;
        assert!(clock::elapsed(began) < openings + 4 * 2 * STILL_COUNTED, "{began:?}");
    });
}

/// A look begins at each moment in turn.
#[test]
fn a_look_does_not_take_the_place_that_was_tried_for_another_channel() {
    for after in 0..100 {
        at(1, async |_, scout, link| {
            let connection = link.get().await.unwrap();
            let open = async {
                let place = scout.place().await.ok()?;
                Some(place.open(connection.open_channel()).await.is_ok())
            };
            let looking = async {
                sleep(Duration::from_millis(after)).await;
                scout.visit(None, look).await
            };
            let (opened, _) = join(open, looking).await;
            assert_ne!(opened, Some(false), "a look after {after} ms took its place");
            assert!(connection.is_open(), "after {after} ms");
        });
    }
}

#[test]
fn a_channel_that_a_limit_forbids_costs_only_the_scouts_connection() {
    at(0, async |broker, scout, link| {
        let connection = link.get().await.unwrap();
        let refused = scout.place().await.err().unwrap();
        assert!(matches!(refused.limit(), Some(Limit::UserChannels { .. })), "{refused}");
        assert!(connection.is_open());
        broker.most_channels.store(1, Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        scout.place().await.unwrap().open(connection.open_channel()).await.unwrap();
    });
}

#[test]
fn a_channel_that_was_refused_is_not_risked_because_a_slow_broker_answers_no_trial() {
    at(0, async |broker, scout, link| {
        let _connection = link.get().await.unwrap();
        broker.is_silent.store(true, Ordering::Relaxed);
        assert!(scout.place().await.is_ok(), "no limit is known");
        broker.is_silent.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        assert!(scout.place().await.is_err());
        broker.is_silent.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        let refused = scout.place().await.err().expect("the limit is known");
        assert!(matches!(refused.limit(), Some(Limit::UserChannels { .. })), "{refused}");
    });
}

/// The scout has no connection, as where a user may have two.
#[test]
fn beside_a_queue_that_is_consumed_a_known_limit_is_risked_ever_less_often() {
    at(1, async |broker, scout, link| {
        let _publishing = link.get().await.unwrap();
        let consuming = Link::new("consuming".to_owned(), BrokerSettings::default());
        let began = clock::now();
        let mut losses = Vec::new();
        while clock::elapsed(began) < Duration::from_secs(3_600) {
            broker.dials(Dialed::Opened);
            let connection = consuming.get().await.unwrap();
            broker.dials(Dialed::OverLimit);
            // For up to 10 s after a refusal, nothing is tried.
            while scout.visit(Some(&connection), look).await.is_err() {
                sleep(Duration::from_secs(1)).await;
            }
            let (place, consumed) = scout.place_to_consume().await.unwrap();
            let channel = place.open(connection.open_channel()).await.unwrap();
            // The other queue.
            while connection.is_open() {
                assert!(scout.visit(Some(&connection), look).await.is_err());
                sleep(Duration::from_secs(1)).await;
            }
            losses.push(clock::elapsed(began).as_secs());
            drop((consumed, channel));
            sleep(COUNTED_FOR).await;
        }
        let pauses = losses.windows(2).map(|two| two[1] - two[0]);
        let known_for = [10, 20, 40, 80, 160].into_iter().chain(std::iter::repeat(300));
        for (pause, known_for) in pauses.zip(known_for) {
            assert!((known_for..known_for + 15).contains(&pause), "{known_for}: {losses:?}");
        }
        assert!(losses.len() > 12, "{losses:?}");
    });
}

#[test]
fn a_limit_that_was_reached_for_a_moment_soon_keeps_no_queue_from_being_consumed() {
    at(1, async |broker, scout, link| {
        let consuming = link.get().await.unwrap();
        let publishing = Link::new("publishing".to_owned(), BrokerSettings::default());
        let publishing = publishing.get().await.unwrap();
        broker.dials(Dialed::OverLimit);
        let (place, consumed) = scout.place_to_consume().await.unwrap();
        let _channel = place.open(consuming.open_channel()).await.unwrap();
        assert!(scout.visit(Some(&publishing), look).await.is_err());
        broker.most_channels.store(3, Ordering::Relaxed);
        assert!(scout.visit(Some(&consuming), look).await.is_err(), "the limit may still be there");
        sleep(NARROW_FOR).await;
        assert!(scout.visit(Some(&consuming), look).await.is_ok());
        assert!(scout.place_to_consume().await.is_ok() && scout.place().await.is_ok());
        broker.most_channels.store(1, Ordering::Relaxed);
        assert!(scout.visit(Some(&publishing), look).await.is_err());
        broker.most_channels.store(3, Ordering::Relaxed);
        drop(consumed);
        // The pause after a refusal.
        sleep(Duration::from_secs(10)).await;
        assert!(scout.is_narrow());
        let unconsumed = scout.visit(Some(&consuming), look).await;
        assert!(unconsumed.is_ok(), "a connection with nothing to lose is tried");
        assert!(scout.place_to_consume().await.is_ok());
    });
}

/// Two queues were consumed when a third one found no room, and were lost with their connection.
#[test]
fn what_was_consumed_before_is_consumed_again_at_once_and_only_what_found_no_room_waits() {
    at(2, async |broker, scout, link| {
        let _publishing = link.get().await.unwrap();
        let consuming = Link::new("consuming".to_owned(), BrokerSettings::default());
        for round in 0..2 {
            broker.dials(Dialed::Opened);
            let connection = consuming.get().await.unwrap();
            broker.dials(Dialed::OverLimit);
            let mut consumed = Vec::new();
            for queue in 0..2 {
                scout.visit(Some(&connection), look).await.unwrap();
                let place = scout.place_to_consume().await;
                let (place, one) = place.unwrap_or_else(|error| panic!("{round} {queue}: {error}"));
                consumed.push((one, place.open(connection.open_channel()).await.unwrap()));
            }
            let third = scout.visit(Some(&connection), look).await;
            assert_eq!((third.is_err(), connection.is_open()), (true, round == 1));
            drop(consumed);
            sleep(COUNTED_FOR).await;
            // The pause after a refusal.
            sleep(Duration::from_secs(5)).await;
        }
    });
}

#[test]
fn channels_are_opened_one_at_a_time_for_ever_longer_after_each_refusal() {
    at(0, async |broker, scout, _| {
        let refused = async || {
            assert!(scout.place().await.is_err());
            let since = clock::now();
            while scout.is_narrow() {
                assert_eq!(scout.at_once(8), 1);
                sleep(Duration::from_secs(1)).await;
            }
            clock::elapsed(since).as_secs()
        };
        for lasts in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(refused().await, lasts);
        }
        broker.most_channels.store(8, Ordering::Relaxed);
        sleep(NARROW_FOR_AT_MOST).await;
        drop(scout.place().await.unwrap());
        assert_eq!(scout.at_once(8), 8);
        broker.most_channels.store(0, Ordering::Relaxed);
        assert_eq!(refused().await, 10);
    });
}

/// Given up at each moment in turn.
#[test]
fn a_channel_that_is_given_up_while_it_is_opened_is_closed() {
    for after in 0..100 {
        at(8, async |broker, scout, link| {
            let connection = link.get().await.unwrap();
            let opening = async {
                let place = scout.place().await.unwrap();
                place.open(connection.open_channel()).await
            };
            drop(tokio::time::timeout(Duration::from_millis(after), opening).await);
            sleep(Duration::from_secs(1)).await;
            assert_eq!(broker.channels.load(Ordering::Relaxed), 0, "after {after} ms");
        });
    }
}

#[test]
fn while_the_scout_is_connected_in_vain_nobody_waits_for_others() {
    at(20, async |broker, scout, link| {
        let connection = link.get().await.unwrap();
        broker.dials(Dialed::Silent);
        let began = clock::now();
        let open = || async {
            scout.place().await.unwrap().open(connection.open_channel()).await.unwrap()
        };
        let channels = join_all((0..17).map(|_| open())).await;
        assert_eq!(channels.len(), 17);
        assert!(clock::elapsed(began) < 2 * TRIAL_LIMIT + 17 * 3 * LATENCY);
    });
}

#[test]
fn without_a_connection_of_its_own_the_scout_works_on_another_one_whatever_keeps_it_from_having_one()
 {
    for dialed in [Dialed::Refused, Dialed::OverLimit] {
        at(5, async |broker, scout, link| {
            let connection = link.get().await.unwrap();
            broker.dials(dialed);
            assert!(scout.visit(None, look).await.is_err(), "{dialed:?}");
            assert!(scout.visit(Some(&connection), look).await.is_ok(), "{dialed:?}");
            assert!(scout.works_elsewhere());
            broker.dials(Dialed::Opened);
            sleep(Duration::from_secs(60)).await;
            assert!(scout.visit(Some(&connection), look).await.is_ok());
            assert!(!scout.works_elsewhere());
        });
    }
}

#[test]
fn where_a_limit_of_channels_is_reached_no_other_connection_is_risked() {
    at(0, async |_, scout, link| {
        let connection = link.get().await.unwrap();
        for _ in 0..3 {
            assert!(scout.visit(Some(&connection), look).await.is_err());
            assert!(!scout.works_elsewhere() && connection.is_open());
        }
    });
}

#[test]
fn where_a_limit_allows_no_other_connection_an_abandoned_one_is_used_again() {
    at(5, async |broker, _, link| {
        let connection = link.get().await.unwrap();
        // As a session that goes on with it.
        let in_use = connection.clone();
        broker.dials(Dialed::Refused);
        link.abandon(&connection);
        assert!(link.get().await.is_err(), "no limit keeps another one from being opened");
        broker.dials(Dialed::OverLimit);
        let again = link.get().await.unwrap();
        assert!(Arc::ptr_eq(&again, &connection));
        link.abandon(&connection);
        drop((connection, again, in_use));
        assert!(link.get().await.is_err(), "nobody uses it, so it is about to be closed");
    });
}
