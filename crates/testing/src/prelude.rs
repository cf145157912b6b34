//! All that a test of a service needs, by one `use rehop_testing::prelude::*`.
//!
//! | a test of | begins with |
//! |---|---|
//! | one attempt: message in, [`Outcome`] out | [`message`], then [`outcome`](rehop::testing::MessageBuilder::outcome) |
//! | a whole service in virtual time, with faults | [`World::new`] |
//! | the same on a real broker | [`RealWorld::new`] |
//!
//! ```
//! use rehop::{Failure, Message};
//! use rehop_testing::prelude::*;
//!
//! async fn charge(amount: Message<u32>) -> Result<(), Failure> {
//!     if amount.body == 0 { Err(Failure::permanent("nothing to charge")) } else { Ok(()) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! assert_eq!(message(12).outcome(charge).await, Outcome::Ack);
//! assert_eq!(message(0).outcome(charge).await, Outcome::Park(Reason::Permanent));
//! # }
//! ```

pub use std::time::Duration;

pub use rehop::testing::message;
pub use rehop::{Outcome, Reason, Settings};
pub use rehop_worlds::{Fate, MessageId, Stop, World};

pub use crate::{Broker, Namespace, RealWorld, eventually};
