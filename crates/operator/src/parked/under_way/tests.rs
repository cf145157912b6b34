use std::collections::VecDeque;
use std::sync::Mutex;

use futures_util::stream::BoxStream;
use lapin::message::{BasicReturnMessage, Delivery};
use lapin::options::{BasicConsumeOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Confirmation, ErrorKind, Event, ExchangeKind};

use super::*;
use rehop::internals::Frame;
use rehop::internals::client::{Answer, Channel, QueueCounts, Subscription};

const EXCHANGE: &str = "ns.park";
/// How long a silent broker is waited for. Time is paused, so no answer that is there comes too
/// late.
const SOON: Duration = Duration::from_secs(1);

/// How the publishing of one message ends. `None`: never.
type End = Option<lapin::Result<Confirmation>>;

/// A broker that does nothing but confirm, and its only channel: the ends of what is published, in
/// order.
#[derive(Clone)]
struct Confirming(Arc<Mutex<VecDeque<End>>>);

impl Connection for Confirming {
    fn is_open(&self) -> bool {
        true
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn frame_max(&self) -> u32 {
        0
    }

    fn channel_max(&self) -> u16 {
        1
    }

    fn events(&self) -> BoxStream<'static, Event> {
        unreachable!()
    }

    fn open_channel(&self) -> Answer<'_, Arc<dyn Channel>> {
        let channel: Arc<dyn Channel> = Arc::new(self.clone());
        async { Ok(channel) }.boxed()
    }

    fn close(&self, _: &'static str) -> Answer<'_, ()> {
        unreachable!()
    }
}

impl Channel for Confirming {
    fn is_open(&self) -> bool {
        true
    }

    fn closed_by_broker(&self) -> Option<lapin::Error> {
        None
    }

    fn confirm_select(&self) -> Answer<'_, ()> {
        async { Ok(()) }.boxed()
    }

    fn publish<'a>(
        &'a self,
        _: ShortString,
        _: ShortString,
        _: &'a [u8],
        _: BasicProperties,
        is_mandatory: bool,
    ) -> Answer<'a, Confirmation> {
        assert!(is_mandatory, "what finds no queue would be lost");
        let end = self.0.lock().unwrap().pop_front().unwrap();
        async {
            // By then, all copies of a test are sent.
            tokio::time::sleep(SOON / 10).await;
            match end {
                Some(end) => end,
                None => std::future::pending().await,
            }
        }
        .boxed()
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
        async { Ok(()) }.boxed()
    }
}

/// Copies that are sent to a broker which answers so. Each is of its number, and that is also its
/// body.
async fn sent(ends: Vec<End>) -> UnderWay<u8> {
    let count = ends.len() as u8;
    let connection = Arc::new(Confirming(Arc::new(Mutex::new(ends.into()))));
    let mut under_way = UnderWay::on(connection, 100, SOON).await.unwrap();
    for number in 0..count {
        under_way.send(number, vec![number], copy()).unwrap();
    }
    under_way
}

fn copy() -> Copy {
    let (exchange, routing_key) = (EXCHANGE.to_owned(), "orders".to_owned());
    Copy { exchange, routing_key, properties: BasicProperties::default(), overflow: Vec::new() }
}

/// The copy of this number, as the broker returns it.
fn returned(number: u8) -> Option<BasicReturnMessage> {
    let delivery = Delivery::mock(0, EXCHANGE.into(), "orders".into(), false, vec![number]);
    Some(BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() })
}

fn ack(brings: Option<BasicReturnMessage>) -> End {
    Some(Ok(Confirmation::Ack(brings)))
}

fn lost() -> End {
    Some(Err(ErrorKind::MissingHeartbeatError.into()))
}

/// What became of each copy, and how many have no answer.
async fn answered(ends: Vec<End>) -> (Vec<(u8, &'static str)>, u64) {
    let mut under_way = sent(ends).await;
    let mut all = Vec::new();
    let Drained { ended, unanswered } = under_way
        .drain(SOON, |answers| {
            all.extend(answers.into_iter().map(|Answered { of, answer, .. }| match answer {
                Ok(()) => (of, "kept"),
                Err(NotTaken::Nacked) => (of, "refused"),
                Err(NotTaken::Returned) => (of, "returned"),
                Err(NotTaken::LaneClosed(_)) => (of, "closed"),
                Err(other) => panic!("{other:?}"),
            }));
            Ok(())
        })
        .await;
    ended.unwrap();
    assert_eq!(under_way.len() as u64, unanswered);
    assert_eq!(under_way.bytes, unanswered, "each body is one byte long");
    all.sort_unstable();
    (all, unanswered)
}

#[tokio::test(start_paused = true)]
async fn a_return_counts_for_its_own_copy_although_the_confirm_of_another_brought_it() {
    let ends = vec![ack(returned(1)), ack(None), Some(Ok(Confirmation::Nack(None)))];
    assert_eq!(answered(ends).await, (vec![(0, "kept"), (1, "returned"), (2, "refused")], 0));
    let not_yet = vec![ack(returned(1)), None];
    assert_eq!(
        answered(not_yet).await,
        (vec![(1, "returned")], 1),
        "the return of copy 0 may be yet to come"
    );
}

#[tokio::test(start_paused = true)]
async fn each_copy_is_answered_once_although_its_channel_ends() {
    assert_eq!(
        answered(vec![ack(None), lost(), lost()]).await,
        (vec![(0, "kept"), (1, "closed"), (2, "closed")], 0)
    );
    assert_eq!(
        answered(vec![ack(returned(1)), lost()]).await,
        (vec![(0, "closed"), (1, "returned")], 0),
        "the return of copy 0 may have been yet to come"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_broker_is_not_waited_for_and_the_first_error_of_who_takes_the_answers_counts() {
    assert_eq!(answered(vec![ack(None), None, None]).await, (vec![(0, "kept")], 2));
    let mut under_way = sent(vec![ack(None), None]).await;
    let Drained { ended, unanswered } =
        under_way.drain(SOON, |_| Err(ParkedError::NotDiscarded)).await;
    assert!(matches!(ended, Err(ParkedError::NotDiscarded)) && unanswered == 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_names_the_exchange() {
    let mut under_way = sent(vec![lost()]).await;
    let answers = under_way.answers().await.unwrap();
    let Ok([Answered { exchange, answer, .. }]) = <[_; 1]>::try_from(answers) else { panic!() };
    for (why, says) in [
        (NotTaken::Nacked, "refused a message to exchange ns.park"),
        (NotTaken::NotSent, "publishing to exchange \"ns.park\""),
        (answer.unwrap_err(), "publishing to exchange \"ns.park\""),
    ] {
        let text = not_kept(why, &exchange).to_string();
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn there_is_room_within_both_bounds_and_always_for_one() {
    const MIB: u64 = 1024 * 1024;
    for (under_way, most, size, expected) in [
        // The number of copies.
        ((99, 99), 100, 1, true),
        ((100, 100), 100, 1, false),
        ((1, 1), 1, 1, false),
        // Their bytes.
        ((7, 56 * MIB), 100, 8 * MIB, true),
        ((7, 56 * MIB), 100, 8 * MIB + 1, false),
        ((4, 64 * MIB), 100, 0, true),
        ((4, 64 * MIB), 100, 1, false),
        // One alone, whatever its size.
        ((0, 0), 100, 500 * MIB, true),
        ((0, 0), 1, 0, true),
        ((1, 500 * MIB), 100, 0, false),
    ] {
        assert_eq!(has_room(under_way, most, size), expected, "{under_way:?}, {most}, {size}");
    }
}

#[test]
fn at_least_one_message_may_be_in_flight() {
    assert_eq!([None, Some(0), Some(1), Some(7)].map(in_flight), [100, 1, 1, 7]);
}
