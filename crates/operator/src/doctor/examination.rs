//! Looks at a broker: by AMQP, and through the management API where the settings name it.

use std::sync::Arc;
use std::time::Duration;

use super::amqp::{Eyes, ends_connection};
use super::management::lasting;
use super::observed::{
    DeliveryLimit, Existence, LIMIT_OUT_OF_REACH, Management, Object, Observed, QueueState,
};
use super::subject::Subject;
use crate::management::Api;
use rehop::Error;
use rehop::Settings;
use rehop::internals::Link;
use rehop::internals::client::Connection;
use rehop::topology::Role;

/// What an examination has found, with the connection for what is done next.
pub(super) struct Examination {
    pub(super) subject: Subject,
    pub(super) seen: Observed,
    pub(super) api: Option<Api>,
    link: Link,
    connection: Arc<dyn Connection>,
}

/// Quorum queues count every 5 seconds (3.10, 4.0 and 4.3), so a later look sees another sample
/// only after that.
pub(super) const NEXT_SAMPLE: Duration = Duration::from_secs(6);

impl Examination {
    /// # Errors
    ///
    /// When the settings are wrong, or the broker cannot be reached by AMQP.
    pub(super) async fn of(settings: &Settings) -> Result<Self, Error> {
        let mut subject = Subject::of(settings)?;
        let link = Link::new(format!("{} doctor", settings.namespace), settings.broker.clone());
        let connection = link.start().await?;
        let eyes = Eyes { connection: &*connection, limit: link.answer_timeout() };
        let mut seen = eyes.look(&mut subject).await?;
        try_to_publish(settings, &subject, &mut seen).await?;
        let api = match Api::of(settings) {
            None => {
                seen.unseen.push(NO_MANAGEMENT.to_owned());
                None
            }
            Some(Err(problem)) => {
                seen.management_problem = Some(problem);
                None
            }
            Some(Ok(api)) => Some(api),
        };
        if let Some(api) = &api {
            match management(api, &subject).await {
                Ok((mut management, unseen)) => {
                    eyes.doubt(&mut management.consumers).await?;
                    seen.management = Some(management);
                    seen.unseen.extend(unseen);
                }
                Err(problem) => seen.management_problem = Some(problem),
            }
        }
        if let Some(management) = &seen.management {
            let is_present =
                |queue: &QueueState| matches!(queue.existence, Existence::Present { .. });
            let there =
                seen.queues.iter().filter(|(_, queue)| is_present(queue)).map(|(name, _)| name);
            let unknown = there.filter(|name| {
                !management.queues.contains_key(*name)
                    && !management.refused.contains(&Object::Queue((*name).clone()))
            });
            seen.unseen.extend(unknown.map(|name| {
                format!("queue {name:?} in the management API, which does not know it: does broker.management_url name another broker?")
            }));
        }
        if seen.is_not_compared && seen.management.is_none() {
            seen.unseen.push(
                "whether arguments differ: the user may not declare, so the broker does not compare them".to_owned(),
            );
        }
        Ok(Self { subject, seen, api, link, connection })
    }

    pub(super) fn eyes(&self) -> Eyes<'_> {
        Eyes { connection: &*self.connection, limit: self.link.answer_timeout() }
    }

    /// The link of its connection.
    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) async fn end(self) {
        self.link.close().await;
    }

    /// Learns how long the oldest message of each parked queue has been there. Looking counts as a
    /// delivery, so a queue is left alone where its limit is low or not known.
    pub(super) async fn at_heads_of_parked_queues(&mut self) -> Result<(), Error> {
        for queue in self.subject.topology.queues.iter().filter(|queue| queue.role == Role::Parked)
        {
            if self.seen.queues.get(&queue.name).is_none_or(|state| state.ready == 0) {
                continue;
            }
            let details = self
                .seen
                .management
                .as_ref()
                .and_then(|management| management.queues.get(&queue.name));
            let version = self.seen.management.as_ref().and_then(Management::version);
            let said = match details.map(|details| details.delivery_limit(version)) {
                Some(DeliveryLimit::Unlimited | DeliveryLimit::At(LIMIT_OUT_OF_REACH..)) => None,
                Some(DeliveryLimit::At(limit)) => Some(limit.to_string()),
                Some(DeliveryLimit::Unset | DeliveryLimit::Unknown) | None => {
                    Some("not known".to_owned())
                }
            };
            if let Some(said) = said {
                self.seen.unseen.push(format!(
                    "how long messages have been in {:?}: looking counts as a delivery, and its delivery limit is {said}",
                    queue.name,
                ));
                continue;
            }
            let eyes = Eyes { connection: &*self.connection, limit: self.link.answer_timeout() };
            match eyes.head_parked_since(&self.subject.names, &queue.name).await {
                Ok(since) => {
                    self.seen.oldest_parked.extend(since.map(|since| (queue.name.clone(), since)))
                }
                Err(error) if ends_connection(&error) => return Err(error),
                Err(error) => {
                    self.seen
                        .unseen
                        .push(format!("how long messages have been in {:?}: {error}", queue.name));
                }
            }
        }
        Ok(())
    }
}

/// Tries the permissions to publish, on a connection that may get blocked.
async fn try_to_publish(
    settings: &Settings,
    subject: &Subject,
    seen: &mut Observed,
) -> Result<(), Error> {
    const BLOCKED_AFTER: Duration = Duration::from_secs(5);
    let link =
        Link::new(format!("{} doctor publishing", settings.namespace), settings.broker.clone());
    let connection = link.start().await?;
    let eyes = Eyes { connection: &*connection, limit: link.answer_timeout().min(BLOCKED_AFTER) };
    let tried = eyes.probe_publishing(subject, seen).await;
    seen.is_blocked = link.state().is_blocked;
    link.close().await;
    match tried {
        Err(Error::Timeout { .. }) => {
            seen.unseen
                .push("whether the user may publish: the broker did not answer in time".to_owned());
            Ok(())
        }
        tried => tried,
    }
}

const NO_MANAGEMENT: &str = "policies, bindings, wait queues that are no longer used, messages that cannot be dead-lettered, the nodes and \
    their alarms, feature flags, members of quorum queues, and the broker's consumer_timeout: only the management API shows them; name \
    it with --management URL or broker.management_url";

/// Looks a second time if messages seem stuck: on a busy queue some are always on their way.
async fn management(api: &Api, subject: &Subject) -> Result<(Management, Vec<String>), String> {
    let (mut seen, unseen) = api.look(subject).await?;
    if seen.queues.values().any(|details| details.messages_dlx.is_some_and(|stuck| stuck > 0)) {
        tokio::time::sleep(NEXT_SAMPLE).await;
        let (later, _) = api.look(subject).await?;
        lasting(&mut seen.queues, &later.queues);
    }
    Ok((seen, unseen))
}
