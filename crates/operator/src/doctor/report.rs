//! What the doctor reports.

use serde::Serialize;

use super::check::{Check, Severity};
use super::usage::Usage;
use rehop::Timestamp;

/// What was found, and what could not be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The worst first.
    pub findings: Vec<Finding>,
    /// How near the broker's limits are. Only [`examine`](super::examine) looks at them.
    pub limits: Vec<Usage>,
    /// When the management API was asked, in milliseconds since the epoch as JSON. It does not say
    /// how old its counts are. Only [`examine`](super::examine) tells this, if there was an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
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
        findings.sort_by(|one, other| {
            (one.check, &one.object, &one.seen).cmp(&(other.check, &other.object, &other.seen))
        });
        findings.dedup();
        Self { findings, limits: Vec::new(), asked_at: None, unseen }
    }

    pub(super) fn with_counts(self, limits: Vec<Usage>, asked_at: Option<Timestamp>) -> Self {
        Self { limits, asked_at, ..self }
    }

    /// Whether nothing was found.
    pub fn is_healthy(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings about the topology alone: exchanges, queues, bindings, and the policies on
    /// them.
    #[must_use]
    pub fn drift(mut self) -> Self {
        self.findings
            .retain(|finding| finding.check.is_drift() || Self::hides_drift(finding.check));
        self
    }

    /// An object that may not be looked at, or cannot be, may differ.
    fn hides_drift(check: Check) -> bool {
        matches!(
            check,
            Check::PermissionMissing | Check::QueueUnavailable | Check::ManagementUnusable
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(found: &[(Check, &str)]) -> Report {
        let findings = found
            .iter()
            .map(|(check, object)| Finding::new(*check, *object, "it is gone", "look for it"));
        Report::new(findings.collect(), vec!["policies".to_owned()])
    }

    fn told(report: &Report) -> Vec<(Check, &str)> {
        report.findings.iter().map(|finding| (finding.check, finding.object.as_str())).collect()
    }

    #[test]
    fn the_worst_is_told_first_and_everything_once() {
        use Check::{NoConsumer, QueueMissing, UnusedTier};
        let report = report(&[
            (NoConsumer, "b"),
            (UnusedTier, "a"),
            (NoConsumer, "a"),
            (QueueMissing, "c"),
            (NoConsumer, "b"),
        ]);
        assert_eq!(
            told(&report),
            [(QueueMissing, "c"), (NoConsumer, "a"), (NoConsumer, "b"), (UnusedTier, "a")]
        );
    }

    #[test]
    fn a_report_without_findings_is_healthy_whatever_could_not_be_seen() {
        assert!(report(&[]).is_healthy() && !report(&[(Check::UnusedTier, "a")]).is_healthy());
    }

    #[test]
    fn a_comparison_of_the_topology_tells_what_differs_and_what_may_hide_a_difference() {
        use Check::{
            ManagementUnusable, NoConsumer, PermissionMissing, QueueMissing, QueueUnavailable,
            StrayNotEmpty,
        };
        let all = [
            QueueMissing,
            QueueUnavailable,
            PermissionMissing,
            StrayNotEmpty,
            NoConsumer,
            ManagementUnusable,
        ];
        let drift = report(&all.map(|check| (check, "a"))).drift();
        let left = [QueueMissing, QueueUnavailable, PermissionMissing, ManagementUnusable];
        assert_eq!(told(&drift), left.map(|check| (check, "a")));
    }

    #[test]
    fn a_check_has_the_same_id_in_text_and_in_json() {
        let report = report(&[(Check::NoConsumer, "queue \"orders\"")]);
        assert_eq!(report.findings[0].check.to_string(), "no-consumer");
        let finding = json!({
            "check": "no-consumer", "severity": "warning", "object": "queue \"orders\"", "seen": "it is gone",
            "remedy": "look for it",
        });
        assert_eq!(
            serde_json::to_value(report).unwrap(),
            json!({ "findings": [finding], "limits": [], "unseen": ["policies"] })
        );
    }
}
