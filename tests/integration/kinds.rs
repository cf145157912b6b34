//! Queues that others have declared, of each kind: which are consumed, and which are refused by
//! name.

use std::time::{Duration, Instant};

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use rehop::settings::{Declare, QueueType, Secret, WaitStrategy};
use rehop::{Error, Failure, QueueKind};
use rehop_testing::{Broker, eventually};

use crate::support::{Fixture, Log, PROMPTLY, SOON, millis, not_tried};

/// The queue of a fixture, declared by others.
struct Elsewhere {
    fixture: Fixture,
    /// Its exclusive queues exist for as long as this does.
    connection: Connection,
    channel: Channel,
}

type Arguments<'a> = &'a [(&'static str, AMQPValue)];

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

const DURABLE: QueueDeclareOptions = QueueDeclareOptions {
    passive: false,
    durable: true,
    exclusive: false,
    auto_delete: false,
    nowait: false,
};

impl Elsewhere {
    async fn new(test: &str, options: QueueDeclareOptions, arguments: Arguments<'_>) -> Self {
        let mut fixture = Fixture::new(test).await;
        fixture.settings.queue_mut(&fixture.queue).declare = Declare::Existing;
        let url = Broker::shared().await.amqp_url();
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let elsewhere = Self { fixture, connection, channel };
        elsewhere.declare(options, arguments).await;
        elsewhere
    }

    async fn declare(&self, options: QueueDeclareOptions, arguments: Arguments<'_>) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let queue = self.fixture.queue.as_str().into();
        self.channel.queue_declare(queue, options, table).await.unwrap();
    }

    async fn delete(&self) {
        let queue = self.fixture.queue.as_str().into();
        self.channel.queue_delete(queue, QueueDeleteOptions::default()).await.unwrap();
    }

    /// The error of a service, which comes at once: waiting would not help.
    async fn refusal(&self) -> Error {
        let began = Instant::now();
        let error = self.fixture.start_error().await;
        assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
        assert!(error.to_string().contains(&self.fixture.queue), "{error}");
        error
    }

    async fn is_refused_as(&self, expected: &QueueKind) {
        let error = self.refusal().await;
        let is_as_expected =
            matches!(&error, Error::UnsuitableQueue { kind, .. } if kind == expected);
        assert!(is_as_expected, "{expected:?}: {error}");
    }

    /// Publishes without a confirm.
    async fn publish(&self, priority: u8) {
        let (queue, options) = (self.fixture.queue.as_str().into(), BasicPublishOptions::default());
        let properties = BasicProperties::default().with_priority(priority);
        let publishing = self.channel.basic_publish("".into(), queue, options, b"x", properties);
        publishing.await.unwrap().await.unwrap();
    }

    /// Publishes with a confirm, on a connection of its own. The channel of a broker (measured on
    /// 3.10) remembers a queue by its name for a moment longer than the queue exists. A message that
    /// comes on it while the name already stands for a queue of another type crashes the channel,
    /// and the connection with it: 541.
    async fn publish_on_its_own(&self) {
        let url = Broker::shared().await.amqp_url();
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let (queue, properties) = (self.fixture.queue.as_str(), BasicProperties::default());
        let publishing = channel.basic_publish("".into(), queue.into(), options, b"x", properties);
        assert_eq!(publishing.await.unwrap().await.unwrap(), Confirmation::Ack(None));
        connection.close(200, "done".into()).await.unwrap();
    }

    /// How many messages are ready in it.
    async fn depth(&self) -> u32 {
        let queue = self.fixture.queue.as_str().into();
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let seen = self.channel.queue_declare(queue, options, FieldTable::default()).await;
        seen.unwrap().message_count()
    }

    async fn close(self) {
        self.delete().await;
        self.connection.close(200, "done".into()).await.unwrap();
    }
}

/// A stream keeps what is rejected and does not deliver it again. A single get would end the
/// connection (3.10, 4.0 and 4.3), so none is tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_refused_by_name_before_anything_is_taken_from_it() {
    let old = ("x-max-age", text("1D"));
    let kinds: [Vec<_>; 2] = [vec![], vec![old]];
    for more in kinds {
        let arguments = [vec![("x-queue-type", text("stream"))], more].concat();
        let mut it = Elsewhere::new("stream", DURABLE, &arguments).await;
        for said in [None, Some(QueueType::Quorum), Some(QueueType::Classic)] {
            it.fixture.settings.queue_mut(&it.fixture.queue).queue_type = said;
            it.is_refused_as(&QueueKind::Stream).await;
        }
        it.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classic_queue_that_the_settings_call_a_quorum_queue_ends_the_service_with_an_error_that_names_it()
 {
    for arguments in [vec![], vec![("x-queue-type", text("classic"))]] {
        let mut it = Elsewhere::new("called-quorum", DURABLE, &arguments).await;
        it.fixture.settings.queue_mut(&it.fixture.queue).queue_type = Some(QueueType::Quorum);
        it.is_refused_as(&QueueKind::Classic).await;
        it.close().await;
    }
}

/// The last consumer of such a queue takes its messages with it, and rehop ends consumers whenever
/// it takes fewer messages.
#[tokio::test(flavor = "multi_thread")]
async fn an_auto_delete_queue_is_refused_by_name_and_keeps_its_messages() {
    for durable in [true, false] {
        let options = QueueDeclareOptions { durable, auto_delete: true, ..DURABLE };
        let it = Elsewhere::new("auto-delete", options, &[]).await;
        it.publish(0).await;
        it.is_refused_as(&QueueKind::AutoDelete).await;
        it.fixture.has_depth(&it.fixture.queue, 1).await;
        it.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_queue_of_another_connection_is_refused_by_name() {
    let options = QueueDeclareOptions { exclusive: true, durable: false, ..DURABLE };
    let it = Elsewhere::new("exclusive", options, &[]).await;
    it.is_refused_as(&QueueKind::Exclusive).await;
    it.close().await;
}

/// Handlers see the priority of the message, whatever its copy waits with.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_each_other_kind_of_queue_wait_and_are_parked() {
    let classic = || ("x-queue-type", text("classic"));
    let quorum = || ("x-queue-type", text("quorum"));
    let single = || ("x-single-active-consumer", AMQPValue::Boolean(true));
    let transient = QueueDeclareOptions { durable: false, ..DURABLE };
    let checks: Vec<(&str, QueueDeclareOptions, Vec<_>)> = vec![
        ("classic", DURABLE, vec![classic()]),
        ("transient", transient, vec![]),
        ("priorities", DURABLE, vec![("x-max-priority", AMQPValue::LongInt(10))]),
        ("lazy", DURABLE, vec![("x-queue-mode", text("lazy"))]),
        // A broker without the plugin does not know this argument, and ignores it.
        ("deduplicating", DURABLE, vec![("x-message-deduplication", AMQPValue::Boolean(true))]),
        ("classic-single", DURABLE, vec![classic(), single()]),
        ("quorum", DURABLE, vec![quorum()]),
        ("quorum-single", DURABLE, vec![quorum(), single()]),
        ("locator", DURABLE, vec![quorum(), ("x-queue-leader-locator", text("balanced"))]),
    ];
    for (kind, options, arguments) in checks {
        let types = if arguments.contains(&quorum()) {
            vec![None, Some(QueueType::Quorum), Some(QueueType::Classic)]
        } else {
            vec![None, Some(QueueType::Classic)]
        };
        for said in types {
            let mut it = Elsewhere::new(kind, options, &arguments).await;
            it.fixture.settings.queue_mut(&it.fixture.queue).queue_type = said;
            it.fixture.retry().delays = millis([100]);
            let note = |message: &rehop::Message<bytes::Bytes>| (message.hop(), message.priority());
            let (run, seen) = it.fixture.serve_noting(note, Err(Failure::transient("no"))).await;
            // In the queue, or on its way there: a new quorum queue may refuse the first ones.
            eventually(SOON, &format!("{kind} takes a message"), async || {
                it.publish(7).await;
                let first = tokio::time::timeout(Duration::from_secs(2), seen.reaches(1)).await;
                first.map(|_| true).map_err(|_| "no attempt yet".to_owned())
            })
            .await
            .unwrap();
            it.fixture.drain_parked(1).await;
            run.stop().await;
            let seen = seen.all();
            for hop in [0, 1] {
                assert!(seen.contains(&(hop, Some(7))), "{kind}: {seen:?}");
            }
            it.close().await;
        }
    }
}

/// Only the type can be asked for then.
#[tokio::test(flavor = "multi_thread")]
async fn an_existing_queue_is_consumed_without_the_permission_to_configure_it() {
    if Broker::shared().await.management_url().is_none() {
        return not_tried("permissions, because REHOP_TEST_MANAGEMENT_URL is not set");
    }
    let mut it = Elsewhere::new("unconfigured", DURABLE, &[]).await;
    let others = format!("^(?!{}$).*", it.fixture.queue);
    it.fixture.limit("unconfigured", [&others, ".*", ".*"]).await;
    let (run, seen) = it.fixture.serve_noting(|_| (), Ok(())).await;
    it.publish(0).await;
    seen.reaches(1).await;
    run.stop().await;
    it.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_work_queue_that_becomes_a_stream_is_not_consumed_until_it_is_a_queue_again() {
    let it = Elsewhere::new("becomes-stream", DURABLE, &[]).await;
    let seen = Log::default();
    let log = seen.clone();
    let (run, status) = it
        .fixture
        .start(move |_| {
            log.push(());
            std::future::ready(Ok(()))
        })
        .await;
    it.publish_on_its_own().await;
    seen.reaches(1).await;
    it.delete().await;
    it.declare(DURABLE, &[("x-queue-type", text("stream"))]).await;
    it.publish_on_its_own().await;
    let is_said = async || {
        let problems = status.problems();
        let is_said = problems.iter().any(|problem| problem.contains("unsuitable kind"));
        if is_said { Ok(true) } else { Err(format!("{problems:?}")) }
    };
    eventually(SOON, "the status says that the queue is a stream", is_said).await.unwrap();
    assert!(!run.has_ended());
    assert_eq!(seen.all().len(), 1, "a message of the stream has been handled");
    it.delete().await;
    it.declare(DURABLE, &[]).await;
    it.publish_on_its_own().await;
    seen.reaches(2).await;
    run.stop().await;
    assert_eq!(it.depth().await, 0, "the service has handed back what it had not handled");
    it.close().await;
}

/// 4.0 takes high and normal priorities of a quorum queue apart, and so would wait queues.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_wait_beside_a_stream_of_priority_9_come_home_in_time() {
    come_home_in_time_beside_priority_9("beside-nine", WaitStrategy::Tiers).await;
}

/// On the ladder, a wait of two seconds passes two of these rungs.
#[tokio::test(flavor = "multi_thread")]
async fn messages_on_the_ladder_beside_a_stream_of_priority_9_come_home_in_time() {
    come_home_in_time_beside_priority_9("ladder-nine", WaitStrategy::Ladder).await;
}

async fn come_home_in_time_beside_priority_9(test: &str, strategy: WaitStrategy) {
    const NORMAL: usize = 30;
    let wait = Duration::from_secs(2);
    let mut it = Elsewhere::new(test, DURABLE, &[("x-queue-type", text("quorum"))]).await;
    it.fixture.settings.queue_mut(&it.fixture.queue).queue_type = Some(QueueType::Quorum);
    it.fixture.settings.broker.url = Secret::from(Broker::shared().await.amqp_url());
    it.fixture.retry().delays = millis([2_000]);
    it.fixture.retry().strategy = Some(strategy);
    it.fixture.settings.ladder.rung = Duration::from_millis(400);
    it.fixture.settings.ladder.max = Duration::from_millis(3_200);
    let attempts = Log::default();
    let log = attempts.clone();
    let run = it
        .fixture
        .serve(move |message| {
            let (hop, priority) = (message.hop(), message.priority());
            log.push((hop, priority, Instant::now()));
            let fails = hop == 0;
            std::future::ready(if fails { Err(Failure::transient("no")) } else { Ok(()) })
        })
        .await;
    it.fixture.is_subscribed().await;
    for _ in 0..3 {
        it.publish(9).await;
    }
    for _ in 0..NORMAL {
        it.publish(0).await;
    }
    let of_normal = |hop: u32| {
        let attempts = attempts.all();
        let of = attempts
            .into_iter()
            .filter(move |(at, priority, _)| *at == hop && *priority == Some(0));
        of.map(|(_, _, at)| at).collect::<Vec<_>>()
    };
    let mut every_second = tokio::time::interval(Duration::from_secs(1));
    let began = Instant::now();
    while of_normal(1).len() < NORMAL {
        assert!(began.elapsed() < SOON, "{} of {NORMAL} are home", of_normal(1).len());
        every_second.tick().await;
        it.publish(9).await;
    }
    let failed = of_normal(0).into_iter().max().unwrap();
    let late = of_normal(1).into_iter().max().unwrap() - failed;
    assert!(late < wait + Duration::from_secs(13), "the last was home after {late:?}");
    run.stop().await;
    it.close().await;
}
