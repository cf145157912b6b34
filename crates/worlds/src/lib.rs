//! Whole rehop services on a simulated RabbitMQ, in virtual time.

mod check;
mod draw;
mod network;
mod process;
mod record;
mod scenario;
mod shrink;
mod stage;
mod story;
mod world;

pub use check::{Promise, Violation, check};
pub use network::{LateCopy, Network, Process, Weather};
pub use record::{AttemptId, Happened, Recorded};
pub use scenario::{AttemptPlan, Ending, Fault, FaultKind, MessagePlan, QueuePlan, Scenario};
pub use stage::{Delivered, Fate, MessageId, Stop, World};
pub use story::Story;
pub use world::{Outcome, abandon, run};
