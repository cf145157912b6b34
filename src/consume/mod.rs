//! From a delivery to its settlement. Four files tell it, in this order: [`session`] takes
//! deliveries, [`intake`] starts their handlers, [`attempt`] runs one and decides, and [`settle`]
//! publishes the copy, if [`copy`] had to write one, and settles the original; if the copy was
//! given up, [`uncopied`] says how.

mod account;
pub(crate) mod ack_timeout;
mod arrivals;
pub(crate) mod attempt;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod copy_deadline;
mod failure_counts;
pub(crate) mod failure_log;
mod fingerprint;
pub(crate) mod inbox;
pub(crate) mod intake;
pub(crate) mod malformed;
pub(crate) mod receipts;
pub(crate) mod session;
pub(crate) mod settle;
pub(crate) mod settler;
pub(crate) mod summary;
pub(crate) mod unacked;
pub(crate) mod uncopied;
pub(crate) mod worker;
