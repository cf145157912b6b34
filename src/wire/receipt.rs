//! What a consumer tells the operator of a replayed message.

use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

use super::names::{CHAIN_ID, ERRORS, FATE, PARKED_AT, REASON, REPLAY_NUMBER, RETURN_TO};
use super::read::Reader;
use super::values::{errors_value, insert, moment_value, text};
use crate::retry::ledger::ErrorRecord;
use crate::timestamp::Timestamp;

/// The fate of one replayed message.
#[derive(Debug, Clone, PartialEq)]
pub struct Receipt {
    /// Which of the replay's messages it is.
    pub number: u32,
    pub fate: Fate,
}

/// How an attempt at a replayed message ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    Handled,
    /// It failed, and is retried after a wait.
    Waiting,
    /// Its handler or its policy discarded it.
    Discarded,
    Parked(Box<Parking>),
}

/// Why a replayed message parked again. Its own headers say the same, under the same names.
#[derive(Debug, Clone, PartialEq)]
pub struct Parking {
    /// The work queue.
    pub queue: String,
    pub chain_id: String,
    pub reason: String,
    pub at: Option<Timestamp>,
    pub last_error: Option<ErrorRecord>,
}

const HANDLED: &str = "handled";
const WAITING: &str = "waiting";
const DISCARDED: &str = "discarded";
const PARKED: &str = "parked";

impl Receipt {
    pub fn headers(&self) -> FieldTable {
        let mut headers = BTreeMap::new();
        insert(&mut headers, REPLAY_NUMBER, AMQPValue::LongLongInt(i64::from(self.number)));
        let fate = match &self.fate {
            Fate::Handled => HANDLED,
            Fate::Waiting => WAITING,
            Fate::Discarded => DISCARDED,
            Fate::Parked(parking) => {
                insert(&mut headers, RETURN_TO, text(&parking.queue));
                insert(&mut headers, CHAIN_ID, text(&parking.chain_id));
                insert(&mut headers, REASON, text(&parking.reason));
                if let Some(at) = parking.at {
                    insert(&mut headers, PARKED_AT, moment_value(at));
                }
                insert(&mut headers, ERRORS, errors_value(parking.last_error.as_slice()));
                PARKED
            }
        };
        insert(&mut headers, FATE, text(fate));
        headers.into()
    }

    /// Reads a receipt. Anyone may publish to the exchange, so what is malformed is no receipt.
    pub fn read(properties: &BasicProperties) -> Option<Self> {
        let mut reader = Reader::new(properties);
        reader.header(REPLAY_NUMBER)?;
        let fate = match reader.text(FATE)?.as_str() {
            HANDLED => Fate::Handled,
            WAITING => Fate::Waiting,
            DISCARDED => Fate::Discarded,
            PARKED => Fate::Parked(Box::new(Parking {
                queue: reader.text(RETURN_TO)?,
                chain_id: reader.text(CHAIN_ID)?,
                reason: reader.text(REASON)?,
                at: reader.moment(PARKED_AT),
                last_error: reader.errors().pop(),
            })),
            _ => return None,
        };
        Some(Self { number: reader.count(REPLAY_NUMBER), fate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_as_it_was_written_and_anything_else_is_none() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let parking = |last_error| Parking {
            queue: "orders".to_owned(),
            chain_id: "chain".to_owned(),
            reason: "permanent".to_owned(),
            at: Some(at),
            last_error,
        };
        let failed = parking(Some(ErrorRecord::new(at, 1, "class", "message")));
        let parked = [failed, parking(None)].map(|parking| Fate::Parked(Box::new(parking)));
        for fate in [Fate::Handled, Fate::Waiting, Fate::Discarded].into_iter().chain(parked) {
            let receipt = Receipt { number: 7, fate };
            assert_eq!(
                Receipt::read(&BasicProperties::default().with_headers(receipt.headers())),
                Some(receipt)
            );
        }
        assert_eq!(Receipt::read(&BasicProperties::default()), None);
        let mut headers = Receipt { number: 7, fate: Fate::Handled }.headers();
        for unfit in ["eaten", PARKED] {
            headers.insert(FATE.into(), text(unfit));
            assert_eq!(
                Receipt::read(&BasicProperties::default().with_headers(headers.clone())),
                None,
                "{unfit}"
            );
        }
    }
}
