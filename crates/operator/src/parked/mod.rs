//! Parked, stray and discarded messages: see them, understand them, and send them back.
//!
//! Everything works on the queues themselves, without a database. [`Parked`] is the handle. Nothing
//! is lost by any of this: a message is published and confirmed elsewhere before it is acked here,
//! and what is only looked at goes back to its place.
//!
//! Three files tell how a message is moved: `look` takes it, `carry` chooses what is moved and
//! when, and `under_way` publishes it.
//!
//! Whatever comes out of a message was written by anyone. Escape it before it reaches a terminal or
//! a page.

mod arguments;
pub(crate) mod belief;
mod carry;
mod copies;
mod discard;
mod edit;
mod error;
mod export;
mod fates;
mod filter;
mod group;
mod import;
mod json_path;
mod list;
mod mask;
mod message;
mod operator;
mod progress;
mod queue_head;
mod ramp;
mod replay;
#[doc(hidden)]
pub mod samples;
mod sending;
mod session;
mod show;
mod under_way;
mod ways;

#[cfg(feature = "doctor")]
pub use crate::management::unlisted::add_unlisted_queues;
pub use discard::{DiscardRequest, Discarded, RestoreRequest, Restored};
pub use edit::{EditRequest, Edited};
pub use error::ParkedError;
pub use export::{Exported, Properties};
pub use filter::{Condition, Filter, parse_time};
pub use group::{Group, MessageKind, normalise};
pub use import::{ImportPlan, ImportRequest, Imported};
pub use list::{ListRequest, Listing, Planned};
#[doc(hidden)]
pub use mask::{Mask, plain, wildcard};
pub use message::{ParkedMessage, Place};
pub use operator::Parked;
pub use progress::{Fates, Progress, Tally};
pub use ramp::{RampSettings, Stop};
pub use replay::{ReplayRequest, Replayed};
pub use show::{Body, Detail, Shown};
