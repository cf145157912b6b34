//! How a report is printed, and the exit status that goes with it.

use std::process::ExitCode;

use rehop_operator::doctor::{Finding, Report, Severity};
use rehop_operator::format;

use super::{exit, output};

/// The exit status of a command that looks for something: whether it has found anything of this
/// severity, or worse.
pub(super) fn status(report: &Report, threshold: Severity) -> ExitCode {
    // Severities are ordered from the worst to the mildest.
    let is_found = report.findings.iter().any(|finding| finding.severity <= threshold);
    if is_found { ExitCode::from(exit::FINDINGS) } else { ExitCode::SUCCESS }
}

/// Prints a report; `healthy` is what an empty one is called.
pub(super) fn print(report: &Report, json: bool, healthy: &str) -> anyhow::Result<()> {
    if json {
        return output::print_json(report);
    }
    let mut lines: Vec<String> = report.findings.iter().map(block).collect();
    lines.push(summary(report, healthy));
    // Without a limit there is nothing to be near to. But there may be one that is not known.
    let limits = report.limits.iter().filter(|usage| usage.limit.is_some() || !usage.is_known);
    lines.extend(limits.map(|usage| format!("limit: {}: {usage}", usage.what)));
    lines.extend(report.asked_at.map(|at| {
        let at = format::time(at);
        format!(
            "counted: by the management API, asked at {at}; its counts are up to 5 s old by default, and older if the broker's \
             collect_statistics_interval or sample_retention_policies say so"
        )
    }));
    lines.extend(report.unseen.iter().map(|unseen| format!("not seen: {unseen}")));
    output::print(&lines.join("\n"))
}

fn block(finding: &Finding) -> String {
    let Finding { check, severity, object, seen, remedy, .. } = finding;
    format!(
        "{:7}  {check}: {object}\n         seen: {seen}\n         do:   {remedy}\n",
        severity.as_str()
    )
}

fn summary(report: &Report, healthy: &str) -> String {
    if report.is_healthy() {
        return healthy.to_owned();
    }
    let count =
        |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    let each = [Severity::Error, Severity::Warning, Severity::Notice]
        .map(|severity| format::counted(count(severity) as u64, severity.as_str()));
    each.join(", ")
}
