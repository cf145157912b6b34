//! Which copies of a lane were returned, although lapin hands a return to the wrong confirm.
//!
//! The broker sends a copy's return before its ack. lapin (4.12) puts returns into a queue, and
//! each ack or nack takes the first one there, whoever it belongs to. So a returned copy is
//! recognised by its address, its body and some of its headers, and an ack is believed if no return
//! of its own can still be in that queue:
//!
//! - An ack that found no return found the queue empty: had the copy been returned, an earlier ack
//!   would have brought that.
//! - An ack that brought another copy's return may have its own still in the queue. But since the
//!   queue was last empty, each ack has taken one return. Once the owners of all these returns are
//!   acked, no return is left in the queue.

use std::collections::BTreeSet;

use super::CopyId;
use super::cause::Cause;

/// What is not settled yet of a lane's returns.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// They were returned, and their acks are still to come.
    owners: BTreeSet<CopyId>,
    /// Their acks brought the return of another copy.
    doubtful: BTreeSet<CopyId>,
}

/// The broker's answer to one copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) id: CopyId,
    pub(super) is_ack: bool,
    pub(super) brought_a_return: bool,
}

/// What some answers amount to.
#[derive(Debug, Default)]
pub struct Judgement {
    pub confirmed: Vec<CopyId>,
    pub nacked: Vec<CopyId>,
    pub returned: Vec<CopyId>,
    pub(crate) closed: Option<Cause>,
}

impl Returns {
    /// Sorts the answers into `judgement`, in which `returned` are the owners of the returns that
    /// they brought. All answers that have come by now have to be judged together: a return may be
    /// brought by any of them.
    pub(super) fn match_acks(&mut self, answers: &[Answer], judgement: &mut Judgement) {
        for id in &judgement.returned {
            // One that is doubtful was acked already.
            if !self.doubtful.remove(id) {
                self.owners.insert(*id);
            }
        }
        for answer in answers {
            if self.owners.remove(&answer.id) {
                continue;
            }
            match answer {
                Answer { is_ack: false, .. } => judgement.nacked.push(answer.id),
                Answer { brought_a_return: true, .. } => {
                    self.doubtful.insert(answer.id);
                }
                Answer { .. } => judgement.confirmed.push(answer.id),
            }
        }
        if self.owners.is_empty() {
            judgement.confirmed.extend(std::mem::take(&mut self.doubtful));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    /// What the broker sends about some copies, in an order that it may choose.
    #[derive(Debug, Clone, Copy)]
    enum Frame {
        Return(CopyId),
        Ack(CopyId),
    }

    prop_compose! {
        fn frames()(returned in prop::collection::vec(any::<bool>(), 1..20))(
            order in Just((0..returned.len() * 2).collect::<Vec<_>>()).prop_shuffle(),
            returned in Just(returned),
        ) -> (Vec<bool>, Vec<Frame>) {
            let mut sent_return = vec![false; returned.len()];
            let frames = order.into_iter().filter_map(|slot| {
                let copy = slot / 2;
                let id = CopyId(copy as u64);
                // The first of a copy's two slots is its return, the second its ack.
                let is_first = !std::mem::replace(&mut sent_return[copy], true);
                match (is_first, returned[copy]) {
                    (true, true) => Some(Frame::Return(id)),
                    (true, false) => None,
                    (false, _) => Some(Frame::Ack(id)),
                }
            });
            let frames = frames.collect();
            (returned, frames)
        }
    }

    proptest! {
        #![proptest_config(inputs(2_000))]

        #[test]
        fn no_returned_copy_is_believed_and_all_others_are_in_the_end(
            (is_returned, frames) in frames(),
            batches in prop::collection::vec(any::<bool>(), 40),
        ) {
            let (mut lapin, mut returns) = (VecDeque::new(), Returns::default());
            let (mut answers, mut returned, mut believed) = (Vec::new(), Vec::new(), Vec::new());
            let last = frames.len() - 1;
            for (number, frame) in frames.into_iter().enumerate() {
                match frame {
                    Frame::Return(id) => lapin.push_back(id),
                    Frame::Ack(id) => {
                        let brought = lapin.pop_front();
                        answers.push(Answer { id, is_ack: true, brought_a_return: brought.is_some() });
                        returned.extend(brought);
                    }
                }
                if batches[number] || number == last {
                    let mut judgement = Judgement { returned: std::mem::take(&mut returned), ..Judgement::default() };
                    returns.match_acks(&answers, &mut judgement);
                    believed.extend(judgement.confirmed);
                    answers.clear();
                }
            }
            believed.sort_unstable();
            let expected: Vec<_> = (0..is_returned.len()).filter(|copy| !is_returned[*copy]).map(|copy| CopyId(copy as u64)).collect();
            prop_assert_eq!(believed, expected);
            prop_assert!(returns.owners.is_empty() && returns.doubtful.is_empty());
        }
    }
}
