//! Warns of limits and policies under which looking at messages does harm.

use rehop::Settings;
use rehop_operator::doctor::{Finding, harm_of_looking};

/// Warns if an argument or a policy makes a look at these queues harmful. Only the management API
/// shows policies.
pub(super) async fn warn(settings: &Settings, queues: &[String]) {
    for queue in queues {
        match harm_of_looking(settings, queue).await {
            Ok(None) => {}
            Ok(Some(Finding { object, seen, remedy, .. })) => {
                tracing::warn!("{object}: {seen}; {remedy}")
            }
            Err(error) => {
                tracing::warn!(
                    "cannot see whether a policy makes looking at queue {queue:?} harmful: {error}"
                );
                // It would fail for each queue in the same way.
                return;
            }
        }
    }
}
