//! From a delivery to its settlement. [`session`] takes deliveries, and [`intake`] starts their
//! attempts. [`attempt`] is the flow of one: a delivery that is [`taken`] is [`started`],
//! [`handled`] and [`decided`]; then it is [`held`] for its next attempt, or it is [`copied`], if
//! [`copy`] has written a copy, settled and [`accounted`] for. Each of these is a file that imports
//! no later one. [`original`] says how a delivery is settled whose copy was given up.

mod accounted;
pub(crate) mod ack_timeout;
mod advice;
mod arrivals;
pub(crate) mod attempt;
pub(crate) mod context;
mod copied;
mod copy;
mod copy_deadline;
mod decided;
mod failure_counts;
pub(crate) mod failure_log;
mod fingerprint;
pub(crate) mod handled;
mod held;
pub(crate) mod inbox;
pub(crate) mod intake;
mod line;
pub(crate) mod malformed;
#[allow(missing_docs, reason = "no part of the API, although `internals` shares it")]
pub(crate) mod onlooker;
mod original;
pub(crate) mod receipts;
pub(crate) mod session;
mod settling_channel;
mod started;
pub(crate) mod summary;
mod taken;
pub(crate) mod work_queue;
mod worker;
