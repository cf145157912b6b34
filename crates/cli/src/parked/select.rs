//! The options that several commands share: which queue, which messages, and whether to do it.

use std::time::{Duration, SystemTime};

use rehop::Timestamp;
use rehop_operator::parked::{Condition, Filter, Place, ReplayRequest};

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct PlaceArgs {
    /// The parked messages of this work queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// The stray messages of the namespace, which no queue took
    #[arg(long)]
    stray: bool,
    /// The messages of the namespace that were discarded in the last seven days
    #[arg(long)]
    discarded: bool,
}

impl PlaceArgs {
    pub(super) fn place(&self) -> Place {
        match &self.queue {
            Some(queue) => Place::queue(queue),
            None if self.stray => Place::Stray,
            None => Place::Discarded,
        }
    }
}

/// Of messages that are not discarded yet.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct UndiscardedArgs {
    /// The parked messages of this work queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// The stray messages of the namespace, which no queue took
    #[arg(long)]
    stray: bool,
}

impl UndiscardedArgs {
    /// Exactly one of the two is given.
    pub(super) fn place(&self) -> Place {
        match &self.queue {
            Some(queue) if !self.stray => Place::queue(queue),
            _ => Place::Stray,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Which messages (all that are given must match)")]
pub(super) struct FilterArgs {
    /// Parked for this reason, such as exhausted, permanent or delivery_limit
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// With this class of error; '' for messages without one
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// With this text in the last error, as it is or as the groups show it
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// With this error, whole, as it is or as the groups show it; '' for messages without one
    #[arg(long, value_name = "TEXT")]
    error_is: Option<String>,
    /// That a replay would send to this work queue; '' for messages that do not say where they belong
    #[arg(long, value_name = "QUEUE")]
    destination: Option<String>,
    /// With an original routing key that matches this pattern, as of a topic exchange: * is one word, # any number
    #[arg(long, value_name = "PATTERN")]
    key: Option<String>,
    /// Parked at this time or later: 2026-11-20T08:00:00Z, or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Parked before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Parked at least this long ago, such as 1d
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    older_than: Option<Duration>,
    /// Of this chain; may be repeated
    #[arg(long = "chain", value_name = "CHAIN")]
    chains: Vec<String>,
    /// That meet a condition such as 'body.customer == "x"' or 'header.tenant != "a"'; may be repeated
    #[arg(long = "where", value_name = "CONDITION")]
    conditions: Vec<Condition>,
    /// That were sent back by this replay, and parked again; or that this discard or edit has moved to the discarded ones
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// At most this many, the oldest first; those that stay because their queue does not exist count, too
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl FilterArgs {
    pub(super) fn filter(self) -> Filter {
        let mut filter = Filter::default();
        filter.reason = self.reason;
        filter.class = self.class;
        filter.error = self.error;
        filter.error_is = self.error_is;
        filter.destination = self.destination;
        filter.key = self.key;
        filter.since = self.since;
        filter.until = self.until;
        filter.older_than = self.older_than;
        filter.chains = self.chains;
        filter.conditions = self.conditions;
        filter.run = self.run;
        filter.limit = self.limit;
        filter
    }
}

/// Whether to do it, or only to print a plan. A command that does not call it a move replaces the help with its own words.
#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// Move the messages. Without this the command prints a plan
    #[arg(long)]
    pub(super) apply: bool,
    /// Move nothing unless exactly this many messages match
    #[arg(long, value_name = "N", requires = "apply")]
    pub(super) expect: Option<u64>,
    /// Why, for the log
    #[arg(long, value_name = "TEXT", requires = "apply")]
    pub(super) why: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct InFlightArgs {
    /// Have at most this many messages in flight. More is faster, but if this process is killed, as many may be duplicated
    #[arg(
        long,
        value_name = "N",
        default_value_t = ReplayRequest::DEFAULT_IN_FLIGHT,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    in_flight: u16,
    /// The same as --in-flight 1: at most one duplicate
    #[arg(long, conflicts_with = "in_flight")]
    strict: bool,
}

impl InFlightArgs {
    pub(super) fn number(&self) -> u16 {
        if self.strict { 1 } else { self.in_flight }
    }
}

/// A time, or how long ago it was.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = humantime::parse_rfc3339_weak(text) {
        return Ok(time.into());
    }
    let ago = humantime::parse_duration(text).ok().and_then(|ago| SystemTime::now().checked_sub(ago));
    ago.map(Timestamp::from).ok_or_else(|| "expected a time such as 2026-11-20T08:00:00Z, or 2h".to_owned())
}
