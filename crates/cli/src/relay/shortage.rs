//! Says that the process has too few file descriptors, and not at each request.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(60);

/// When it was said last.
#[derive(Debug, Default)]
pub(super) struct Shortage(Mutex<Option<Instant>>);

impl Shortage {
    pub(super) fn say(&self) {
        if self.is_news(Instant::now()) {
            tracing::warn!(
                "no file descriptor is left for a connection to the endpoint; requests wait for one, and no attempt is spent: raise \
                 the limit of open files, such as LimitNOFILE= of systemd or ulimit -n"
            );
        }
    }

    fn is_news(&self, now: Instant) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = said.is_none_or(|said| now.saturating_duration_since(said) >= INTERVAL);
        if is_news {
            *said = Some(now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_news_once_a_minute() {
        let (shortage, begin) = (Shortage::default(), Instant::now());
        let news = [0, 1, 59, 60, 61, 119, 120]
            .map(|after| shortage.is_news(begin + Duration::from_secs(after)));
        assert_eq!(news, [true, false, false, true, false, false, true]);
    }
}
