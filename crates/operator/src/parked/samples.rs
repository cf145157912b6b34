//! A parked message, for tests.

use super::message::ParkedMessage;
use rehop::ErrorRecord;
use rehop::Timestamp;

pub fn sample() -> ParkedMessage {
    let error = ErrorRecord::new(
        Timestamp::from_millis(1_700_000_000_000),
        2,
        "http_503",
        "order 7 is not there",
    );
    ParkedMessage {
        position: 1,
        chain: "chain-7".to_owned(),
        reason: "exhausted".to_owned(),
        class: Some(error.class.clone()),
        error: Some(error.message.clone()),
        exchange: "shop".to_owned(),
        routing_key: "order.created".to_owned(),
        destination: Some("orders".to_owned()),
        attempts: 8,
        hops: 3,
        history: vec![error],
        first_seen: None,
        parked_at: None,
        deadline: None,
        replays: 0,
        replay_run: None,
        discard_run: None,
        discarded_from: None,
        message_id: None,
        content_type: None,
        traceparent: None,
        size: 100,
        returns: 0,
    }
}
