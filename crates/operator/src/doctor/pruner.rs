//! Deletes wait queues, and exchanges that lead to them, that the settings no longer use.
//!
//! A quorum queue cannot be deleted on the condition that it is empty: RabbitMQ closes the
//! connection over `if-empty` and `if-unused` (3.10, 4.0 and 4.3). So a queue is first unbound,
//! which keeps new messages out; then its messages are counted again; and only an empty one is
//! deleted. Only the management API counts messages that the broker is dead-lettering. What it does
//! not tell is not zero: a queue of which something is not known stays.

use std::future::Future;

use futures_util::FutureExt;
use futures_util::future::Shared;
use serde::Serialize;

use super::amqp::{Eyes, ends_connection};
use super::examination::{Examination, NEXT_SAMPLE};
use super::observed::BindingDetails;
use super::unused::{Prunable, Unused, Verdict};
use super::users::Users;
use crate::management::Api;
use rehop::Settings;
use rehop::internals::Link;
use rehop::internals::Names;
use rehop::internals::answer;
use rehop::internals::names::{WAIT_FOR, then};
use rehop::internals::short;
use rehop::internals::table;
use rehop::topology::Arguments;
use rehop::{Error, Problem};

/// What became of a wait queue or an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pruned {
    /// What it is.
    pub object: Prunable,
    /// Its name.
    pub name: String,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Why it was kept.
    pub kept_because: Option<String>,
}

/// What became of everything that was to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruning {
    /// Each wait queue and exchange.
    pub objects: Vec<Pruned>,
    /// Whether some were kept only because the prune was told to stop.
    pub is_stopped: bool,
}

impl From<Vec<Pruned>> for Pruning {
    fn from(objects: Vec<Pruned>) -> Self {
        let is_stopped =
            objects.iter().any(|pruned| pruned.kept_because.as_deref() == Some(STOPPED));
        Self { objects, is_stopped }
    }
}

/// Why what could have been deleted was kept.
const STOPPED: &str = "the prune was told to stop";

/// The wait queues of the namespace, and the exchanges that lead to them, that the settings do not
/// use. Looks only.
///
/// # Errors
///
/// When the settings are wrong, or the broker or its management API cannot be used.
pub async fn unused(settings: &Settings) -> Result<Vec<Unused>, Error> {
    let examination = Examination::of(settings).await?;
    let unused = unused_of(&examination).map(|(_, unused)| unused);
    examination.end().await;
    unused
}

/// Deletes these of the [unused](unused) wait queues and exchanges. Whatever is in a worse state
/// than it was chosen in, or has one of the other verdicts than [`Verdict::Removable`] and
/// [`Verdict::MayBeInUse`], is kept. So is a queue that is not empty after it has been unbound.
/// Takes 12 seconds or more, because the broker counts messages every 5 seconds. A message that is
/// sent to a queue meanwhile goes to the stray queue; one that is on its way there from a longer
/// rung comes home early, and waits for the rest without an attempt.
///
/// When `stop` completes, nothing more is deleted, and what was unbound is bound again. If the
/// future is dropped instead, queues may stay unbound.
///
/// # Errors
///
/// As [`unused`], and [`Error::StillUnbound`].
pub async fn prune(
    settings: &Settings,
    chosen: &[Unused],
    stop: impl Future<Output = ()> + Send,
) -> Result<Pruning, Error> {
    let stop = stop.shared();
    let examination = tokio::select! {
        biased;
        () = stop.clone() => {
            let kept = chosen.iter().map(|unused| kept(unused.clone(), STOPPED.to_owned()));
            return Ok(kept.collect::<Vec<_>>().into());
        }
        examination = Examination::of(settings) => examination?,
    };
    let pruned = match unused_of(&examination) {
        Ok((api, unused)) => {
            let before = |now: &Unused| {
                chosen.iter().find(|before| before.name == now.name && before.object == now.object)
            };
            let chosen = unused
                .into_iter()
                .filter_map(|now| before(&now).map(|before| (before.verdict, now)))
                .collect();
            let pruner = Pruner {
                api,
                eyes: examination.eyes(),
                link: examination.link(),
                names: &examination.subject.names,
            };
            pruner.prune(chosen, &stop).await.map(Pruning::from)
        }
        Err(error) => Err(error),
    };
    examination.end().await;
    pruned
}

fn unused_of(examination: &Examination) -> Result<(&Api, Vec<Unused>), Error> {
    let (Some(api), Some(management)) = (&examination.api, &examination.seen.management) else {
        let problem = examination.seen.management_problem.clone();
        let problem = problem.unwrap_or_else(|| {
            "only it lists wait queues and counts everything in them; set --management URL or broker.management_url".to_owned()
        });
        return Err(Error::Management { problem: problem.into() });
    };
    let subject = &examination.subject;
    let unused = super::unused::unused(&subject.names, &subject.wait_queues(), management);
    Ok((api, unused))
}

struct Pruner<'a> {
    api: &'a Api,
    eyes: Eyes<'a>,
    link: &'a Link,
    names: &'a Names,
}

/// A queue that was unbound, and from which exchanges.
struct Unbound {
    unused: Unused,
    sources: Vec<String>,
}

/// What could not be bound again, and why.
#[derive(Default)]
struct StillUnbound {
    bindings: Vec<String>,
    problem: Option<Error>,
}

impl StillUnbound {
    fn add(&mut self, queue: &str, source: &str, problem: Error) {
        self.bindings.push(format!("queue {queue:?} from exchange {source:?}"));
        self.problem.get_or_insert(problem);
    }

    /// The error of a broker that cannot be reached: each further try would take as long.
    fn unreachable(&self) -> Option<&Error> {
        use Error::{Connect, ConnectAny, Timeout};
        self.problem
            .as_ref()
            .filter(|error| matches!(error, Connect { .. } | ConnectAny { .. } | Timeout { .. }))
    }

    fn into_error(self) -> Option<Error> {
        let error = self.problem?;
        Some(Error::StillUnbound {
            bindings: self.bindings,
            problem: Problem::new(error.to_string(), error),
        })
    }
}

/// A prune under way.
#[derive(Default)]
struct PruneProgress {
    pruned: Vec<Pruned>,
    unbound: Vec<Unbound>,
    /// Those that are deleted after the queues.
    exchanges: Vec<Unused>,
    /// After an error, or once it was told to stop, nothing more is deleted, but what is unbound is
    /// bound again: perhaps nobody else would do it.
    failed: Option<Error>,
}

impl Pruner<'_> {
    async fn prune(
        &self,
        chosen: Vec<(Verdict, Unused)>,
        stop: &Shared<impl Future<Output = ()>>,
    ) -> Result<Vec<Pruned>, Error> {
        let mut progress = self.unbind_queues(chosen, stop).await;
        if progress.failed.is_none() && !progress.unbound.is_empty() {
            tokio::select! {
                biased;
                () = stop.clone() => {}
                // A sample that begins after the last message came.
                () = tokio::time::sleep(NEXT_SAMPLE * 2) => {}
            }
        }
        let ended = match self.delete_queues(&mut progress, stop).await {
            Ok(()) => self.delete_exchanges(&mut progress, stop).await,
            Err(error) => Err(error),
        };
        if ended.is_err() {
            log_deleted(&progress.pruned);
        }
        ended.map(|()| progress.pruned)
    }

    /// Unbinds the queues that are still as they were when they were chosen. All of them are looked
    /// at before the first one is unbound: a look may take long, and what is unbound gets nothing.
    async fn unbind_queues(
        &self,
        chosen: Vec<(Verdict, Unused)>,
        stop: &Shared<impl Future<Output = ()>>,
    ) -> PruneProgress {
        let mut progress = PruneProgress::default();
        let PruneProgress { pruned, unbound, exchanges, failed } = &mut progress;
        let mut free = Vec::new();
        for (chosen_as, unused) in chosen {
            let is_as_chosen = unused.verdict == Verdict::Removable
                || (unused.verdict == Verdict::MayBeInUse && chosen_as == Verdict::MayBeInUse);
            match unused.object {
                _ if !is_as_chosen => {
                    let because = unused.verdict.as_str().to_owned();
                    pruned.push(kept(unused, because));
                }
                Prunable::Exchange => exchanges.push(unused),
                Prunable::Queue if is_stopped(stop) => {
                    pruned.push(kept(unused, STOPPED.to_owned()));
                }
                Prunable::Queue => match self.sources(&unused).await {
                    Ok(sources) => free.push(Unbound { unused, sources }),
                    Err(obstacle) => pruned.push(kept(unused, obstacle)),
                },
            }
        }
        for queue in free {
            if is_stopped(stop) {
                pruned.push(kept(queue.unused, STOPPED.to_owned()));
            } else if failed.is_none() {
                *failed = self.unbind(&queue.unused, &queue.sources).await.err();
                unbound.push(queue);
            }
        }
        progress
    }

    /// Deletes the queues that nothing has come to, and binds the others again.
    async fn delete_queues(
        &self,
        progress: &mut PruneProgress,
        stop: &Shared<impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let PruneProgress { pruned, unbound, failed, .. } = progress;
        let users = match is_stopped(stop) {
            true => Err(STOPPED.to_owned()),
            false => self.users().await,
        };
        let mut still_unbound = StillUnbound::default();
        for Unbound { unused, sources } in unbound.drain(..) {
            let obstacle = match (&*failed, &users) {
                (Some(error), _) => Some(error.to_string()),
                (None, Ok(_)) if is_stopped(stop) => Some(STOPPED.to_owned()),
                (None, Ok(users)) => self.obstacle(&unused, users).await,
                (None, Err(problem)) => Some(problem.clone()),
            };
            let obstacle = match obstacle {
                Some(obstacle) => obstacle,
                None => match self.delete_queue(&unused.name).await {
                    Ok(()) => {
                        pruned.push(deleted(unused));
                        continue;
                    }
                    Err(error) => failed.insert(error).to_string(),
                },
            };
            self.bind_again(&unused, &sources, &mut still_unbound).await;
            pruned.push(kept(unused, obstacle));
        }
        match still_unbound.into_error().or(failed.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// # Errors
    ///
    /// When the connection is lost. Another error keeps only its exchange.
    async fn delete_exchanges(
        &self,
        progress: &mut PruneProgress,
        stop: &Shared<impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        for unused in progress.exchanges.drain(..) {
            let obstacle = match is_stopped(stop) {
                true => Some(STOPPED.to_owned()),
                false => self.obstacle_to_exchange(&unused).await,
            };
            progress.pruned.push(match obstacle {
                None => match self.delete_exchange(&unused).await {
                    Ok(()) => deleted(unused),
                    Err(error) if ends_connection(&error) => return Err(error),
                    Err(error) => kept(unused, error.to_string()),
                },
                Some(obstacle) => kept(unused, obstacle),
            });
        }
        Ok(())
    }

    /// Who uses which wait queues by now.
    async fn users(&self) -> Result<Users, String> {
        let mut consumers = self.api.consumers(self.names, &mut Vec::new()).await?;
        self.eyes.doubt(&mut consumers).await.map_err(|error| error.to_string())?;
        Ok(Users::of(self.names.namespace(), &consumers))
    }

    async fn unbind(&self, unused: &Unused, sources: &[String]) -> Result<(), Error> {
        for source in sources {
            bind(&self.eyes, self.names, unused, source, false).await?;
        }
        Ok(())
    }

    /// Binds a queue to all that it was unbound from, and notes what cannot be bound.
    async fn bind_again(
        &self,
        unused: &Unused,
        sources: &[String],
        still_unbound: &mut StillUnbound,
    ) {
        for source in sources {
            let bound = match still_unbound.unreachable() {
                Some(error) => Err(error.clone()),
                None => self.bind_to(unused, source).await,
            };
            match bound {
                Ok(()) | Err(Error::Missing { .. }) => {}
                Err(error) => still_unbound.add(&unused.name, source, error),
            }
        }
    }

    /// On another connection, if this one was lost.
    async fn bind_to(&self, unused: &Unused, source: &str) -> Result<(), Error> {
        let connection = self.link.get().await?;
        let eyes = Eyes { connection: &*connection, limit: self.eyes.limit };
        bind(&eyes, self.names, unused, source, true).await
    }

    /// The exchanges of rehop's that lead to the queue. Another one is an obstacle: whoever bound
    /// the queue to it wants it. A queue without a leader is an obstacle, too: what the broker
    /// knows of it is outdated, and once unbound it might not be bound again.
    async fn sources(&self, unused: &Unused) -> Result<Vec<String>, String> {
        self.eyes.queue(&unused.name).await.map_err(|error| error.to_string())?;
        let bindings = self.api.bindings(&unused.name).await.map_err(|it| it.of("bindings"))?;
        let sources = bindings.into_iter().map(|binding| binding.source);
        // Every queue is bound to the default exchange, whose name is empty.
        let sources: Vec<_> = sources.filter(|source| !source.is_empty()).collect();
        match sources.iter().find(|source| !self.is_ours(source)) {
            Some(other) => Err(format!("it is bound to exchange {other}, which is not rehop's")),
            None => Ok(sources),
        }
    }

    fn is_ours(&self, exchange: &str) -> bool {
        self.names.of_wait_exchange(exchange).is_some() || self.names.of_after(exchange).is_some()
    }

    /// Why a queue that was unbound must stay.
    async fn obstacle(&self, unused: &Unused, users: &Users) -> Option<String> {
        let looked = async {
            Ok::<_, String>((
                self.api.queue(&unused.name).await.map_err(|it| it.of("queues"))?,
                self.api.bindings(&unused.name).await.map_err(|it| it.of("bindings"))?,
                self.api.messages(&unused.name).await?,
            ))
        };
        let (details, bindings, messages) = match looked.await {
            Ok(looked) => looked,
            Err(problem) => return Some(problem),
        };
        let Some(details) = details else { return Some("somebody else has deleted it".to_owned()) };
        let is_bound = |binding: &BindingDetails| !binding.source.is_empty();
        if bindings.iter().any(is_bound)
            || !users.of_queue(self.names.without_namespace(&unused.name)).is_empty()
        {
            return Some("a service that runs uses it".to_owned());
        }
        if unused.verdict == Verdict::Removable && !users.silent().is_empty() {
            return Some(Verdict::MayBeInUse.as_str().to_owned());
        }
        if !users.unseen().is_empty() {
            return Some(Verdict::UseUnknown.as_str().to_owned());
        }
        if details.has_lost_majority() {
            return Some(Verdict::NoMajority.as_str().to_owned());
        }
        if details.is_without_leader() {
            return Some(Verdict::NotCounted.as_str().to_owned());
        }
        match (messages, details.consumers, self.eyes.queue(&unused.name).await) {
            (_, _, Err(error)) => Some(error.to_string()),
            (Some(0), Some(0), Ok((0, 0))) => None,
            (None, _, _) | (_, None, _) => Some(Verdict::NotCounted.as_str().to_owned()),
            _ => Some("messages or consumers came meanwhile".to_owned()),
        }
    }

    /// Why an exchange must stay: for the one behind a rung, that the rung is still there.
    async fn obstacle_to_exchange(&self, unused: &Unused) -> Option<String> {
        let (own, delay) = self.names.of_after(&unused.name)?;
        match self.api.queue(&own.rung(delay)).await {
            Ok(None) => None,
            Ok(Some(_)) => Some(Verdict::Needed.as_str().to_owned()),
            Err(refusal) => Some(refusal.of("queues")),
        }
    }

    async fn delete_queue(&self, queue: &str) -> Result<(), Error> {
        let channel = self.eyes.channel().await?;
        let deleted = channel.delete_queue(short(queue)?);
        answer(&format!("deleting queue {queue:?}"), self.eyes.limit, deleted).await?;
        self.eyes.close(channel).await;
        Ok(())
    }

    /// One that leads to all rungs, or all tiers, is deleted only if it leads to none. Those
    /// between rungs lead to shorter ones to the last, and get messages only from their own rung,
    /// which is gone.
    async fn delete_exchange(&self, unused: &Unused) -> Result<(), Error> {
        let channel = self.eyes.channel().await?;
        let deleted = channel.delete_exchange(short(&unused.name)?, unused.delay_ms.is_none());
        answer(&format!("deleting exchange {:?}", unused.name), self.eyes.limit, deleted).await?;
        self.eyes.close(channel).await;
        Ok(())
    }
}

fn is_stopped(stop: &Shared<impl Future<Output = ()>>) -> bool {
    stop.clone().now_or_never().is_some()
}

async fn bind(
    eyes: &Eyes<'_>,
    names: &Names,
    unused: &Unused,
    source: &str,
    is_wanted: bool,
) -> Result<(), Error> {
    let channel = eyes.channel().await?;
    let delay = i64::try_from(unused.delay_ms.unwrap_or_default()).unwrap_or(i64::MAX);
    let header = match names.of_after(source) {
        Some((_, longer)) => then(longer.as_millis()),
        None => WAIT_FOR.to_owned(),
    };
    let arguments =
        table(&Arguments::from([("x-match".to_owned(), "all".into()), (header, delay.into())]))?;
    let (queue, exchange) = (short(&unused.name)?, short(source)?);
    if is_wanted {
        let bound = channel.bind_queue(queue, exchange, "".into(), arguments);
        answer(&format!("binding queue {:?}", unused.name), eyes.limit, bound).await?;
    } else {
        let unbound = channel.unbind_queue(queue, exchange, "".into(), arguments);
        answer(&format!("unbinding queue {:?}", unused.name), eyes.limit, unbound).await?;
    }
    eyes.close(channel).await;
    Ok(())
}

/// Logs what was deleted before an error, because the caller gets only the error.
fn log_deleted(pruned: &[Pruned]) {
    for Pruned { object, name, .. } in pruned.iter().filter(|pruned| pruned.deleted) {
        tracing::warn!("{} {name:?} was deleted before the error", object.as_str());
    }
}

fn deleted(unused: Unused) -> Pruned {
    Pruned { object: unused.object, name: unused.name, deleted: true, kept_because: None }
}

fn kept(unused: Unused, because: String) -> Pruned {
    Pruned { object: unused.object, name: unused.name, deleted: false, kept_because: Some(because) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_prune_was_stopped_if_that_is_why_something_was_kept() {
        let wait_queue = || {
            let (object, name, verdict) =
                (Prunable::Queue, "ns.wait.500".to_owned(), Verdict::Removable);
            Unused {
                object,
                name,
                delay_ms: Some(500),
                messages: Some(0),
                verdict,
                used_by: Vec::new(),
            }
        };
        for (because, expected) in [(STOPPED, true), (Verdict::HasMessages.as_str(), false)] {
            let pruning =
                Pruning::from(vec![deleted(wait_queue()), kept(wait_queue(), because.to_owned())]);
            assert_eq!(pruning.is_stopped, expected, "{because}");
        }
    }

    fn refused() -> Error {
        Error::Refused { what: "binding".to_owned(), problem: "no".to_owned().into() }
    }

    fn silent() -> Error {
        Error::Timeout { what: "binding".to_owned(), limit: Duration::from_secs(1) }
    }

    fn after(problems: [Error; 2]) -> StillUnbound {
        let mut still = StillUnbound::default();
        for (queue, problem) in ["one", "other"].into_iter().zip(problems) {
            still.add(queue, "ns.wait", problem);
        }
        still
    }

    #[test]
    fn a_broker_that_does_not_answer_is_not_asked_again() {
        assert!(after([silent(), refused()]).unreachable().is_some());
        assert!(after([refused(), refused()]).unreachable().is_none());
        assert!(StillUnbound::default().unreachable().is_none());
    }

    #[test]
    fn all_that_is_still_unbound_is_named_with_the_first_problem() {
        let error = after([refused(), silent()]).into_error();
        let Some(Error::StillUnbound { bindings, problem }) = &error else { panic!("{error:?}") };
        assert_eq!(
            *bindings,
            ["one", "other"].map(|queue| format!("queue {queue:?} from exchange \"ns.wait\""))
        );
        assert_eq!(problem.to_string(), refused().to_string());
        assert!(StillUnbound::default().into_error().is_none());
    }
}
