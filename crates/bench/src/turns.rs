//! The order of the runs. A run leaves work to the broker, so each side runs before and after each
//! other side.

use std::fmt;

/// One pass over all sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// Not counted: caches fill, and the broker grows its processes and files.
    WarmUp,
    Counted {
        /// From 0.
        number: usize,
        of: usize,
    },
}

impl Round {
    fn number(self) -> usize {
        match self {
            Self::WarmUp => 0,
            Self::Counted { number, .. } => number,
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WarmUp => f.write_str("warm-up"),
            Self::Counted { number, of } => write!(f, "round {} of {of}", number + 1),
        }
    }
}

/// A warm-up and this many rounds.
pub(crate) fn rounds(of: usize) -> impl Iterator<Item = Round> {
    std::iter::once(Round::WarmUp).chain((0..of).map(move |number| Round::Counted { number, of }))
}

/// The order of the sides in a round. Two take turns as A B, B A, B A, A B; three go through all
/// their orders; any number of sides run equally often at each position.
pub(crate) fn order(round: Round, sides: usize) -> Vec<usize> {
    let number = round.number();
    let rotated = (0..sides).map(|turn| (turn + number / 2) % sides);
    if number.is_multiple_of(2) { rotated.collect() } else { rotated.rev().collect() }
}
