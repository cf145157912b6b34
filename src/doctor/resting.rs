//! Whether a queue of messages at rest may be looked at: AMQP does not show the policy on it.

use std::time::Duration;

use super::checks::{argument_limit, delivery_limit};
use super::report::Finding;
use crate::error::Error;
use crate::management::Api;
use crate::settings::Settings;
use crate::topology::{Names, Queue, Role, discarded};

/// Whoever asks is about to do something else, so it is not held up for longer.
const WITHIN: Duration = Duration::from_secs(5);

/// Looks for an argument or a policy that lets a message of this parked, stray or discarded queue be looked at only so often, before the
/// broker moves or deletes it. The finding says what to do. `None` if there is neither, or no such queue, and also if the settings name no
/// management API, which alone shows policies.
///
/// It asks the management API one question, for at most 5 seconds, and needs no AMQP connection.
///
/// # Errors
///
/// When the management API that the settings name cannot be used.
pub async fn lowered_delivery_limit(settings: &Settings, queue: &str) -> Result<Option<Finding>, Error> {
    let mut settings = settings.clone();
    settings.broker.timeout = settings.broker.timeout.min(WITHIN);
    let unusable = |problem: String| Error::Management { problem: problem.into() };
    let Some(api) = Api::of(&settings) else { return Ok(None) };
    let details = api.map_err(unusable)?.queue(queue).await.map_err(unusable)?;
    let wanted = resting(&Names::new(&settings.namespace), queue);
    Ok(wanted
        .zip(details)
        .and_then(|(wanted, details)| argument_limit(&wanted, &details).or_else(|| delivery_limit(&wanted, &details))))
}

/// Any queue but the two of the namespace is a parked one, whose name is free. All three kinds have the same limit.
fn resting(names: &Names, queue: &str) -> Option<Queue> {
    let role = match queue {
        stray if stray == names.stray() => Role::Stray,
        discarded if discarded == names.discarded() => Role::Discarded,
        _ => Role::Parked,
    };
    let template = discarded(names).queues.into_iter().next();
    template.map(|template| Queue { name: queue.to_owned(), role, ..template })
}
