//! Scripts with a name, one for each fact that matters, and what is seen.

mod cycles;
mod declaring;
mod delays;
mod deletion;
mod headers;
mod lengths;
mod limits;
mod order;
mod places;
mod priorities;
mod refusals;
mod routing;
mod timeouts;
mod waiting;
