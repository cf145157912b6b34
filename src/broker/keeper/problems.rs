//! Which parts of the topology could not be declared, so that each failure is reported once and not at each try.

use std::collections::HashMap;

/// The last error of each part that failed.
#[derive(Debug, Default)]
pub(super) struct Problems(HashMap<String, String>);

impl Problems {
    /// A part was declared, or failed with this error. Returns whether that is to be logged.
    pub(super) fn is_news(&mut self, part: &str, error: Option<&str>) -> bool {
        match error {
            Some(error) => self.0.insert(part.to_owned(), error.to_owned()).is_none_or(|before| before != error),
            None => self.0.remove(part).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_news_once_and_again_when_it_changes_or_comes_back() {
        let mut problems = Problems::default();
        for (error, is_news) in [
            (None, false),
            (Some("no permission"), true),
            (Some("no permission"), false),
            (Some("other arguments"), true),
            (None, true),
            (None, false),
            (Some("no permission"), true),
        ] {
            assert_eq!(problems.is_news("queue", error), is_news, "{error:?}");
        }
    }
}
