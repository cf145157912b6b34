//! Pages that go with the API reference.

#[doc = include_str!("docs/page.md")]
pub mod page {}
