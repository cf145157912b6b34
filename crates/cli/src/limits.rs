//! Warns of delivery limits under which looking at messages does harm.

use rehop::Settings;
use rehop_operator::doctor::{Finding, lowered_delivery_limit};

/// Warns if an argument or a policy limits how often the messages of these queues may be looked at. Only the management API shows
/// policies.
pub(super) async fn warn(settings: &Settings, queues: &[String]) {
    for queue in queues {
        match lowered_delivery_limit(settings, queue).await {
            Ok(None) => {}
            Ok(Some(Finding { object, seen, remedy, .. })) => tracing::warn!("{object}: {seen}; {remedy}"),
            Err(error) => {
                tracing::warn!("cannot see whether a policy lowers the delivery limit of queue {queue:?}: {error}");
                // It would fail for each queue in the same way.
                return;
            }
        }
    }
}
