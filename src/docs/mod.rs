//! Pages that are read beside the reference.

#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = include_str!("changelog.md")]
pub mod changelog {}
