//! Messages with short strings that are not UTF-8 and with headers nested thousands deep. RabbitMQ
//! checks neither.

use rehop::{Consumer, Decode, DecodeError, Encoded, Failure, Message};
use rehop_operator::parked::{Filter, ImportRequest, ListRequest};
use rehop_testing::Publish;
use serde_json::{Value, json};

use crate::parked::{never, ramp, request};
use crate::support::raw_amqp::{RawClient, RawMessage, long, short};
use crate::support::{Fixture, Log, Running, SOON, millis};

const MESSAGE_ID: &[u8] = b"\x8F\xC3\x00\x17";
const ROUTING_KEY: &[u8] = b"M\xFCller";
const HEADER_NAME: &[u8] = b"na\xEFve";
const NESTED_NAME: &[u8] = b"\xFFin";

/// A table in a table, and so on: more than a parser that recurses can take.
fn nested() -> Vec<u8> {
    (0..2000)
        .fold(vec![b'V'], |value, _| [&b"F"[..], &long(&[short(b"in"), value].concat())].concat())
}

/// Headers and a message id.
fn hostile() -> RawMessage {
    let table = [&b"F"[..], &long(&[short(NESTED_NAME), b"t\x01".to_vec()].concat())].concat();
    let headers = [short(HEADER_NAME), table, short(b"deep"), nested()].concat();
    let properties = [&[0x20, 0x80][..], &long(&headers), &short(MESSAGE_ID)].concat();
    RawMessage { routing_key: ROUTING_KEY.to_vec(), properties, body: b"hi".to_vec() }
}

fn contains(properties: &[u8], bytes: &[u8]) -> bool {
    properties.windows(bytes.len()).any(|window| window == bytes)
}

#[track_caller]
fn assert_unchanged(message: &RawMessage) {
    for bytes in [short(MESSAGE_ID), short(HEADER_NAME), short(NESTED_NAME), nested()] {
        assert!(
            contains(&message.properties, &bytes),
            "{bytes:?} is missing in {:?}",
            message.properties
        );
    }
    assert_eq!(message.body, b"hi");
}

/// Declares everything, an exchange that leads to the work queue, and a queue that gets a copy of
/// each message that returns to the work queue. Returns the names of these two.
async fn declare_with_spy(fixture: &Fixture) -> (String, String) {
    let (client, namespace) = (&fixture.client, &fixture.namespace);
    let (shop, spy) = (namespace.exchange("shop"), namespace.queue("spy"));
    fixture.declare().await;
    client.declare_exchange(&shop, "topic", Value::Null).await.unwrap();
    client.bind(&fixture.queue, &shop, "#", Value::Null).await.unwrap();
    client.declare_queue(&spy, json!({ "x-queue-type": "quorum" })).await.unwrap();
    let returns = json!({ "x-match": "all", "rehop-return-to": fixture.queue });
    client.bind(&spy, &namespace.exchange("return"), "", returns).await.unwrap();
    // A new quorum queue refuses messages until it has a leader (3.10). This client publishes them
    // again, and the raw one does not.
    for queue in [&fixture.queue, &spy] {
        client.publish(Publish::to_queue(queue)).await.unwrap();
        client.drain(queue, 1, SOON).await.unwrap();
    }
    (shop, spy)
}

/// Reads everything that a decoder can see.
struct Everything;

impl Decode<Vec<String>> for Everything {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<Vec<String>, DecodeError> {
        let properties =
            [encoded.message_type(), encoded.content_type(), encoded.content_encoding()];
        let headers = encoded.headers().map(|(name, _)| name.to_owned());
        let key = encoded.routing_key().to_owned();
        let properties = properties.into_iter().flatten().map(str::to_owned);
        Ok(properties.chain([key]).chain(headers).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_reads_texts_that_are_not_utf_8_by_their_stand_ins() {
    let fixture = Fixture::new("bytes-decoder").await;
    let (shop, _) = declare_with_spy(&fixture).await;
    let mut raw = RawClient::connect(fixture.settings.broker.url.expose()).await;
    let seen = Log::default();
    let log = seen.clone();
    let handler = move |message: Message<Vec<String>>| {
        log.push(message.body);
        async { Ok::<_, Failure>(()) }
    };
    let consumer = Consumer::new(fixture.queue.clone(), handler).decode(Everything);
    let run = Running::start(fixture.service().with_consumer(consumer));
    // All three short strings that a decoder can ask for.
    let headers = long(&[short(HEADER_NAME), b"t\x01".to_vec()].concat());
    let properties =
        [&[0xe0, 0x20][..], &short(b"t\xFF"), &short(b"e\xFF"), &headers, &short(b"k\xFF")]
            .concat();
    let message =
        RawMessage { routing_key: ROUTING_KEY.to_vec(), properties, body: b"hi".to_vec() };
    raw.publish(&shop, &message).await;
    let mut seen = seen.reaches(1).await.remove(0);
    // 3.10 adds its count of deliveries.
    seen.retain(|text| !text.starts_with("x-"));
    // A header whose name is not UTF-8 is kept in one of rehop's, with all that is not.
    let expected = ["k\\xFF", "t\\xFF", "e\\xFF", "M\\xFCller", "rehop-bytes"];
    assert_eq!(seen, expected);
    assert_eq!(run.stop().await.handled, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_texts_are_not_utf_8_comes_through_and_comes_back_the_same() {
    let mut fixture = Fixture::new("bytes").await;
    fixture.retry().immediate = Some(1);
    fixture.retry().delays = millis([100]);
    let (shop, spy) = declare_with_spy(&fixture).await;
    let mut raw = RawClient::connect(fixture.settings.broker.url.expose()).await;

    let note = |message: &rehop::Message<bytes::Bytes>| {
        let id = message.message_id().map(str::to_owned);
        (
            message.attempt(),
            id,
            message.routing_key().to_owned(),
            message.header("rehop-bytes").is_some(),
        )
    };
    let (run, seen) = fixture.serve_noting(note, Err(Failure::transient("no"))).await;
    raw.publish(&shop, &hostile()).await;
    fixture.publish("next").await;
    fixture.has_depth(&fixture.parked(), 2).await;
    let summary = run.stop().await;
    assert_eq!(summary.parked.values().sum::<u64>(), 2, "{summary}");
    let hostile_ones = || seen.all().into_iter().filter(|(_, _, key, _)| *key != fixture.queue);
    let (id, key) = (Some("\\x8F\\xC3\0\u{17}".to_owned()), "M\\xFCller".to_owned());
    let attempts: Vec<_> = hostile_ones().map(|(attempt, ..)| attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    assert!(hostile_ones().all(|(.., has_originals)| has_originals));
    assert_eq!(seen.all().len(), 8, "no attempt of either was lost with its connection");
    assert!(
        hostile_ones().all(|(_, its_id, its_key, _)| its_id == id && its_key == key),
        "{:?}",
        seen.all()
    );

    let operator = fixture.operator();
    let mut rows = ListRequest::default();
    rows.rows = 9;
    let listing = operator.list(&rows).await.unwrap();
    assert_eq!(listing.messages.len(), 2);
    let (run, seen) = fixture.serve_noting(note, Ok(())).await;
    let replayed = operator.replay(&request(ramp(&[5])), |_| {}, never()).await.unwrap();
    assert!(replayed.is_success() && replayed.fates.handled == 2, "{replayed:?}");
    let seen = seen.reaches(2).await;
    assert!(
        seen.iter().any(|(_, its_id, its_key, _)| *its_id == id && *its_key == key),
        "{seen:?}"
    );
    run.stop().await;
    // Each message has waited once and was replayed once.
    fixture.has_depth(&spy, 4).await;
    let mut returned = Vec::new();
    for _ in 0..4 {
        returned.push(raw.get(&spy).await);
    }
    returned.retain(|message| message.routing_key == ROUTING_KEY);
    assert_eq!(returned.len(), 2, "it kept its routing key");
    for message in &returned {
        assert_unchanged(message);
        assert!(!contains(&message.properties, b"rehop-bytes"));
    }
}

/// The copy's own routing key is the queue's name, so a header keeps the bytes of the old one.
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_message_whose_texts_are_not_utf_8_has_their_bytes_and_is_exported_and_imported_with_them()
 {
    let fixture = Fixture::new("parked-bytes").await;
    let (shop, _) = declare_with_spy(&fixture).await;
    let url = fixture.settings.broker.url.expose();
    let mut raw = RawClient::connect(url).await;
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    raw.publish(&shop, &hostile()).await;
    fixture.has_depth(&fixture.parked(), 1).await;
    run.stop().await;
    let (operator, mut exported) = (fixture.operator(), Vec::new());
    let sink = |message| {
        exported.push(message);
        true
    };
    operator.export(&Filter::default(), None, sink).await.unwrap();
    let parked = RawClient::connect(url).await.look(&fixture.parked()).await;
    assert_unchanged(&parked);
    let kept = [&short(b"routing_key")[..], b"x", &long(ROUTING_KEY)].concat();
    assert!(
        contains(&parked.properties, &short(b"rehop-bytes")) && contains(&parked.properties, &kept),
        "{parked:?}"
    );
    // The broker takes back what was looked at.
    fixture.has_depth(&fixture.parked(), 1).await;
    raw.get(&fixture.parked()).await;
    operator
        .import(&ImportRequest::default(), exported.into_iter().map(Ok), never())
        .await
        .unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    let imported = raw.get(&fixture.parked()).await;
    assert_unchanged(&imported);
    assert!(contains(&imported.properties, &kept), "{imported:?}");
}

/// The broker's record is all that has its old routing key.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_broker_parks_is_replayed_with_the_bytes_of_its_routing_key() {
    let fixture = Fixture::new("broker-parked-bytes").await;
    let (shop, spy) = declare_with_spy(&fixture).await;
    let url = fixture.settings.broker.url.expose();
    let mut raw = RawClient::connect(url).await;
    raw.publish(&shop, &hostile()).await;
    fixture.has_depth(&fixture.queue, 1).await;
    RawClient::connect(url).await.reject(&fixture.queue).await;
    fixture.has_depth(&fixture.parked(), 1).await;
    let (run, seen) =
        fixture.serve_noting(|message| message.routing_key().to_owned(), Ok(())).await;
    let replayed = fixture.operator().replay(&request(ramp(&[5])), |_| {}, never()).await.unwrap();
    assert!(replayed.is_success(), "{replayed:?}");
    assert_eq!(seen.reaches(1).await, ["M\\xFCller"]);
    run.stop().await;
    fixture.has_depth(&spy, 1).await;
    let returned = raw.get(&spy).await;
    assert_unchanged(&returned);
    assert_eq!(returned.routing_key, ROUTING_KEY);
}
