//! Pages that go with the API reference.

#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("decisions.md")]
pub mod decisions {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("comparison.md")]
pub mod comparison {}

#[doc = include_str!("settings.md")]
pub mod settings {}

#[doc = include_str!("waiting.md")]
pub mod waiting {}

#[doc = include_str!("topology.md")]
pub mod topology {}

#[doc = include_str!("headers.md")]
pub mod headers {}

#[doc = include_str!("producers.md")]
pub mod producers {}

#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = include_str!("runbooks.md")]
pub mod runbooks {}

#[doc = include_str!("testing.md")]
pub mod testing {}

// Its program needs the feature.
#[cfg(feature = "otlp")]
#[doc = include_str!("telemetry.md")]
pub mod telemetry {}

#[doc = include_str!("proof.md")]
pub mod proof {}

#[doc = include_str!("changelog.md")]
pub mod changelog {}
