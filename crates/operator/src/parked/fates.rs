//! What becomes of replayed messages, as their consumers report it.
//!
//! Nothing of this is bound to the park exchange. A queue there would be a route for every message
//! that parks, so that the alternate exchange would not see those whose parked queue is missing,
//! and they would end here.

use std::sync::Arc;

use futures_util::StreamExt;
use lapin::options::{BasicConsumeOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{ExchangeKind, message::Delivery};

use crate::parked::group::{Group, Groups, Member, MessageKind, normalise};
use crate::parked::progress::Fates;
use crate::parked::session::OperatorSession;
use crate::subscribe::subscribe;
use rehop::Error;
use rehop::internals::Names;
use rehop::internals::answer;
use rehop::internals::client::{Channel, Subscription};
use rehop::internals::receipt::{Fate, Parking, Receipt};
use rehop::internals::short;

/// The queue of fates holds at most so many receipts and bytes; the oldest make room. What is
/// missed counts as unknown.
const MAX_LENGTH: i64 = 100_000;
const MAX_BYTES: i64 = 64 * 1024 * 1024;

/// How many messages' fates are known, and the first number that stands for no message. `wire`
/// reads every greater number as this one.
pub(super) const MOST_FATES: u32 = 1_000_000;

/// Counts the fates of one replay's messages.
#[derive(Default)]
pub(crate) struct FateBook {
    /// How many fates are expected. Those beyond the bound are never known.
    expected: u64,
    known: Vec<Known>,
    /// By number, as `known` is: how large the bodies are.
    sizes: Vec<u64>,
    pub(super) fates: Fates,
    again: Groups,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Waiting,
    Final,
}

/// What a receipt told.
pub(crate) enum News {
    Nothing,
    /// A message is parked again.
    Parked(MessageKind),
}

impl FateBook {
    /// Expects the fate of another message, with a body of this size, and returns its number.
    pub(super) fn expect(&mut self, size: u64) -> u32 {
        self.expected += 1;
        if self.known.len() == MOST_FATES as usize {
            return MOST_FATES;
        }
        self.known.push(Known::Nothing);
        self.sizes.push(size);
        (self.known.len() - 1) as u32
    }

    /// The message that was expected last, under this number, is not sent after all.
    pub(super) fn forget(&mut self, number: u32) {
        self.expected -= 1;
        self.known.truncate(number as usize);
        self.sizes.truncate(number as usize);
    }

    /// The groups of messages that parked again.
    pub(super) fn into_groups(self) -> Vec<Group> {
        self.again.into_sorted()
    }

    /// Whether every message's fate is known.
    pub(super) fn is_complete(&self) -> bool {
        self.fates.known() == self.expected
    }

    pub(super) fn note(&mut self, delivery: &Delivery) -> News {
        let Some(Receipt { number, fate }) = Receipt::read(&delivery.properties) else {
            return News::Nothing;
        };
        match fate {
            Fate::Handled => self.ended(number, |fates| fates.handled += 1),
            Fate::Discarded => self.ended(number, |fates| fates.discarded += 1),
            Fate::Waiting => self.waits(number),
            Fate::Parked(parking) => {
                if self.ended(number, |fates| fates.parked_again += 1) {
                    return News::Parked(self.parked(number, *parking));
                }
                false
            }
        };
        News::Nothing
    }

    fn parked(&mut self, number: u32, parking: Parking) -> MessageKind {
        let Parking { queue, chain_id, reason, at, last_error } = parking;
        let kind = MessageKind {
            reason,
            class: last_error.as_ref().map(|error| error.class.clone()),
            error: last_error.as_ref().map(|error| normalise(&error.message)),
            destination: Some(queue),
        };
        let size = self.sizes.get(number as usize).copied().unwrap_or_default();
        let member = Member { chain: &chain_id, size, parked_at: at, was_replayed: true };
        self.again.add_member(kind.clone(), &member);
        kind
    }

    /// The first end counts: a duplicate may have another.
    fn ended(&mut self, number: u32, count: impl FnOnce(&mut Fates)) -> bool {
        let Some(known) =
            self.known.get_mut(number as usize).filter(|known| **known != Known::Final)
        else {
            return false;
        };
        if *known == Known::Waiting {
            self.fates.waiting -= 1;
        }
        *known = Known::Final;
        count(&mut self.fates);
        true
    }

    fn waits(&mut self, number: u32) -> bool {
        let Some(known) =
            self.known.get_mut(number as usize).filter(|known| **known == Known::Nothing)
        else {
            return false;
        };
        *known = Known::Waiting;
        self.fates.waiting += 1;
        true
    }
}

/// Subscribes to the receipts of a run. Ends with its channel.
pub(crate) struct FateStream {
    _channel: Arc<dyn Channel>,
    receipts: Subscription,
}

impl FateStream {
    /// Declares the queue of fates, and binds it to the receipts of this run.
    pub(super) async fn open(session: &OperatorSession, names: &Names) -> Result<Self, Error> {
        let (channel, limit) = (session.channel().await?, session.limit);
        let report = short(&names.report())?;
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let declaring = channel.declare_exchange(
            report.clone(),
            ExchangeKind::Direct,
            options,
            FieldTable::default(),
        );
        answer(&format!("declaring exchange {:?}", report.as_str()), limit, declaring).await?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(MAX_LENGTH));
        arguments.insert("x-max-length-bytes".into(), AMQPValue::LongLongInt(MAX_BYTES));
        let queue = short(&names.operator_fates(&session.run))?;
        let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        let what = format!("declaring queue {:?}", queue.as_str());
        answer(&what, limit, channel.declare_queue(queue.clone(), options, arguments)).await?;
        let options =
            BasicConsumeOptions { no_ack: true, exclusive: true, ..BasicConsumeOptions::default() };
        let consuming = subscribe(&*channel, queue.clone(), options, FieldTable::default());
        let receipts = answer("consuming the fates of replayed messages", limit, consuming).await?;
        let what = format!("binding queue {:?} to exchange {:?}", queue.as_str(), report.as_str());
        let binding =
            channel.bind_queue(queue, report, short(&session.run)?, FieldTable::default());
        answer(&what, limit, binding).await?;
        Ok(Self { _channel: channel, receipts })
    }

    /// The next receipt. Never returns once the subscription has ended: then what is unknown stays
    /// unknown.
    pub(super) async fn next(&mut self) -> Delivery {
        match self.receipts.deliveries.next().await {
            Some(Ok(delivery)) => delivery,
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;

    use super::*;
    use rehop::ErrorRecord;
    use rehop::Timestamp;

    fn receipt(number: u32, fate: &Fate) -> Delivery {
        let mut delivery = Delivery::mock(1, "".into(), "".into(), false, Vec::new());
        let receipt = Receipt { number, fate: fate.clone() };
        delivery.properties = BasicProperties::default().with_headers(receipt.headers());
        delivery
    }

    #[test]
    fn what_a_consumer_tells_is_counted_and_what_has_parked_again_is_grouped() {
        let (mut book, at) = (FateBook::default(), Timestamp::from_millis(1_700_000_000_000));
        for size in [10, 20, 30, 40] {
            book.expect(size);
        }
        let parked = |chain: &str| {
            let [queue, chain_id, reason] = ["orders", chain, "exhausted"].map(str::to_owned);
            let last_error = Some(ErrorRecord::new(at, 8, "busy", "order 7 is locked"));
            Fate::Parked(Box::new(Parking { queue, chain_id, reason, at: Some(at), last_error }))
        };
        let mut told = Vec::new();
        for (number, fate, expected) in [
            (0, Fate::Waiting, [0, 0, 0, 1]),
            (1, Fate::Handled, [1, 0, 0, 1]),
            (2, Fate::Discarded, [1, 0, 1, 1]),
            (3, parked("three"), [1, 1, 1, 1]),
            (0, parked("zero"), [1, 2, 1, 0]),
            // Ended already, and never sent.
            (0, parked("zero"), [1, 2, 1, 0]),
            (1, Fate::Waiting, [1, 2, 1, 0]),
            (4, Fate::Handled, [1, 2, 1, 0]),
        ] {
            if let News::Parked(kind) = book.note(&receipt(number, &fate)) {
                told.push(kind);
            }
            let Fates { handled, parked_again, discarded, waiting, .. } = book.fates;
            assert_eq!([handled, parked_again, discarded, waiting], expected, "{number} {fate:?}");
        }
        let text = |text: &str| Some(text.to_owned());
        let (class, error, destination) =
            (text("busy"), text("order <n> is locked"), text("orders"));
        let kind = MessageKind { reason: "exhausted".to_owned(), class, error, destination };
        let group = Group {
            kind: kind.clone(),
            count: 2,
            bytes: 50,
            oldest: Some(at),
            newest: Some(at),
            replayed_before: 2,
            samples: ["three", "zero"].map(str::to_owned).to_vec(),
        };
        assert_eq!((told, book.into_groups()), (vec![kind.clone(), kind], vec![group]));
    }

    #[test]
    fn a_fate_counts_once_and_a_message_that_is_not_sent_has_none() {
        let mut book = FateBook::default();
        let [first, second, third] = [1, 1, 1].map(|size| book.expect(size));
        assert_eq!([first, second, third], [0, 1, 2]);
        assert!(book.waits(first) && !book.waits(first));
        assert!(
            book.ended(first, |fates| fates.handled += 1)
                && !book.ended(first, |fates| fates.parked_again += 1)
        );
        book.forget(third);
        assert!(!book.is_complete() && !book.ended(third, |fates| fates.handled += 1));
        assert!(book.ended(second, |fates| fates.discarded += 1) && book.is_complete());
        assert_eq!(book.fates, Fates { handled: 1, discarded: 1, ..Fates::default() });
    }

    #[test]
    fn the_messages_beyond_the_bound_have_no_number_and_no_room_and_are_never_known() {
        let mut book = FateBook::default();
        let last = (0..=MOST_FATES).map(|_| book.expect(1)).max();
        // This is also what is read of any greater number.
        assert_eq!(
            (last, book.known.len(), book.sizes.len()),
            (Some(MOST_FATES), MOST_FATES as usize, MOST_FATES as usize)
        );
        assert!(book.ended(MOST_FATES - 1, |fates| fates.handled += 1));
        assert!(
            !book.ended(MOST_FATES, |fates| fates.handled += 1)
                && !book.ended(MOST_FATES + 1, |fates| fates.handled += 1)
        );
        book.fates.handled = u64::from(MOST_FATES);
        assert!(!book.is_complete());
        book.forget(MOST_FATES);
        assert!(book.is_complete());
    }
}
