//! What can go wrong with telemetry: at the start, and when it is flushed.

use std::error::Error;
use std::fmt;

use super::environment::Signal;
use crate::failure::with_sources;

/// Telemetry could not be set up. The service can run without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// A variable has an unsupported value, or lacks another one that must be set with it.
    #[error("{name} is {value:?}, but must be {expected}")]
    Variable {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// The values that are supported, or what else must be set.
        expected: &'static str,
    },
    /// A file that a variable names cannot be read.
    #[error("cannot read {path}, which is named by {variable}: {error}")]
    File {
        /// The variable.
        variable: String,
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// A signal's exporter cannot be built.
    #[error("cannot export {signal}: {}", with_sources(&**error))]
    #[non_exhaustive]
    Exporter {
        /// `traces`, `metrics` or `logs`.
        signal: &'static str,
        /// Why.
        error: Box<dyn Error + Send + Sync>,
    },
    /// The runtime for gRPC cannot be started.
    #[error("cannot start the exporters' runtime: {error}")]
    Runtime {
        /// Why.
        error: std::io::Error,
    },
    /// The process already has a `tracing` subscriber.
    #[error(
        "a tracing subscriber is already installed; use telemetry::builder(..).without_subscriber() and add Telemetry::layer() to yours"
    )]
    Subscriber,
}

impl InitError {
    pub(super) fn exporter(signal: Signal, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Exporter { signal: signal.as_str(), error: error.into() }
    }
}

/// Some telemetry was lost.
#[derive(Debug)]
pub struct FlushError {
    pub(super) failures: Vec<(Signal, String)>,
}

impl FlushError {
    /// The signals that were not exported completely (`traces`, `metrics`, `logs`), each with the
    /// reason.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.failures.iter().map(|(signal, problem)| (signal.as_str(), problem.as_str()))
    }
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("telemetry could not be exported")?;
        for (index, (signal, problem)) in self.failures.iter().enumerate() {
            write!(f, "{} {signal}: {problem}", if index == 0 { ";" } else { "," })?;
        }
        Ok(())
    }
}

impl Error for FlushError {}
