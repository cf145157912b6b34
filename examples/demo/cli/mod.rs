//! The tool's own texts, so that the demo prints what the tool prints. The tool is not a library, so its files are included; they
//! name each other by their paths in the tool, which are the same here.

#![allow(dead_code, reason = "the demo needs only a part of these files")]

#[path = "../../../src/cli/output.rs"]
mod output;
pub(crate) mod parked;
