//! What operators of rehop's services do: see parked messages and send them back, look at a broker
//! for what would harm a service, and compare a topology with it.
//!
//! [`parked`] sees, replays, discards and edits messages at rest, [`doctor`] looks at a live broker
//! and compares its queues with the settings. The tool `rehop` (package `rehop-cli`) and the page
//! (`rehop-page`) are made of both. A service needs neither.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod docs;
#[cfg(feature = "doctor")]
pub mod doctor;
#[allow(missing_docs, reason = "no part of the API, although the tool and the page use it")]
#[doc(hidden)]
pub mod format;
#[allow(missing_docs, reason = "no part of the API, although the page uses it")]
#[cfg(feature = "doctor")]
#[doc(hidden)]
pub mod management;
pub mod parked;
mod subscribe;
mod telemetry;

#[cfg(test)]
#[path = "../../../src/inputs.rs"]
mod inputs;
