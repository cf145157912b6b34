//! What is under way on one lane, and what the answers to it amount to. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use lapin::Confirmation;

use super::CopyId;
use super::not_taken::Cause;
use super::outgoing::Outgoing;
use super::returns::{Confirm, Judged, Returns, owners};

/// The copies under way on one lane.
#[derive(Default)]
pub(super) struct Outstanding {
    under_way: HashMap<CopyId, Arc<Outgoing>>,
    returns: Returns,
    sent: u64,
    /// How many results are still to come. A copy known to be returned has one to come, too.
    awaited: usize,
    /// Why a copy could not be sent, while results are still to come that may say more.
    failure: Option<Cause>,
}

/// What lapin says of one copy. A return in it may be of another copy.
pub(super) type PublishResult = (CopyId, lapin::Result<Confirmation>);

impl Outstanding {
    pub(super) fn sent(&mut self, copy: Arc<Outgoing>) -> CopyId {
        let id = CopyId(self.sent);
        self.sent += 1;
        self.awaited += 1;
        self.under_way.insert(id, copy);
        id
    }

    /// Judges all results that have arrived by now. Returns which copies the broker has taken, and
    /// why the lane has ended, if it has.
    pub(super) fn judge(&mut self, results: Vec<PublishResult>) -> (Vec<Judged>, Option<Cause>) {
        self.awaited = self.awaited.saturating_sub(results.len());
        let (mut confirms, mut returned, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (id, result) in results {
            let (is_ack, message) = match result {
                Ok(Confirmation::Ack(message)) => (true, message),
                Ok(Confirmation::Nack(message)) => (false, message),
                Ok(Confirmation::NotRequested) => {
                    self.note_failure(Cause::of("confirms are off"));
                    failed.push(id);
                    continue;
                }
                Err(error) => {
                    self.note_failure(Cause::from(&error));
                    failed.push(id);
                    continue;
                }
            };
            confirms.push(Confirm { id, is_ack, brought_a_return: message.is_some() });
            returned.extend(message.iter().flat_map(|message| owners(&self.under_way, message)));
        }
        let judged = self.returns.judge(&confirms, &returned);
        for id in judged.iter().map(|(id, _)| id).chain(&failed) {
            self.under_way.remove(id);
        }
        let is_last = self.awaited == 0;
        (judged, self.failure.take_if(|failure| is_last || failure.code.is_some()))
    }

    /// The failure of a copy that was sent while the channel was closing says only that. That of
    /// one sent before says why.
    fn note_failure(&mut self, cause: Cause) {
        let says_more = |failure: &Cause| failure.code.is_none() && cause.code.is_some();
        if self.failure.as_ref().is_none_or(says_more) {
            self.failure = Some(cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;

    use lapin::message::{BasicReturnMessage, Delivery};
    use lapin::protocol::AMQPError;
    use lapin::{BasicProperties, ErrorKind};
    use proptest::prelude::*;

    use super::super::not_taken::NotTaken;
    use super::*;
    use crate::inputs::inputs;

    const A: CopyId = CopyId(0);
    const B: CopyId = CopyId(1);
    const C: CopyId = CopyId(2);

    fn copy(number: u64) -> Arc<Outgoing> {
        let (exchange, key, body) = ("x".into(), "key".into(), vec![number as u8].into());
        let properties = BasicProperties::default;
        Arc::new(Outgoing::new(exchange, key, body, properties(), properties))
    }

    fn sent(count: usize) -> Outstanding {
        let mut outstanding = Outstanding::default();
        (0..count as u64).for_each(|number| {
            assert_eq!(outstanding.sent(copy(number)), CopyId(number));
        });
        outstanding
    }

    /// The ack of this copy, which may bring the return of another.
    fn ack(id: CopyId, brings: Option<CopyId>) -> PublishResult {
        let returned = |CopyId(number)| {
            let delivery = Delivery::mock(0, "x".into(), "key".into(), false, vec![number as u8]);
            BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() }
        };
        (id, Ok(Confirmation::Ack(brings.map(returned))))
    }

    fn failed(id: CopyId, code: Option<u16>, text: &str) -> PublishResult {
        let error = match code {
            None => io::Error::other(text).into(),
            Some(code) => {
                ErrorKind::ProtocolError(AMQPError::from_id(code, text.into()).unwrap()).into()
            }
        };
        (id, Err(error))
    }

    fn closed(id: CopyId, code: Option<u16>) -> PublishResult {
        failed(id, code, "closed")
    }

    fn taken(judged: &[Judged]) -> Vec<CopyId> {
        judged.iter().filter(|(_, taken)| taken.is_ok()).map(|(id, _)| *id).collect()
    }

    fn code_and_text(cause: Option<Cause>) -> Option<(Option<u16>, String)> {
        cause.map(|cause| (cause.code, cause.problem.to_string()))
    }

    #[test]
    fn a_returned_copy_is_not_believed_when_its_ack_comes_after_the_end_of_its_channel() {
        let mut outstanding = sent(3);
        let (first, _) = outstanding.judge(vec![ack(A, Some(B))]);
        assert!(
            matches!(first[..], [(B, Err(NotTaken::Returned))]),
            "the return of copy A may be yet to come: {first:?}"
        );
        let (_, end) = outstanding.judge(vec![closed(C, Some(404))]);
        assert_eq!(end.map(|cause| cause.code), Some(Some(404)));
        assert_eq!(outstanding.awaited, 1);
        let (late, end) = outstanding.judge(vec![ack(B, None)]);
        assert_eq!(taken(&late), [A], "no other return is left");
        assert!(outstanding.awaited == 0 && end.is_none());
    }

    #[test]
    fn the_end_of_a_channel_is_told_although_the_last_result_is_an_ack() {
        let mut outstanding = sent(3);
        let (_, end) = outstanding.judge(vec![ack(A, Some(B)), closed(C, None)]);
        assert!(end.is_none(), "another result may say why");
        let (last, end) = outstanding.judge(vec![ack(B, None)]);
        assert_eq!(taken(&last), [A]);
        assert_eq!(code_and_text(end), Some((None, "closed".to_owned())));
    }

    #[test]
    fn the_failure_that_says_why_counts() {
        let results = vec![closed(A, None), closed(B, Some(406)), closed(C, None)];
        let (_, end) = sent(3).judge(results);
        assert_eq!(end.map(|cause| cause.code), Some(Some(406)));
    }

    #[test]
    fn of_failures_that_say_as_much_the_first_counts() {
        for code in [None, Some(406)] {
            let results = [(A, "first"), (B, "second"), (C, "third")]
                .map(|(id, text)| failed(id, code, text));
            let (_, end) = sent(3).judge(results.into());
            assert_eq!(code_and_text(end), Some((code, "first".to_owned())));
        }
    }

    #[test]
    fn a_nack_is_a_refusal_and_the_nack_of_a_returned_copy_is_its_return() {
        let nack = |id| (id, Ok(Confirmation::Nack(None)));
        let (first, _) = sent(3).judge(vec![nack(A), ack(B, Some(C)), nack(C)]);
        let is_as_expected = matches!(
            first[..],
            [(C, Err(NotTaken::Returned)), (A, Err(NotTaken::Nacked)), (B, Ok(()))]
        );
        assert!(is_as_expected, "{first:?}");
    }

    prop_compose! {
        /// Which copies are returned, and the results of all of them in an order that broker and
        /// channel may choose: the first of a copy's two slots is its return, the second its ack,
        /// and at some slot the channel ends. Some copies are sent too late.
        fn results()(returned in prop::collection::vec(any::<bool>(), 1..12))(
            order in Just((0..returned.len() * 2).collect::<Vec<_>>()).prop_shuffle(),
            end in 0..=returned.len() * 2,
            code in prop::option::of(Just(404)),
            too_late in prop::collection::vec(0..24usize, 0..3),
            returned in Just(returned),
        ) -> (Vec<bool>, Vec<PublishResult>) {
            let (mut waiting, mut was_seen) = (VecDeque::new(), vec![false; returned.len()]);
            let (mut results, mut unacked) = (Vec::new(), Vec::new());
            for (number, copy) in order.into_iter().map(|slot| slot / 2).enumerate() {
                let id = CopyId(copy as u64);
                match std::mem::replace(&mut was_seen[copy], true) {
                    false if returned[copy] && number < end => waiting.push_back(id),
                    false => {}
                    // lapin hands out the oldest return, whoever it belongs to.
                    true if number < end => results.push(ack(id, waiting.pop_front())),
                    true => unacked.push(closed(id, code)),
                }
            }
            results.extend(unacked);
            for (number, place) in too_late.into_iter().enumerate() {
                let id = CopyId((returned.len() + number) as u64);
                results.insert(place.min(results.len()), closed(id, None));
            }
            (returned, results)
        }
    }

    proptest! {
        #![proptest_config(inputs(2_000))]

        #[test]
        fn no_returned_copy_is_believed_and_every_end_is_told_whatever_is_read_together(
            (is_returned, results) in results(),
            batches in prop::collection::vec(any::<bool>(), 30),
        ) {
            let mut outstanding = sent(results.len());
            let failures = results.iter().filter_map(|(_, result)| result.as_ref().err());
            let codes: Vec<_> = failures.map(|error| Cause::from(error).code).collect();
            let (mut batch, mut believed, mut ends) = (Vec::new(), Vec::new(), Vec::new());
            let last = results.len() - 1;
            for (number, result) in results.into_iter().enumerate() {
                batch.push(result);
                if batches[number] || number == last {
                    let (judged, end) = outstanding.judge(std::mem::take(&mut batch));
                    believed.extend(taken(&judged));
                    ends.extend(end);
                }
            }
            prop_assert_eq!(outstanding.awaited, 0);
            believed.sort_unstable();
            let kept: Vec<_> = (0..is_returned.len())
                .filter(|copy| !is_returned[*copy])
                .map(|copy| CopyId(copy as u64))
                .collect();
            prop_assert!(believed.iter().all(|id| kept.contains(id)), "{believed:?} of {kept:?}");
            prop_assert!(believed.windows(2).all(|pair| pair[0] != pair[1]));
            if codes.is_empty() {
                prop_assert_eq!(believed, kept);
            }
            prop_assert_eq!(ends.is_empty(), codes.is_empty());
            let told = ends.first().and_then(|end| end.code);
            prop_assert_eq!(told, codes.into_iter().flatten().next());
        }
    }
}
