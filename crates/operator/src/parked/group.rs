//! Groups messages that failed alike, in bounded memory. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::parked::message::ParkedMessage;
use crate::parked::normalise::normalise;
use rehop::Timestamp;

/// Messages that failed alike: the same reason, class, normalised error and destination.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// What its messages have in common.
    #[serde(flatten)]
    pub kind: Kind,
    /// How many they are.
    pub count: u64,
    /// The sum of their bodies' sizes.
    pub bytes: u64,
    /// When the first was parked.
    pub oldest: Option<Timestamp>,
    /// When the last was parked.
    pub newest: Option<Timestamp>,
    /// How many were replayed before, and parked again.
    pub replayed_before: u64,
    /// The ids of the first few chains.
    pub samples: Vec<String>,
}

/// What the messages of a group have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub struct Kind {
    /// Why they were parked.
    pub reason: String,
    /// The class of the last failure.
    pub class: Option<String>,
    /// The text of the last failure, [normalised](crate::parked::normalise).
    pub error: Option<String>,
    /// The work queue that a replay would send them to.
    pub destination: Option<String>,
}

impl Kind {
    /// Whether this stands for all kinds that are not told apart.
    #[doc(hidden)]
    pub fn is_rest(&self) -> bool {
        self.reason == REST
    }

    pub(crate) fn of(message: &ParkedMessage) -> Self {
        Self {
            reason: message.reason.clone(),
            class: message.class.clone(),
            error: message.error.as_deref().map(normalise),
            destination: message.destination.clone(),
        }
    }
}

/// How many groups are told apart. Further messages are counted in one group for the rest.
pub(crate) const MAX_GROUPS: usize = 1_000;
/// The reason of the group for the rest.
const REST: &str = "(more kinds)";
const SAMPLES: usize = 3;

/// Counts messages by group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups(BTreeMap<Kind, Group>);

/// One message of a group.
pub(crate) struct Member<'a> {
    pub(crate) chain: &'a str,
    pub(crate) size: u64,
    pub(crate) parked_at: Option<Timestamp>,
    pub(crate) was_replayed: bool,
}

impl Groups {
    pub(crate) fn add(&mut self, message: &ParkedMessage) {
        let member = Member {
            chain: &message.chain,
            size: message.size,
            parked_at: message.parked_at,
            was_replayed: message.replays > 0,
        };
        self.add_member(Kind::of(message), &member);
    }

    pub(crate) fn add_member(&mut self, mut kind: Kind, member: &Member<'_>) {
        if self.0.len() >= MAX_GROUPS && !self.0.contains_key(&kind) {
            kind = Kind { reason: REST.to_owned(), class: None, error: None, destination: None };
        }
        let group = self.0.entry(kind).or_insert_with_key(|kind| Group {
            kind: kind.clone(),
            count: 0,
            bytes: 0,
            oldest: None,
            newest: None,
            replayed_before: 0,
            samples: Vec::new(),
        });
        group.count += 1;
        group.bytes += member.size;
        group.replayed_before += u64::from(member.was_replayed);
        if let Some(at) = member.parked_at {
            group.oldest = Some(group.oldest.map_or(at, |oldest| oldest.min(at)));
            group.newest = Some(group.newest.map_or(at, |newest| newest.max(at)));
        }
        if group.samples.len() < SAMPLES {
            group.samples.push(member.chain.to_owned());
        }
    }

    /// The groups, the largest first.
    pub(crate) fn into_sorted(self) -> Vec<Group> {
        let mut groups: Vec<_> = self.0.into_values().collect();
        groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.kind.cmp(&b.kind)));
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parked::samples::sample;

    fn parked(error: &str, at: i64) -> ParkedMessage {
        ParkedMessage { error: Some(error.to_owned()), parked_at: Some(Timestamp::from_millis(at)), ..sample() }
    }

    #[test]
    fn messages_that_failed_alike_are_one_group_and_the_largest_comes_first() {
        let mut groups = Groups::default();
        groups.add(&parked("no customer 9", 30));
        for (number, at) in [(1, 50), (2, 20), (3, 40), (4, 60)] {
            groups.add(&parked(&format!("order {number} failed"), at));
        }
        groups.add(&ParkedMessage { replays: 2, ..parked("order 5 failed", 10) });
        let groups = groups.into_sorted();
        let [first, second] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((first.kind.error.as_deref(), first.count, first.bytes), (Some("order <n> failed"), 5, 500));
        let at = Timestamp::from_millis;
        assert_eq!((first.oldest, first.newest, first.replayed_before), (Some(at(10)), Some(at(60)), 1));
        assert_eq!((first.samples.len(), second.count), (3, 1));
    }

    #[test]
    fn messages_of_another_destination_are_another_group() {
        let mut groups = Groups::default();
        groups.add(&sample());
        groups.add(&ParkedMessage { destination: None, ..sample() });
        assert_eq!(groups.into_sorted().len(), 2);
    }

    #[test]
    fn the_number_of_groups_is_bounded_and_no_message_goes_uncounted() {
        let mut groups = Groups::default();
        for number in 0..2_000u32 {
            let letters: String =
                number.to_string().chars().map(|digit| char::from(b'a' + digit as u8 - b'0')).collect();
            groups.add(&parked(&letters, 1));
        }
        let groups = groups.into_sorted();
        assert_eq!((groups.len(), groups.iter().map(|group| group.count).sum::<u64>()), (MAX_GROUPS + 1, 2_000));
        assert_eq!((groups[0].kind.reason.as_str(), groups[0].count), (REST, 1_000));
    }
}
