//! The order in which the broker's addresses are tried. Pure.

/// Which of several addresses is tried first: the one that worked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rotation {
    first: usize,
    count: usize,
}

impl Rotation {
    pub(super) fn new(count: usize) -> Self {
        Self { first: 0, count }
    }

    /// All addresses, each once.
    pub(super) fn order(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |offset| (self.first + offset) % self.count)
    }

    pub(super) fn worked(&mut self, index: usize) {
        self.first = index;
    }

    /// The address in use looks alive but does not answer, so another one is tried first.
    pub(super) fn leave(&mut self) {
        self.first = (self.first + 1) % self.count.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::Rotation;

    #[test]
    fn addresses_are_tried_from_the_one_that_worked_last_and_each_once() {
        let mut rotation = Rotation::new(3);
        let order = |rotation: Rotation| rotation.order().collect::<Vec<_>>();
        assert_eq!(order(rotation), [0, 1, 2]);
        rotation.worked(1);
        assert_eq!(order(rotation), [1, 2, 0]);
        rotation.leave();
        assert_eq!(order(rotation), [2, 0, 1]);
        rotation.leave();
        assert_eq!(order(rotation), [0, 1, 2]);
    }
}
