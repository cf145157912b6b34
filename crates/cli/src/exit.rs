//! The exit statuses. The help of `rehop` and the page about scripts list them.

/// An error, which is on standard error.
pub(super) const ERROR: u8 = 1;
/// The command line is wrong. clap uses the same.
pub(super) const USAGE: u8 = 2;
/// Something was found that should not be.
pub(super) const FINDINGS: u8 = 3;
/// Something was left undone, or did not succeed.
pub(super) const UNFINISHED: u8 = 3;
/// Everything was sent, and the fate of some is unknown.
pub(super) const UNKNOWN: u8 = 4;
