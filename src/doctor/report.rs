//! What the doctor reports.

use serde::Serialize;

use super::check::{Check, Severity};

/// What was found, and what could not be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The worst first.
    pub findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The check that found it.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, such as `queue "orders"`.
    pub object: String,
    /// What was seen.
    pub seen: String,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    pub(super) fn new(
        check: Check,
        object: impl Into<String>,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let severity = check.severity();
        Self { check, severity, object: object.into(), seen: seen.into(), remedy: remedy.into() }
    }
}

impl Report {
    /// A report with the worst findings first.
    pub(super) fn new(mut findings: Vec<Finding>, unseen: Vec<String>) -> Self {
        findings
            .sort_by(|one, other| (one.check, &one.object, &one.seen).cmp(&(other.check, &other.object, &other.seen)));
        findings.dedup();
        Self { findings, unseen }
    }

    /// Whether nothing was found.
    pub fn is_healthy(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings about the topology alone: exchanges, queues, bindings, and the policies on them.
    #[must_use]
    pub fn drift(mut self) -> Self {
        self.findings.retain(|finding| finding.check.is_drift() || Self::hides_drift(finding.check));
        self
    }

    /// An object that may not be looked at, or cannot be, may differ.
    fn hides_drift(check: Check) -> bool {
        matches!(check, Check::PermissionMissing | Check::QueueUnavailable | Check::ManagementUnusable)
    }
}
