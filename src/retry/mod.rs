//! What becomes of a message: the ledger of its chain, the policy, and the decision. Pure: no I/O,
//! no clock.

pub(crate) mod backoff;
pub(crate) mod decision;
pub(crate) mod ledger;
pub(crate) mod outcome;
pub(crate) mod policy;
