//! Headers that cannot be read: who sends them, and how many.

use std::collections::HashMap;
use std::sync::Mutex;

use lapin::BasicProperties;

use crate::lock::lock;
use crate::wire::Ignored;

/// How many headers of producers are told apart. Producers name themselves, so there may be any
/// number of names.
const MAX_NAMES: usize = 100;

/// Counts the headers that cannot be read, by their name and their producer's.
#[derive(Debug, Default)]
pub(crate) struct Malformed(Mutex<HashMap<(String, String), u64>>);

impl Malformed {
    /// Warns about the first of each producer, and again whenever there are ten times as many.
    pub(crate) fn note(&self, queue: &str, message: &BasicProperties, ignored: Vec<Ignored>) {
        if ignored.is_empty() {
            return;
        }
        let producer = message.app_id().as_ref().map_or("", |name| name.as_str());
        for Ignored { header, because } in ignored {
            if let Some(count) = self.count(&header, producer) {
                tracing::warn!(
                    queue,
                    header,
                    app_id = producer,
                    count,
                    because,
                    "a header is malformed, and its message is handled as if it had none; more from the same app_id are counted, and reported \
                     when there are ten times as many"
                );
            }
        }
    }

    /// Returns how many there are, if that is to be reported.
    fn count(&self, header: &str, producer: &str) -> Option<u64> {
        let mut counts = lock(&self.0);
        let mut key = (header.to_owned(), producer.to_owned());
        if counts.len() >= MAX_NAMES && !counts.contains_key(&key) {
            key.1.clear();
        }
        let count = counts.entry(key).or_default();
        *count += 1;
        std::iter::successors(Some(1_u64), |power| power.checked_mul(10))
            .take_while(|power| *power <= *count)
            .any(|power| power == *count)
            .then_some(*count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_producer_is_reported_at_once_and_whenever_there_are_ten_times_as_many() {
        let malformed = Malformed::default();
        let reported = |producer: &str, messages: usize| {
            let counts = (0..messages).filter_map(|_| malformed.count("expires", producer));
            counts.collect::<Vec<_>>()
        };
        assert_eq!(reported("shop", 150), [1, 10, 100]);
        assert_eq!(reported("till", 5), [1]);
        assert_eq!(reported("", 10), [1, 10]);
        assert_eq!(malformed.count("other", "shop"), Some(1));
    }

    #[test]
    fn producers_that_name_themselves_anew_each_time_are_counted_together() {
        let malformed = Malformed::default();
        let reports =
            (0..1_000).filter_map(|number| malformed.count("expires", &number.to_string()));
        assert_eq!(reports.count(), MAX_NAMES + 3);
        assert!(malformed.0.lock().unwrap().len() <= MAX_NAMES + 1);
    }
}
