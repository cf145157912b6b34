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

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use lapin::BasicProperties;
use lapin::message::BasicReturnMessage;
use lapin::types::AMQPValue;

use super::CopyId;
use super::not_taken::NotTaken;
use super::outgoing::Outgoing;
use crate::wire::names::{CHAIN_ID, RETURN_TO, WAIT_FOR};

/// What is not settled yet of a lane's returns.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// They were returned, and their acks are still to come.
    owners: BTreeSet<CopyId>,
    /// Their acks brought the return of another copy.
    doubtful: BTreeSet<CopyId>,
}

/// Whether the broker has taken a copy.
pub(super) type Judged = (CopyId, Result<(), NotTaken>);

/// An ack or a nack.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confirm {
    pub(super) id: CopyId,
    pub(super) is_ack: bool,
    pub(super) brought_a_return: bool,
}

impl Returns {
    /// What some confirms amount to. `returned` are the owners of the returns that they brought.
    /// All confirms that have come by now have to be judged together: a return may be brought by
    /// any of them.
    pub(super) fn judge(&mut self, confirms: &[Confirm], returned: &[CopyId]) -> Vec<Judged> {
        for id in returned {
            // One that is doubtful was acked already.
            if !self.doubtful.remove(id) {
                self.owners.insert(*id);
            }
        }
        let mut judged: Vec<_> = returned.iter().map(|id| (*id, Err(NotTaken::Returned))).collect();
        for Confirm { id, is_ack, brought_a_return } in confirms {
            if self.owners.remove(id) {
                continue;
            }
            match (is_ack, brought_a_return) {
                (false, _) => judged.push((*id, Err(NotTaken::Nacked))),
                (true, true) => {
                    self.doubtful.insert(*id);
                }
                (true, false) => judged.push((*id, Ok(()))),
            }
        }
        if self.owners.is_empty() {
            judged.extend(std::mem::take(&mut self.doubtful).into_iter().map(|id| (id, Ok(()))));
        }
        judged
    }
}

/// The copies that a returned message may be: those with its address, body and place in a chain;
/// failing that, those to its exchange; failing that, all.
pub(super) fn owners(
    under_way: &HashMap<CopyId, Arc<Outgoing>>,
    message: &BasicReturnMessage,
) -> Vec<CopyId> {
    let having = |test: &dyn Fn(&Outgoing) -> bool| -> Vec<CopyId> {
        let mut owners: Vec<_> =
            under_way.iter().filter(|(_, copy)| test(copy)).map(|(id, _)| *id).collect();
        owners.sort_unstable();
        owners
    };
    let is_to_its_exchange = |copy: &Outgoing| copy.exchange == message.exchange;
    let is_it = |copy: &Outgoing| {
        is_to_its_exchange(copy)
            && copy.routing_key == message.routing_key
            && copy.body == message.data
            && identity(&copy.properties()) == identity(&message.properties)
    };
    [having(&is_it), having(&is_to_its_exchange)]
        .into_iter()
        .find(|owners| !owners.is_empty())
        .unwrap_or_else(|| having(&|_| true))
}

/// The headers by which copies differ whose content is the same. All properties cannot be compared:
/// a NaN in a header is not equal to itself.
fn identity(properties: &BasicProperties) -> [Option<AMQPValue>; 3] {
    let headers = properties.headers().as_ref();
    [CHAIN_ID, RETURN_TO, WAIT_FOR]
        .map(|name| headers.and_then(|headers| headers.inner().get(name).cloned()))
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
            let (mut confirms, mut returned, mut believed) = (Vec::new(), Vec::new(), Vec::new());
            let last = frames.len() - 1;
            for (number, frame) in frames.into_iter().enumerate() {
                match frame {
                    Frame::Return(id) => lapin.push_back(id),
                    Frame::Ack(id) => {
                        let brought = lapin.pop_front();
                        let brought_a_return = brought.is_some();
                        confirms.push(Confirm { id, is_ack: true, brought_a_return });
                        returned.extend(brought);
                    }
                }
                if batches[number] || number == last {
                    let judged = returns.judge(&confirms, &returned);
                    let kept = judged.into_iter().filter(|(_, taken)| taken.is_ok());
                    believed.extend(kept.map(|(id, _)| id));
                    confirms.clear();
                    returned.clear();
                }
            }
            believed.sort_unstable();
            let expected: Vec<_> = (0..is_returned.len())
                .filter(|copy| !is_returned[*copy])
                .map(|copy| CopyId(copy as u64))
                .collect();
            prop_assert_eq!(believed, expected);
            prop_assert!(returns.owners.is_empty() && returns.doubtful.is_empty());
        }
    }
}
