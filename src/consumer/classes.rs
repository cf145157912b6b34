//! Whether the classes that `retry.errors` names can occur.

use std::collections::BTreeSet;

use super::AnyConsumer;
use crate::failure::class::is_of_type;
use crate::settings::{Settings, SettingsError};

/// Classes that rehop gives failures without a name of their own.
const ALWAYS: [&str; 3] = ["error", "panic", "timeout"];

/// Finds a class in `retry.errors` that no consumer declares, and that is therefore misspelt or out
/// of date. A class of the service's own settings may be any consumer's.
pub(crate) fn check(settings: &Settings, consumers: &[AnyConsumer]) -> Result<(), SettingsError> {
    let mut of_all = Some(BTreeSet::new());
    for AnyConsumer { queue, retry, classes, .. } in consumers {
        let Some(classes) = classes else {
            of_all = None;
            continue;
        };
        of_all.iter_mut().for_each(|all| all.extend(classes));
        match retry {
            Some(policy) => known(policy.errors.keys(), classes, "retry.errors")?,
            None => {
                let index = settings.queues.iter().position(|settings| settings.queue == *queue);
                let Some(index) = index else { continue };
                let named =
                    settings.queues[index].retry.errors.iter().flat_map(|errors| errors.keys());
                let key = format!("queues.{index}.retry.errors");
                known(named, classes, &key).map_err(|error| error.of_queue(queue))?;
            }
        }
    }
    // With a policy set in code for each consumer, the service's own classes apply to nothing that
    // is consumed here.
    let applies = consumers.iter().any(|consumer| consumer.retry.is_none());
    match of_all.filter(|_| applies) {
        Some(classes) => known(
            settings.retry.errors.iter().flat_map(|errors| errors.keys()),
            &classes,
            "retry.errors",
        ),
        None => Ok(()),
    }
}

fn known<'a>(
    named: impl Iterator<Item = &'a String>,
    declared: &BTreeSet<&'static str>,
    key: &str,
) -> Result<(), SettingsError> {
    let mut unknown = named.filter(|class| {
        !(is_of_type(class)
            || declared.contains(class.as_str())
            || ALWAYS.contains(&class.as_str()))
    });
    let Some(class) = unknown.next() else { return Ok(()) };
    let possible: BTreeSet<_> = declared.iter().copied().chain(ALWAYS).collect();
    let possible = possible.into_iter().collect::<Vec<_>>().join(", ");
    let problem =
        format!("no failure has this class; the classes that the handlers declare are {possible}");
    Err(SettingsError::Invalid { key: format!("{key}.{class}"), from: None, problem })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::settings::{RetrySettings, Treatment};
    use crate::{Consumer, Failure, Message, RetryPolicy};

    fn naming(class: &str) -> RetrySettings {
        let errors = Some(BTreeMap::from([(class.to_owned(), Treatment::Permanent)]));
        RetrySettings { errors, ..RetrySettings::default() }
    }

    fn declaring(queue: &str, classes: &[&'static str]) -> AnyConsumer {
        consumer(queue).classes(classes.iter().copied()).into()
    }

    async fn handle(_: Message<String>) -> Result<(), Failure> {
        Ok(())
    }

    fn consumer(queue: &str) -> Consumer<String, impl crate::Handler<String>> {
        Consumer::new(queue, handle)
    }

    /// The key of the class that cannot occur.
    fn unknown(settings: &Settings, consumers: &[AnyConsumer]) -> Option<String> {
        match check(settings, consumers) {
            Err(SettingsError::Invalid { key, .. }) => Some(key),
            Err(other) => panic!("{other}"),
            Ok(()) => None,
        }
    }

    #[test]
    fn a_class_that_a_queues_handler_never_gives_is_an_error_that_lists_the_possible_ones() {
        let mut settings = Settings::default();
        settings.queue_mut("orders").retry = naming("declned");
        let error = check(&settings, &[declaring("orders", &["declined", "busy"])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "queues.0.retry.errors.declned: queue \"orders\": no failure has this class; the classes that the handlers declare are \
             busy, declined, error, panic, timeout"
        );
        assert_eq!(unknown(&settings, &[declaring("orders", &["declned"])]), None);
        assert_eq!(unknown(&settings, &[consumer("orders").into()]), None, "nothing is declared");
        assert_eq!(
            unknown(&settings, &[declaring("others", &[])]),
            None,
            "another queue's settings"
        );
    }

    #[test]
    fn a_class_of_the_service_may_be_any_consumers_and_is_checked_if_all_declare_theirs() {
        let settings = Settings { retry: naming("busy"), ..Settings::default() };
        let key = || Some("retry.errors.busy".to_owned());
        assert_eq!(unknown(&settings, &[declaring("a", &["x"]), declaring("b", &["busy"])]), None);
        assert_eq!(unknown(&settings, &[declaring("a", &["x"]), declaring("b", &["y"])]), key());
        assert_eq!(unknown(&settings, &[declaring("a", &["x"]), consumer("b").into()]), None);
    }

    #[test]
    fn classes_of_our_own_and_names_of_types_are_always_possible() {
        for class in ["error", "panic", "timeout", "io::Error", "ParseIntError"] {
            let settings = Settings { retry: naming(class), ..Settings::default() };
            assert_eq!(unknown(&settings, &[declaring("a", &[])]), None, "{class}");
        }
    }

    #[test]
    fn a_policy_set_in_code_is_checked_instead_of_the_settings() {
        let settings = Settings { retry: naming("never"), ..Settings::default() };
        let with = |class| -> AnyConsumer {
            consumer("a").retry(RetryPolicy::new(&naming(class)).unwrap()).classes(["busy"]).into()
        };
        assert_eq!(unknown(&settings, &[with("busy")]), None);
        assert_eq!(unknown(&settings, &[with("bussy")]), Some("retry.errors.bussy".to_owned()));
    }
}
