//! What a consumer tells the broker about its queue's waits, for whoever looks at the broker: these wait queues are in use. The
//! broker shows a consumer's arguments to operators, and ignores those that it does not know (3.10, 4.0 and 4.3).

use super::{Arguments, Names};
use crate::settings::QueueConfig;

/// The namespace of the wait queues.
pub(crate) const NAMESPACE: &str = "rehop-namespace";
/// The wait queues, without the namespace: `wait.10000 wait.60000`. Empty if the queue's messages wait elsewhere.
pub(crate) const WAITS_IN: &str = "rehop-waits-in";

/// The arguments of a consumer of this queue.
pub(crate) fn announced(names: &Names, config: &QueueConfig) -> Arguments {
    let tiers = config.policy.strategy.tiers().map(|ttl| names.tier(ttl));
    let ladder = config.policy.used_ladder();
    let rungs = ladder.into_iter().flat_map(|ladder| ladder.rungs()).map(|ttl| names.rung(ttl));
    let waits_in: Vec<_> = tiers.chain(rungs).map(|queue| names.without_namespace(&queue).to_owned()).collect();
    Arguments::from([
        (NAMESPACE.to_owned(), names.namespace().into()),
        (WAITS_IN.to_owned(), waits_in.join(" ").as_str().into()),
    ])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::retry::backoff::Backoff;
    use crate::settings::{AskedDelays, Settings, WaitStrategy};
    use crate::topology::Argument;

    #[test]
    fn a_consumer_announces_the_wait_queues_that_its_own_queue_uses() {
        let check = |change: &dyn Fn(&mut Settings), expected: &str| {
            let mut settings = Settings::default();
            settings.ladder.max = Duration::from_secs(2);
            settings.retry.delays = Some(Backoff::List([500, 70].map(Duration::from_millis).to_vec()));
            change(&mut settings);
            let config = settings.resolve().unwrap().queue("orders").unwrap();
            let announced = announced(&Names::new("ns"), &config);
            let text = |text: &str| Argument::Text(text.to_owned());
            assert_eq!((&announced[NAMESPACE], &announced[WAITS_IN]), (&text("ns"), &text(expected)));
        };
        check(&|_| {}, "wait.70 wait.500");
        check(&|settings| settings.retry.strategy = Some(WaitStrategy::Ladder), "ladder.1000 ladder.2000");
        check(&|settings| settings.retry.after = Some(AskedDelays::Ladder), "wait.70 wait.500 ladder.1000 ladder.2000");
        check(&|settings| settings.retry.strategy = Some(WaitStrategy::InProcess), "");
    }
}
