//! Which parts of the topology could not be declared, so that each failure is reported once and not at each try.

use std::collections::HashMap;

/// The last error of each part that failed.
#[derive(Debug, Default)]
pub(super) struct Problems(HashMap<String, String>);

/// A change that has not been logged yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Failed { error: String },
    Restored { part: String },
}

impl Problems {
    /// A part was declared, or failed with this error.
    pub(super) fn update(&mut self, part: String, error: Option<String>) -> Option<News> {
        match error {
            Some(error) => {
                let is_known = self.0.insert(part, error.clone()).is_some_and(|before| before == error);
                (!is_known).then_some(News::Failed { error })
            }
            None => self.0.remove(&part).map(|_| News::Restored { part }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_news_once_and_again_when_it_changes_or_comes_back() {
        let mut problems = Problems::default();
        let mut update = |error: Option<&str>| problems.update("queue".to_owned(), error.map(str::to_owned));
        let failed = |error: &str| Some(News::Failed { error: error.to_owned() });
        assert_eq!(update(None), None);
        assert_eq!(update(Some("no permission")), failed("no permission"));
        assert_eq!(update(Some("no permission")), None);
        assert_eq!(update(Some("other arguments")), failed("other arguments"));
        assert_eq!(update(None), Some(News::Restored { part: "queue".to_owned() }));
        assert_eq!(update(None), None);
        assert_eq!(update(Some("no permission")), failed("no permission"));
    }
}
