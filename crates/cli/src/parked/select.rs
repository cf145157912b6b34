//! The options that several commands share: which queue, which messages, and whether to do it.

use std::time::SystemTime;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use rehop::{Reason, Timestamp};
use rehop_operator::parked::{Condition, Filter, Place, ReplayRequest, parse_time};

use crate::options::Usage;

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct PlaceArgs {
    /// The parked messages of this work queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// The stray messages, which no queue took
    #[arg(long)]
    stray: bool,
    /// The messages that were discarded in the last seven days
    #[arg(long)]
    discarded: bool,
}

impl PlaceArgs {
    pub(super) fn place(&self) -> Place {
        self.optional_place().unwrap_or(Place::Discarded)
    }

    /// For a command that does not need one.
    pub(super) fn optional_place(&self) -> Option<Place> {
        match &self.queue {
            Some(queue) => Some(Place::queue(queue)),
            None if self.stray => Some(Place::Stray),
            None => self.discarded.then_some(Place::Discarded),
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
    /// The stray messages, which no queue took
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
    /// Parked for this reason, such as exhausted
    ///
    /// Set by rehop: exhausted, permanent, expired, undecodable, delay_too_long, deferred_too_often
    /// or unpublishable. Set by the broker: delivery_limit, rejected, maxlen or expired. unknown:
    /// no reason is known.
    #[arg(long, value_name = "REASON", value_parser = PossibleValuesParser::new(REASONS), hide_possible_values = true)]
    reason: Option<String>,
    /// With this class of error
    ///
    /// '' for messages without one.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// With this text in the last error, as it is or as the groups show it
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new(), hide_short_help = true)]
    error: Option<String>,
    /// With this error, whole, as it is or as the groups show it
    ///
    /// '' for messages without one.
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    error_is: Option<String>,
    /// That a replay would send to this work queue
    ///
    /// '' for messages that do not say where they belong.
    #[arg(long, value_name = "QUEUE", hide_short_help = true)]
    destination: Option<String>,
    /// With an original routing key that matches this pattern, as of a topic exchange: * is one
    /// word, # any number
    #[arg(long, value_name = "PATTERN", hide_short_help = true)]
    key: Option<String>,
    /// Parked at this time (UTC) or later; 2h: two hours ago
    ///
    /// Such as 2026-11-20T08:00:00Z or 2026-11-20.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Parked before this time (UTC); 30d: over 30 days ago
    ///
    /// Such as 2026-11-20T08:00:00Z or 2026-11-20.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Of this chain: its whole id; may be repeated
    #[arg(long = "chain", value_name = "CHAIN")]
    chains: Vec<String>,
    /// That meet a condition such as 'body.customer == "x"' or 'header.tenant != "a"'; may be
    /// repeated
    #[arg(long = "where", value_name = "CONDITION", hide_short_help = true)]
    conditions: Vec<Condition>,
    /// That were sent back by this replay, and parked again; or that this discard or edit has moved
    /// to the discarded ones
    #[arg(long, value_name = "RUN", hide_short_help = true)]
    run: Option<String>,
    /// At most this many, the oldest first
    ///
    /// Those that stay because their queue does not exist count, too.
    #[arg(long, value_name = "N", hide_short_help = true)]
    limit: Option<u64>,
}

/// What says which messages. A limit does not, since it takes the oldest of any kind.
const FILTERS: [&str; 11] = [
    "reason",
    "class",
    "error",
    "error_is",
    "destination",
    "key",
    "since",
    "until",
    "chains",
    "conditions",
    "run",
];

/// The reasons for which rehop parks, those of a dead letter, and the one for messages that name
/// none.
const REASONS: [&str; 11] = [
    Reason::Exhausted.as_str(),
    Reason::Permanent.as_str(),
    Reason::Expired.as_str(),
    Reason::Undecodable.as_str(),
    Reason::DelayTooLong.as_str(),
    Reason::DeferredTooOften.as_str(),
    Reason::Unpublishable.as_str(),
    "delivery_limit",
    "rejected",
    "maxlen",
    "unknown",
];

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
        filter.chains = self.chains;
        filter.conditions = self.conditions;
        filter.run = self.run;
        filter.limit = self.limit;
        filter
    }
}

/// Whether to do it, or only to print a plan. A command that does not call it a move replaces the
/// help with its own words.
#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// Move the messages; without it, print a plan
    #[arg(long)]
    pub(super) apply: bool,
    /// Move nothing unless exactly N messages match
    #[arg(long, value_name = "N", requires = "apply")]
    pub(super) expect: Option<u64>,
    /// Take messages of any kind
    ///
    /// Needed with --apply if there is neither a filter nor --expect. --limit is not a filter.
    #[arg(long, requires = "apply", conflicts_with_all = FILTERS)]
    pub(super) all: bool,
    /// Why, for the log and the trace
    #[arg(long, value_name = "TEXT", requires = "apply")]
    pub(super) why: Option<String>,
}

impl ApplyArgs {
    /// # Errors
    ///
    /// When nothing says which messages are meant.
    pub(super) fn check(&self, filter: &Filter) -> Result<(), Usage> {
        if self.apply && !self.all && self.expect.is_none() && filter.has_no_criteria() {
            let problem = "nothing says which messages are meant: give a filter such as --class (--limit is not one), their number with \
                           --expect, or --all";
            return Err(Usage(problem.to_owned()));
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct InFlightArgs {
    /// Have at most this many messages in flight
    ///
    /// More is faster. A kill duplicates at most N messages, or a quarter of those that the filter
    /// leaves, if that is more.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "N",
        default_value_t = ReplayRequest::DEFAULT_IN_FLIGHT,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(super) in_flight: u16,
}

fn time(text: &str) -> Result<Timestamp, String> {
    parse_time(text, SystemTime::now())
}
