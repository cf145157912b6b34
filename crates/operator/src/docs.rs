//! Pages that go with the API reference.

#[doc = include_str!("docs/parked.md")]
pub mod parked {}
#[doc = include_str!("docs/scripting.md")]
pub mod scripting {}
