//! What is under way on one lane, and what the answers to it amount to. Pure.

use std::collections::HashMap;

use super::CopyId;
use super::cause::Cause;
use super::returns::{Answer, Judgement, Returns};

/// The copies under way on one lane. `C` is what a returned copy is recognised by.
pub(super) struct Outstanding<C> {
    under_way: HashMap<CopyId, C>,
    returns: Returns,
    /// How many results are still to come. A copy known to be returned has one to come, too.
    awaited: usize,
    /// Why a copy could not be sent, while results are still to come that may say more.
    failure: Option<Cause>,
}

/// The result of one copy. A return in it may be of another copy.
#[derive(Debug)]
pub(super) enum Reply<R> {
    Ack(Option<R>),
    Nack(Option<R>),
    Failed(Cause),
}

impl<C> Outstanding<C> {
    pub(super) fn new() -> Self {
        Self { under_way: HashMap::new(), returns: Returns::default(), awaited: 0, failure: None }
    }

    pub(super) fn sent(&mut self, id: CopyId, copy: C) {
        self.under_way.insert(id, copy);
        self.awaited += 1;
    }

    /// Whether no more results will come.
    pub(super) fn is_empty(&self) -> bool {
        self.awaited == 0
    }

    /// Judges all results that have arrived by now. `owners` finds the copies that a return may be
    /// of.
    pub(super) fn judge<R>(
        &mut self,
        replies: Vec<(CopyId, Reply<R>)>,
        owners: impl Fn(&HashMap<CopyId, C>, R) -> Vec<CopyId>,
    ) -> Judgement {
        let (mut answers, mut judgement) = (Vec::new(), Judgement::default());
        let mut failed = Vec::new();
        self.awaited = self.awaited.saturating_sub(replies.len());
        for (id, reply) in replies {
            let (is_ack, returned) = match reply {
                Reply::Ack(returned) => (true, returned),
                Reply::Nack(returned) => (false, returned),
                Reply::Failed(cause) => {
                    failed.push(id);
                    // The failure of a copy that was sent while the channel was closing says only
                    // that. That of one sent before says why.
                    if self
                        .failure
                        .as_ref()
                        .is_none_or(|failure| failure.code.is_none() && cause.code.is_some())
                    {
                        self.failure = Some(cause);
                    }
                    continue;
                }
            };
            answers.push(Answer { id, is_ack, brought_a_return: returned.is_some() });
            judgement
                .returned
                .extend(returned.into_iter().flat_map(|message| owners(&self.under_way, message)));
        }
        self.returns.match_acks(&answers, &mut judgement);
        let answered = judgement
            .confirmed
            .iter()
            .chain(&judgement.nacked)
            .chain(&judgement.returned)
            .chain(&failed);
        for id in answered {
            self.under_way.remove(id);
        }
        if self.is_empty() || self.failure.as_ref().is_some_and(|failure| failure.code.is_some()) {
            judgement.closed = self.failure.take();
        }
        judgement
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    const A: CopyId = CopyId(0);
    const B: CopyId = CopyId(1);
    const C: CopyId = CopyId(2);

    /// Each return names its copy.
    fn judge(
        outstanding: &mut Outstanding<()>,
        replies: Vec<(CopyId, Reply<CopyId>)>,
    ) -> Judgement {
        outstanding.judge(replies, |_, id| vec![id])
    }

    fn all_sent() -> Outstanding<()> {
        let mut outstanding = Outstanding::new();
        [A, B, C].into_iter().for_each(|id| outstanding.sent(id, ()));
        outstanding
    }

    fn closed(code: Option<u16>) -> Reply<CopyId> {
        Reply::Failed(Cause { code, text: "closed".to_owned() })
    }

    #[test]
    fn a_returned_copy_is_not_believed_when_its_ack_comes_after_the_end_of_its_channel() {
        let mut outstanding = all_sent();
        let first = judge(&mut outstanding, vec![(A, Reply::Ack(Some(B)))]);
        assert_eq!(
            (first.returned, first.confirmed),
            (vec![B], vec![]),
            "the return of copy A may be yet to come"
        );
        let end = judge(&mut outstanding, vec![(C, closed(Some(404)))]);
        assert_eq!(end.closed.map(|cause| cause.code), Some(Some(404)));
        assert!(!outstanding.is_empty());
        let late = judge(&mut outstanding, vec![(B, Reply::Ack(None))]);
        assert_eq!(late.confirmed, [A], "no other return is left");
        assert!(outstanding.is_empty() && late.closed.is_none());
    }

    #[test]
    fn the_end_of_a_channel_is_told_although_the_last_result_is_an_ack() {
        let mut outstanding = all_sent();
        let first = judge(&mut outstanding, vec![(A, Reply::Ack(Some(B))), (C, closed(None))]);
        assert!(first.closed.is_none(), "another result may say why");
        let last = judge(&mut outstanding, vec![(B, Reply::Ack(None))]);
        assert_eq!(
            (last.confirmed, last.closed.map(|cause| cause.text)),
            (vec![A], Some("closed".to_owned()))
        );
    }

    #[test]
    fn the_failure_that_says_why_counts() {
        let mut outstanding = all_sent();
        let replies = vec![(A, closed(None)), (B, closed(Some(406))), (C, closed(None))];
        assert_eq!(
            judge(&mut outstanding, replies).closed.map(|cause| cause.code),
            Some(Some(406))
        );
    }

    #[test]
    fn of_failures_that_say_as_much_the_first_counts() {
        for code in [None, Some(406)] {
            let failed = |text: &str| Reply::Failed(Cause { code, text: text.to_owned() });
            let replies = vec![(A, failed("first")), (B, failed("second")), (C, failed("third"))];
            let closed = judge(&mut all_sent(), replies).closed;
            assert_eq!(closed, Some(Cause { code, text: "first".to_owned() }));
        }
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
        ) -> (Vec<bool>, Vec<(CopyId, Reply<CopyId>)>) {
            let (mut waiting, mut was_seen) = (VecDeque::new(), vec![false; returned.len()]);
            let (mut results, mut unacked) = (Vec::new(), Vec::new());
            for (number, copy) in order.into_iter().map(|slot| slot / 2).enumerate() {
                let id = CopyId(copy as u64);
                match std::mem::replace(&mut was_seen[copy], true) {
                    false if returned[copy] && number < end => waiting.push_back(id),
                    false => {}
                    // lapin hands out the oldest return, whoever it belongs to.
                    true if number < end => results.push((id, Reply::Ack(waiting.pop_front()))),
                    true => unacked.push((id, closed(code))),
                }
            }
            results.extend(unacked);
            for (number, place) in too_late.into_iter().enumerate() {
                let id = CopyId((returned.len() + number) as u64);
                results.insert(place.min(results.len()), (id, closed(None)));
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
            let mut outstanding = Outstanding::new();
            results.iter().for_each(|(id, _)| outstanding.sent(*id, ()));
            let codes: Vec<_> = results.iter().filter_map(|(_, reply)| match reply {
                Reply::Failed(cause) => Some(cause.code),
                Reply::Ack(_) | Reply::Nack(_) => None,
            }).collect();
            let (mut batch, mut believed, mut ends) = (Vec::new(), Vec::new(), Vec::new());
            let last = results.len() - 1;
            for (number, result) in results.into_iter().enumerate() {
                batch.push(result);
                if batches[number] || number == last {
                    let judgement = judge(&mut outstanding, std::mem::take(&mut batch));
                    believed.extend(judgement.confirmed);
                    ends.extend(judgement.closed);
                }
            }
            prop_assert!(outstanding.is_empty());
            believed.sort_unstable();
            let kept: Vec<_> = (0..is_returned.len()).filter(|copy| !is_returned[*copy]).map(|copy| CopyId(copy as u64)).collect();
            prop_assert!(believed.iter().all(|id| kept.contains(id)), "{believed:?} of {kept:?}");
            prop_assert!(believed.windows(2).all(|pair| pair[0] != pair[1]));
            if codes.is_empty() {
                prop_assert_eq!(believed, kept);
            }
            prop_assert_eq!(ends.is_empty(), codes.is_empty());
            prop_assert_eq!(ends.first().and_then(|end| end.code), codes.into_iter().flatten().next());
        }
    }
}
