//! The result of one run at one rate.

use std::time::Duration;

use super::arrivals::Arrivals;
use super::sustained::{Flow, Times};
use crate::audit::Audit;
use crate::effort::Pace;
use crate::run::ms_after;
use crate::way::Way;
use crate::witness::Seen;

pub(crate) struct Passage {
    pub(crate) flow: Flow,
    /// In milliseconds against the schedule, for the messages that count.
    pub(crate) lateness: Vec<f64>,
    pub(crate) audit: Audit,
}

impl Passage {
    /// `ended` is when the consumer was stopped.
    pub(crate) fn of(
        rate: u32,
        pace: Pace,
        way: Way,
        arrivals: &Arrivals,
        seen: &[Seen],
        ended: Duration,
        audit: Audit,
    ) -> Self {
        let schedule = arrivals.schedule;
        let from = schedule.begins + pace.warm_up;
        let times: Vec<_> = seen
            .iter()
            .zip(&arrivals.confirmed)
            .enumerate()
            .map(|(id, (seen, arrived))| Times {
                due: schedule.due(id),
                arrived: *arrived,
                over: schedule.due(id) + way.wait(id),
                finished: seen.last,
            })
            .collect();
        let flow = Flow::of(rate, from..from + pace.counted, &times);
        // An unfinished message is at least as late as it was when the consumer stopped. Leaving it
        // out would flatter the result.
        let lateness = times
            .iter()
            .filter(|message| message.due >= from)
            .map(|message| ms_after(message.finished.unwrap_or(ended), message.over))
            .collect();
        Self { flow, lateness, audit }
    }
}
