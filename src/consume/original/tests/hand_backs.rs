//! A model of how 4.3 counts in a queue with delayed retries, and of a message whose handlers fail,
//! hang and die.

use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use proptest::prelude::*;

use super::super::*;
use crate::failure::Failure;
use crate::inputs::inputs;
use crate::message::Address;
use crate::retry::backoff::Backoff;
use crate::retry::decision::{Decision, Limits, decide};
use crate::retry::ledger::Wait;
use crate::retry::policy::RetryPolicy;
use crate::settings::RetrySettings;
use crate::timestamp::Timestamp;
use crate::topology::Names;
use crate::wait::Path;
use crate::wait::jitter::Draw;
use crate::wire::Contract;

#[test]
fn a_delayed_retry_is_not_spent_on_a_hand_back_unless_the_delivery_limit_is_reached() {
    let native = |redeliveries| hand_back_settlement(WaitStrategy::Native, redeliveries, 3);
    assert_eq!([None, Some(0), Some(2)].map(native), [Settlement::Requeue; 3]);
    assert_eq!([Some(3), Some(4)].map(native), [Settlement::Nack; 2]);
    for other in [WaitStrategy::Tiers, WaitStrategy::InProcess] {
        assert_eq!(hand_back_settlement(other, Some(0), 3), Settlement::Nack);
    }
}

/// What becomes of one delivery.
#[derive(Debug, Clone, Copy)]
enum Event {
    Fails,
    /// The process or its connection ends.
    Dies,
    /// The broker takes it back after its `consumer_timeout`, or after its node was lost.
    TimesOut,
    HandedBack,
}

/// The broker's counts of one message.
#[derive(Debug, Default)]
struct Counts {
    delivered: u32,
    counted: u32,
}

impl Counts {
    fn headers(&self, stale: Option<u32>) -> BasicProperties {
        let number = |count: u32| AMQPValue::LongLongInt(count.into());
        let mut headers = FieldTable::default();
        if let Some(count) = stale {
            headers.insert("x-delivery-count".into(), number(count));
        }
        if self.delivered > 0 {
            headers.insert("x-acquired-count".into(), number(self.delivered));
        }
        if self.counted > 0 {
            headers.insert("x-delivery-count".into(), number(self.counted));
        }
        BasicProperties::default().with_headers(headers)
    }
}

fn policy(immediate: u32, waits: u32, delivery_limit: u32) -> RetryPolicy {
    let settings = RetrySettings {
        strategy: Some(WaitStrategy::Native),
        delays: Some(Backoff::Fixed { delay: Duration::from_secs(30), waits }),
        immediate: Some(immediate),
        delivery_limit: Some(delivery_limit),
        ..RetrySettings::default()
    };
    RetryPolicy::new(&settings).unwrap()
}

fn contract() -> Contract {
    Contract {
        queue: "orders".to_owned(),
        homes: Names::new("rehop").homes("orders"),
        expiry_header: "rehop-expires-at".to_owned(),
        max_age: None,
        counts_deliveries: true,
        counts_waits: true,
    }
}

proptest! {
    #![proptest_config(inputs(1_000))]

    /// With a count that its producer may have set, too.
    #[test]
    fn a_message_in_a_queue_with_delayed_retries_stays_within_its_budget(
        immediate in 0u32..5,
        waits in 0u32..6,
        spare in 1u32..6,
        stale in prop::option::of(0u32..2_000_000),
        events in prop::collection::vec(
            prop_oneof![4 => Just(Event::Fails), 1 => Just(Event::Dies), 1 => Just(Event::TimesOut), 1 => Just(Event::HandedBack)],
            200,
        ),
    ) {
        let limit = immediate + spare;
        let limits = || Limits { hold: None, lets_return: true };
        let policy = policy(immediate, waits, limit);
        let now = Timestamp::from_millis(1_700_000_000_000);
        let address = Address { exchange: "".into(), routing_key: "orders".into() };
        let (mut counts, mut failed, mut timed_out, mut nacked) = (Counts::default(), 0, 0, 0);
        let mut ended = false;
        for event in events {
            let (ledger, _, _) = contract().read(&address, counts.delivered > 0, &counts.headers(stale), now);
            if stale.is_none() {
                prop_assert_eq!(ledger.attempt(), counts.delivered + 1);
            }
            let is_counted = match event {
                Event::Dies => true,
                Event::TimesOut => {
                    timed_out += 1;
                    false
                }
                Event::HandedBack => {
                    let by = hand_back_settlement(WaitStrategy::Native, ledger.redeliveries, limit);
                    prop_assert!(by == Settlement::Requeue || counts.counted == limit || stale.is_some());
                    nacked += u32::from(by == Settlement::Nack);
                    by == Settlement::Requeue
                }
                Event::Fails => {
                    failed += 1;
                    match decide(&policy, &ledger, &Err(Failure::transient("no")), now, limits, Draw::MIDDLE) {
                        Decision::Requeue => true,
                        Decision::Wait { wait: Wait { path: Path::Return, .. }, .. } => false,
                        Decision::Park(_) => {
                            ended = true;
                            break;
                        }
                        other => return Err(TestCaseError::fail(format!("{other:?}"))),
                    }
                }
            };
            counts.delivered += 1;
            counts.counted += u32::from(is_counted);
            if counts.counted > limit {
                ended = true;
                break;
            }
        }
        prop_assert!(ended, "it ends");
        let most = policy.max_attempts();
        // A count of the producer's own can be taken for the broker's once, until the broker's is
        // above it.
        prop_assert!(failed <= if stale.is_some() { 2 * most } else { most }, "{failed} attempts failed");
        if stale.is_none() {
            prop_assert!(u64::from(counts.delivered) <= u64::from(policy.max_deliveries()) + timed_out + u64::from(nacked));
        }
    }
}
