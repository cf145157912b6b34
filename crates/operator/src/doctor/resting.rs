//! Whether a queue of messages at rest may be looked at: AMQP does not show the policy on it.

use std::time::Duration;

use super::checks::{argument_limit, delayed_retry, delivery_limit};
use super::report::Finding;
use super::untold::UNTOLD;
use crate::management::Api;
use rehop::Error;
use rehop::Settings;
use rehop::internals::{Names, discarded};
use rehop::topology::{Queue, Role};

/// Whoever asks is about to do something else, so it is not held up for longer.
const WITHIN: Duration = Duration::from_secs(5);

/// Looks for an argument or a policy under which a look at this parked, stray or discarded queue
/// does harm: the broker moves or deletes a message that was looked at too often, or hides it for a
/// while. The finding says what to do. `None` if there is neither, or no such queue, and also if
/// the settings name no management API, which alone shows policies.
///
/// It asks the management API one question, for at most 5 seconds, and needs no AMQP connection.
///
/// # Errors
///
/// When the management API that the settings name cannot be used, or does not show policies.
pub async fn harm_of_looking(settings: &Settings, queue: &str) -> Result<Option<Finding>, Error> {
    let mut settings = settings.clone();
    settings.broker.timeout = settings.broker.timeout.min(WITHIN);
    let unusable = |problem: String| Error::Management { problem: problem.into() };
    let Some(api) = Api::of(&settings) else { return Ok(None) };
    let details = api.map_err(unusable)?.queue(queue).await;
    let details = details.map_err(|refusal| unusable(refusal.of("queues")))?;
    let wanted = resting(&Names::new(&settings.namespace), queue);
    let Some((wanted, details)) = wanted.zip(details) else { return Ok(None) };
    let checks = [argument_limit, delivery_limit, delayed_retry];
    match checks.into_iter().find_map(|check| check(&wanted, &details)) {
        None if details.effective_policy.is_none() => {
            let what = "it does not show the policies that apply to queue";
            Err(unusable(format!("{what} {queue:?}: {UNTOLD}")))
        }
        found => Ok(found),
    }
}

/// Any queue but the two of the namespace is a parked one, whose name is free. All three kinds have
/// the same limit.
fn resting(names: &Names, queue: &str) -> Option<Queue> {
    let role = match queue {
        stray if stray == names.stray() => Role::Stray,
        discarded if discarded == names.discarded() => Role::Discarded,
        _ => Role::Parked,
    };
    let mut resting = discarded(names).queues.into_iter().next()?;
    (resting.name, resting.role) = (queue.to_owned(), role);
    Some(resting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::subject::Subject;

    #[test]
    fn each_queue_of_messages_at_rest_is_taken_for_what_it_is_with_the_limit_that_it_is_declared_with()
     {
        let mut settings = Settings::default();
        settings.namespace = "ns".to_owned();
        settings.queue_mut("orders");
        let subject = Subject::of(&settings).unwrap();
        let queues = [subject.topology.queues.clone(), subject.discarded().queues].concat();
        let at_rest: Vec<_> =
            queues.iter().filter(|it| !matches!(it.role, Role::Work | Role::Wait)).collect();
        assert_eq!(at_rest.len(), 3);
        for declared in at_rest {
            let taken_for = resting(&subject.names, &declared.name).unwrap();
            assert_eq!((&taken_for.name, taken_for.role), (&declared.name, declared.role));
            let [limit, wanted] =
                [&taken_for, declared].map(|queue| queue.arguments.get("x-delivery-limit"));
            assert!(limit.is_some() && limit == wanted, "{taken_for:?}");
        }
    }
}
