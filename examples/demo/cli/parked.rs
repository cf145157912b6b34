//! `rehop parked`.

use rehop::parked::{Listing, Replayed};

#[path = "../../../src/cli/parked/answers.rs"]
mod answers;
#[path = "../../../src/cli/parked/plan.rs"]
mod plan;
#[path = "../../../src/cli/parked/text.rs"]
pub(super) mod text;

/// As `rehop parked list` prints it.
pub(crate) fn listing(listing: &Listing) -> String {
    answers::listing(listing)
}

/// As `rehop parked replay --apply` prints it.
pub(crate) fn replayed(replayed: &Replayed) -> String {
    answers::replayed(replayed)
}
