//! What was declared before, and what a repair therefore declares again. Pure: no I/O.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use crate::topology::Topology;

/// What was declared so far. `C` is a connection.
pub(super) struct Declared<C: ?Sized> {
    /// The connection on which the shared part was declared last; none before the first time.
    shared_on: Option<Weak<C>>,
    /// The positions of the queues whose own part was declared.
    queues: HashSet<usize>,
}

impl<C: ?Sized> Default for Declared<C> {
    fn default() -> Self {
        Self { shared_on: None, queues: HashSet::new() }
    }
}

impl<C: ?Sized> Declared<C> {
    /// Whether the shared part was never declared.
    pub(super) fn is_new(&self) -> bool {
        self.shared_on.is_none()
    }

    /// Whether the shared part was declared last on this connection.
    pub(super) fn is_shared_on(&self, connection: &Arc<C>) -> bool {
        self.shared_on
            .as_ref()
            .is_some_and(|on| std::ptr::addr_eq(on.as_ptr(), Arc::as_ptr(connection)))
    }

    /// Remembers that the shared part was declared on this connection.
    pub(super) fn note_shared(&mut self, connection: &Arc<C>) {
        self.shared_on = Some(Arc::downgrade(connection));
    }

    /// Whether this queue's own part was declared.
    pub(super) fn has_queue(&self, position: usize) -> bool {
        self.queues.contains(&position)
    }

    /// Remembers that this queue's own part was declared.
    pub(super) fn note_queue(&mut self, position: usize) {
        self.queues.insert(position);
    }

    /// All that a repair declares again: whatever was declared before, also if the connection of
    /// that time is gone. Copies wait for this after each reconnect, so nothing may be left to a
    /// consumer that reconnects later.
    pub(super) fn parts_to_repair<'a>(
        &self,
        shared: &'a Topology,
        queues: &'a [Topology],
    ) -> Vec<&'a Topology> {
        if self.is_new() {
            return Vec::new();
        }
        let queues = queues.iter().enumerate().filter(|(position, _)| self.has_queue(*position));
        std::iter::once(shared).chain(queues.map(|(_, queue)| queue)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::topology::{self, Names, Role};

    fn parts() -> (Topology, Vec<Topology>) {
        let (settings, names) = (Settings::default(), Names::new("ns"));
        let configs =
            ["orders", "bills"].map(|queue| settings.resolve().unwrap().queue(queue).unwrap());
        (
            topology::shared(&names, &configs),
            configs.iter().map(|config| topology::own(&names, config)).collect(),
        )
    }

    /// The work queues of these parts; the shared part has none.
    fn named(parts: &[&Topology]) -> Vec<String> {
        let work = |part: &&Topology| {
            part.queues
                .iter()
                .find(|queue| queue.role == Role::Work)
                .map(|queue| queue.name.clone())
        };
        parts.iter().map(|part| work(part).unwrap_or_default()).collect()
    }

    #[test]
    fn a_repair_declares_again_all_that_was_declared_before_and_nothing_else() {
        let ((shared, queues), mut declared) = (parts(), Declared::default());
        assert_eq!(
            named(&declared.parts_to_repair(&shared, &queues)),
            [""; 0],
            "the first declaration is a consumer's"
        );
        let connection = Arc::new(());
        declared.note_shared(&connection);
        assert_eq!(named(&declared.parts_to_repair(&shared, &queues)), [""]);
        declared.note_queue(1);
        assert_eq!(named(&declared.parts_to_repair(&shared, &queues)), ["", "bills"]);
        declared.note_queue(0);
        assert_eq!(named(&declared.parts_to_repair(&shared, &queues)), ["", "orders", "bills"]);
    }

    #[test]
    fn a_repair_leaves_nothing_out_when_the_connection_that_declared_is_gone() {
        let ((shared, queues), mut declared) = (parts(), Declared::default());
        let connection = Arc::new(());
        declared.note_shared(&connection);
        declared.note_queue(0);
        drop(connection);
        assert_eq!(named(&declared.parts_to_repair(&shared, &queues)), ["", "orders"]);
    }

    #[test]
    fn the_shared_part_is_declared_once_for_each_connection() {
        let (mut declared, one, other) = (Declared::default(), Arc::new(1), Arc::new(2));
        assert!(declared.is_new() && !declared.is_shared_on(&one));
        declared.note_shared(&one);
        assert!(!declared.is_new());
        assert_eq!(
            [&one, &other].map(|connection| declared.is_shared_on(connection)),
            [true, false]
        );
        declared.note_shared(&other);
        assert_eq!(
            [&one, &other].map(|connection| declared.is_shared_on(connection)),
            [false, true]
        );
    }
}
