//! The wire contract under the values that it is meant for, and under all others.
//!
//! Each property says how many random values it tried; `REHOP_TEST_INPUTS=100` tries a hundred
//! times as many.

mod copies;
mod priorities;
mod random;
mod reading;
mod room;
mod waits;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::protocol::basic::gen_properties;
use lapin::types::{
    AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable, LongString, ShortString,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::names::*;
use super::overflow::*;
use super::read::*;
use super::room::*;
use super::values::*;
use super::write::*;
use super::{Contract, Homes};
use crate::inputs::{inputs, texts};
use crate::message::{Address, Delivery};
use crate::retry::decision::Reason;
use crate::retry::decision::tests::fresh;
use crate::retry::ledger::{ErrorRecord, Ledger, MAX_ERRORS, Wait};
use crate::timestamp::Timestamp;
use crate::wait::ladder::{Ladder, legs};
use crate::wait::{MAX_DELAY, Path};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const RETURN: &str = "ns.return";
/// The most bytes that RabbitMQ takes as a content header by default (3.10, 4.0 and 4.3).
const FRAME_LIMIT: usize = 131_064;

/// Every header that a delivery is read from.
const READ: [&str; 13] = [
    WAIT_FOR,
    ATTEMPT,
    HOP,
    DEFERS,
    FIRST_SEEN_AT,
    FIRST_FAILED_AT,
    WAITING_SINCE,
    DUE_AT,
    EXPIRES_AT,
    EXCHANGE,
    ROUTING_KEY,
    ERRORS,
    CHAIN_ID,
];

fn contract() -> Contract {
    Contract {
        queue: "orders".to_owned(),
        homes: Homes {
            return_exchange: RETURN.to_owned(),
            after_prefixes: ["ns.after.".to_owned(), "ns.after.orders.".to_owned()],
            delay_exchange: "ns.delay".to_owned(),
        },
        expiry_header: EXPIRES_AT.to_owned(),
        max_age: None,
        counts_deliveries: true,
        counts_waits: false,
    }
}

type Headers = BTreeMap<ShortString, AMQPValue>;

fn headers<'a>(entries: impl IntoIterator<Item = (&'a str, AMQPValue)>) -> Headers {
    entries.into_iter().map(|(name, value)| (ShortString::from(name), value)).collect()
}

fn properties(headers: Headers) -> BasicProperties {
    BasicProperties::default().with_headers(FieldTable::from(headers))
}

fn address(exchange: &str, routing_key: &str) -> Address {
    Address { exchange: exchange.into(), routing_key: routing_key.into() }
}

/// A delivery whose headers are not read yet.
fn delivered(exchange: &str, properties: BasicProperties) -> Delivery {
    Delivery {
        address: address(exchange, "order.created"),
        origin: address(exchange, "order.created"),
        redelivered: false,
        delivery_tag: 1,
        properties,
        body: Bytes::from_static(b"{}"),
        ledger: fresh(),
    }
}

fn read_by(contract: &Contract, delivery: Delivery) -> (Delivery, Vec<Ignored>) {
    let Delivery { address, redelivered, properties, .. } = &delivery;
    let (ledger, origin, ignored) = contract.read(address, *redelivered, properties, NOW);
    (Delivery { ledger, origin, ..delivery }, ignored)
}

fn read(exchange: &str, headers: Headers) -> (Delivery, Vec<Ignored>) {
    read_by(&contract(), delivered(exchange, properties(headers)))
}

fn a_wait() -> Wait {
    Wait {
        since: NOW,
        due: NOW + Duration::from_secs(10),
        leg: Duration::from_secs(10),
        path: Path::Tier,
    }
}

/// The headers of the copy that goes to wait after a delivery with these.
fn waiting(delivery: &Delivery) -> Headers {
    let copy = contract()
        .checked_wait_copy(
            delivery,
            &delivery.ledger,
            a_wait(),
            &TraceHeaders::default(),
            Room::DEFAULT,
        )
        .unwrap();
    copy.headers().as_ref().unwrap().inner().clone()
}

/// A message that is back from its second wait, with nothing wrong.
fn well_formed() -> Headers {
    let mut ledger = fresh();
    ledger.hop = 2;
    ledger.attempts = 3;
    ledger.first_failed = Some(NOW);
    ledger.deadline = Some(NOW + Duration::from_secs(3600));
    ledger.chain_id = Some("chain".to_owned());
    ledger.errors = vec![ErrorRecord::new(NOW, 3, "class", "message")];
    let delivery = Delivery { ledger, ..delivered("shop", properties(Headers::new())) };
    waiting(&delivery)
}

const CLASS_WEIGHT_AND_BODY_SIZE: usize = 2 + 2 + 8;

fn encoded(properties: &BasicProperties) -> usize {
    let context = gen_properties(properties)(Vec::<u8>::new().into()).unwrap();
    CLASS_WEIGHT_AND_BODY_SIZE + context.write.len()
}
