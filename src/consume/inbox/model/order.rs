//! Whether the messages of ordered queues keep their order.

use super::scenario::Scenario;

pub(super) struct OrderCheck {
    ended: Vec<bool>,
    /// Messages that started, each with an earlier one of their key that was neither handled, parked nor lost by then.
    pub(super) overtaken: Vec<(usize, usize)>,
}

impl OrderCheck {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { ended: vec![false; scenario.messages.len()], overtaken: Vec::new() }
    }

    /// A handler of this message has succeeded, its copy is confirmed, or it is dead-lettered, whatever becomes of the settlement.
    pub(super) fn ended(&mut self, message: usize) {
        self.ended[message] = true;
    }

    /// A handler of this message starts. Messages are numbered in the order in which they were published.
    pub(super) fn starts(&mut self, scenario: &Scenario, message: usize, is_parked_or_lost: impl Fn(usize) -> bool) {
        let of = |message: usize| (scenario.messages[message].queue, scenario.messages[message].key);
        if scenario.rules[of(message).0].is_ordered {
            let mut earlier = (0..message).filter(|earlier| of(*earlier) == of(message));
            let overtaken = earlier.find(|earlier| !self.ended[*earlier] && !is_parked_or_lost(*earlier));
            self.overtaken.extend(overtaken.map(|earlier| (message, earlier)));
        }
    }
}
