//! Whole rehop services on a simulated RabbitMQ, in virtual time.
//!
//! A [`World`] runs a service's own code: its [`Service`](rehop::Service), its settings, its
//! handlers. Instead of a real broker there is a [simulated one](rehop_simulator), and time passes
//! only in the calls that let it, when no task can run. So a test publishes a message, kills the
//! process, restarts the broker and lets two hours pass in milliseconds, without Docker, and the
//! same seed gives the same run.
//!
//! # A handler that is not idempotent
//!
//! A message is delivered again if its process dies or its connection is lost. A handler that
//! charges a card before it writes the receipt then charges twice. A test shows it:
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! use rehop::{Consumer, Failure, Message, Settings};
//! use rehop_worlds::{Stop, World};
//!
//! type Charges = Arc<Mutex<Vec<u32>>>;
//!
//! async fn serve(charges: Charges, stop: Stop) -> Result<(), rehop::Error> {
//!     let charge = move |order: Message<u32>| {
//!         let charges = charges.clone();
//!         async move {
//!             charges.lock().unwrap().push(order.body);
//!             // The receipt takes a second.
//!             tokio::time::sleep(Duration::from_secs(1)).await;
//!             Ok::<_, Failure>(())
//!         }
//!     };
//!     let service = rehop::Service::new(&Settings::default()).with_graceful_shutdown(stop);
//!     service.with_consumer(Consumer::new("orders", charge)).await.map(drop)
//! }
//!
//! let charges = Charges::default();
//! let mut world = World::new(7);
//! let process = world.start(|stop| serve(charges.clone(), stop));
//! world.publish("orders", &42);
//! world.pass(Duration::from_millis(500));
//! world.kill(process);
//! world.start(|stop| serve(charges.clone(), stop));
//! assert!(world.settle(Duration::from_secs(60)));
//! assert_eq!(*charges.lock().unwrap(), [42, 42], "the card was charged twice");
//! ```
//!
//! The cure is to remember the `message_id` of what was charged, in the same transaction.
//!
//! # rehop's own worlds
//!
//! A [`Scenario`] follows from a seed: the broker's release, the network, up to six processes,
//! queues of each strategy, messages, what each attempt does, what breaks, and which parked
//! messages operators send back. [`run`] runs the service on it, and [`check()`] compares what
//! happened with what rehop promises. `make worlds` does this with 100,000 seeds.
//! `make worlds SEED=7` prints the [`Story`] of seed 7; if it breaks a promise, the scenario is
//! shortened first.
//!
//! Operators run the code of `rehop-operator`, which reaches the broker by AMQP alone. What it asks
//! of the management API is not simulated: policies of a parked queue, the doctor, the page.
//! Scenarios with operators need the feature `replays`, which a service's own tests can leave out.
//!
//! # What is not simulated
//!
//! Permissions, except those that a scenario takes away; TLS; clusters; the sizes of frames; lapin
//! itself. The tests on real brokers are there for these. That the simulated broker does what real
//! ones do is checked by the conformance test of [`rehop_simulator`].

mod assertions;
mod attempt;
mod check;
mod draw;
mod ending;
mod network;
mod operator;
mod process;
mod record;
mod run;
mod scenario;
mod shrink;
mod stage;
mod story;

pub use attempt::Attempt;
#[doc(hidden)]
pub use attempt::{AttemptLog, rounded};
pub use check::{Promise, Violation, check};
pub use ending::ProcessEnd;
#[doc(hidden)]
pub use ending::failure_of;
pub use network::{Conditions, OddCopy, Oddity, Process, Replayed};
pub use record::{AttemptId, Happened, Recorded};
pub use rehop_simulator::Version;
pub use run::{RunOutcome, abandon, run};
pub use scenario::{
    AffectedQueues, AttemptEnd, AttemptPlan, Disturbance, Fault, FaultKind, Limit, MessagePlan,
    QueuePlan, ReplayPlan, Scenario,
};
pub use stage::{Delivered, Fate, MessageId, Stop, World};
pub use story::Story;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
