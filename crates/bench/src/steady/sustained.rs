//! Decides whether a rate is sustained, from when each message was due, arrived and finished.

use std::ops::Range;
use std::time::Duration;

pub(crate) const DEFINITION: &str = "while arrivals were counted, at least 98 % of the rate was confirmed, the backlog grew by less than 2 % of \
the rate, and in the end all messages finished;\n  \
backlog: unfinished messages whose wait should be over; its growth is the slope of a straight line through it";

/// How far arrivals may fall short, and how fast the backlog may grow, as a fraction of the rate.
const TOLERANCE: f64 = 0.02;
/// How often the backlog is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// One message, on the witness's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// When it should arrive.
    pub(crate) due: Duration,
    /// When its wait should be over.
    pub(crate) over: Duration,
    /// When it was confirmed.
    pub(crate) arrived: Duration,
    pub(crate) finished: Option<Duration>,
}

/// Messages per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Flow {
    pub(crate) arrived: f64,
    pub(crate) finished: f64,
    pub(crate) backlog_growth: f64,
    pub(crate) is_sustained: bool,
}

impl Flow {
    /// `counted` is the time during which arrivals count.
    pub(crate) fn of(rate: u32, counted: Range<Duration>, times: &[Times]) -> Self {
        let seconds = (counted.end - counted.start).as_secs_f64();
        let per_second = |moments: &mut dyn Iterator<Item = Duration>| {
            moments.filter(|moment| counted.contains(moment)).count() as f64 / seconds
        };
        let arrived = per_second(&mut times.iter().map(|message| message.arrived));
        let finished = per_second(&mut times.iter().filter_map(|message| message.finished));
        let backlog_growth = slope(&backlog(&counted, times));
        let rate = f64::from(rate);
        let is_sustained = arrived >= (1.0 - TOLERANCE) * rate
            && backlog_growth < TOLERANCE * rate
            && times.iter().all(|message| message.finished.is_some());
        Self { arrived, finished, backlog_growth, is_sustained }
    }
}

/// How many messages are overdue at each sampled second.
fn backlog(counted: &Range<Duration>, times: &[Times]) -> Vec<(f64, f64)> {
    let mut due: Vec<_> = times.iter().map(|message| message.over).collect();
    let mut finished: Vec<_> = times.iter().filter_map(|message| message.finished).collect();
    due.sort_unstable();
    finished.sort_unstable();
    let by = |moments: &[Duration], now| moments.partition_point(|moment| *moment <= now) as f64;
    let looks = (0..)
        .map(|look| counted.start + look * SAMPLE_INTERVAL)
        .take_while(|now| counted.contains(now));
    looks.map(|now| (now.as_secs_f64(), by(&due, now) - by(&finished, now))).collect()
}

/// The slope of the best straight line (least squares).
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    covariance / variance
}
