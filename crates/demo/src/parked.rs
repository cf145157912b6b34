//! What `rehop parked` prints, so that the demo prints the same. The tool is not a library, so its
//! files are included; they name each other by their paths in the tool, which are the same here.

#![allow(dead_code, reason = "the demo needs only a part of these files")]

use rehop_operator::parked::{Listing, Replayed};

#[path = "../../cli/src/parked/answers.rs"]
mod answers;
#[path = "../../cli/src/parked/plan.rs"]
mod plan;
#[path = "../../cli/src/parked/text.rs"]
pub(super) mod text;

/// As `rehop parked list` prints it.
pub(crate) fn listing(listing: &Listing) -> String {
    answers::listing(listing)
}

/// As `rehop parked replay --apply` prints it.
pub(crate) fn replayed(replayed: &Replayed) -> String {
    answers::replayed(replayed)
}
