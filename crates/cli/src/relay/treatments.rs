//! How the settings treat the relay's classes of failures.

use rehop::Settings;
use rehop::settings::QueueSettings;

use super::answer::Treatments;
use super::missing::{CONNECT, CONNECTION, TIMEOUT, UNREADABLE};

impl Treatments {
    /// The classes in `retry.errors`, for all queues and for this one.
    pub(super) fn of(settings: &Settings, queue: &str) -> Self {
        let own = settings.queues.iter().find(|settings| settings.queue == queue);
        let layers = [Some(&settings.retry), own.map(|QueueSettings { retry, .. }| retry)];
        let errors = layers.into_iter().flatten().filter_map(|retry| retry.errors.clone());
        Self(errors.flatten().collect())
    }

    /// Classes that look like the relay's, and that it never reports. They are probably mistyped.
    pub(super) fn mistyped(&self) -> impl Iterator<Item = &str> {
        let is_status =
            |status: &str| status.parse().is_ok_and(|status: u16| (100..1000).contains(&status));
        let is_ours = move |class: &str| {
            [TIMEOUT, CONNECT, CONNECTION, UNREADABLE].contains(&class)
                || class.strip_prefix("http_").is_some_and(is_status)
        };
        self.0
            .keys()
            .map(String::as_str)
            .filter(move |class| class.starts_with("http") && !is_ours(class))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;
    use rehop::settings::{RetrySettings, Treatment};
    use rehop::{Outcome, RetryPolicy};

    use super::*;

    fn treatments(all: &[(&str, Treatment)], own: &[(&str, Treatment)]) -> Treatments {
        let errors = |classes: &[(&str, Treatment)]| {
            Some(
                classes
                    .iter()
                    .map(|(class, treatment)| ((*class).to_owned(), *treatment))
                    .collect(),
            )
        };
        let mut settings = Settings::default();
        settings.retry.errors = errors(all);
        settings.queue_mut("q").retry.errors = errors(own);
        settings.queue_mut("other").retry.errors = errors(&[("http_418", Treatment::Discard)]);
        Treatments::of(&settings, "q")
    }

    #[test]
    fn a_class_in_the_settings_comes_before_the_default_and_the_queues_own_before_all() {
        let delay = Some(Duration::from_secs(7));
        let all = [("http_404", Treatment::Transient), ("http_503", Treatment::Transient)];
        let treatments = treatments(&all, &[("http_503", Treatment::Permanent)]);
        let delay_of = |status| {
            treatments
                .judge(StatusCode::from_u16(status).unwrap(), delay, None)
                .unwrap_err()
                .retry_after()
        };
        assert_eq!([404, 503, 418, 500].map(delay_of), [delay, None, None, delay]);
        assert!(treatments.judge(StatusCode::OK, None, None).is_ok());
    }

    #[test]
    fn a_class_that_is_deferred_needs_a_delay_and_is_transient_without_one() {
        let treatments = treatments(&[("http_429", Treatment::Defer)], &[]);
        let judge =
            |delay| treatments.judge(StatusCode::TOO_MANY_REQUESTS, delay, None).unwrap_err();
        let delay = Some(Duration::from_secs(7));
        let policy = RetryPolicy::new(&RetrySettings::default()).unwrap();
        let outcome = |delay| {
            policy.outcome_of(&rehop::testing::message(()).attempt(2).build(), &Err(judge(delay)))
        };
        assert_eq!((judge(delay).class(), judge(delay).retry_after()), ("http_429", delay));
        assert_eq!(judge(delay).message(), "the endpoint answered 429 Too Many Requests");
        assert!(matches!(outcome(delay), Outcome::Defer(_)));
        assert!(matches!(outcome(None), Outcome::Wait(_)));
    }

    #[test]
    fn a_class_that_the_relay_never_reports_is_found() {
        let all = ["http_404", "http_timeout", "timeout", "http_4O4", "http_1000", "https_404"];
        let treatments = treatments(&all.map(|class| (class, Treatment::Discard)), &[]);
        assert_eq!(
            treatments.mistyped().collect::<Vec<_>>(),
            ["http_1000", "http_4O4", "https_404"]
        );
    }
}
