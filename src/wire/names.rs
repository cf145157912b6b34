//! The names of all headers that rehop reads or writes. They are public: other versions of rehop,
//! and other programs, read them from the queue.

/// Where the return exchange sends the message: the work queue's name. Like the next two, it does
/// not begin with `x-`: a headers exchange ignores such names (3.10, 4.0 and 4.3).
pub const RETURN_TO: &str = "rehop-return-to";
/// Which wait queue takes the message: the tier's TTL in milliseconds.
pub const WAIT_FOR: &str = "rehop-wait-for";
/// Begins the headers by which a copy goes from one rung of the ladder to the next:
/// `rehop-then-8000: 2000` leads from the rung of 8 s to that of 2 s.
const THEN: &str = "rehop-then-";
/// How long the delayed exchange keeps the message, in milliseconds. The plugin reads it.
pub const X_DELAY: &str = "x-delay";
/// Attempts so far.
pub const ATTEMPT: &str = "rehop-attempt";
/// Waits so far.
pub const HOP: &str = "rehop-hop";
/// Defers so far.
pub const DEFERS: &str = "rehop-defers";
/// When the chain's first delivery was seen.
pub const FIRST_SEEN_AT: &str = "rehop-first-seen-at";
/// When an attempt first failed.
pub const FIRST_FAILED_AT: &str = "rehop-first-failed-at";
/// When the message entered its last wait queue.
pub const WAITING_SINCE: &str = "rehop-waiting-since";
/// The same in nanoseconds, as a text, for the wait's span.
pub const WAITING_SINCE_NANOS: &str = "rehop-waiting-since-nanos";
/// When the wait is over.
pub const DUE_AT: &str = "rehop-due-at";
/// When the message expires. Producers may set it, and settings can give it another name.
pub const EXPIRES_AT: &str = "rehop-expires-at";
/// The exchange that the message was first published to.
pub const EXCHANGE: &str = "rehop-exchange";
/// The routing key that the message was first published with.
pub const ROUTING_KEY: &str = "rehop-routing-key";
/// The last failures, oldest first.
pub const ERRORS: &str = "rehop-errors";
/// Identifies the chain on every span.
pub const CHAIN_ID: &str = "rehop-chain-id";
/// Why the message was parked.
pub const REASON: &str = "rehop-reason";
/// The `user_id` property that had to be removed.
pub const USER_ID: &str = "rehop-user-id";
/// The `CC` header that had to be removed.
pub const CC: &str = "rehop-cc";
/// The `priority` property, where a lower one stands in its place while the message waits.
pub const PRIORITY: &str = "rehop-priority";
/// The size of the body, if headers that did not fit into a frame follow it.
pub const BODY_BYTES: &str = "rehop-body-bytes";
/// When the message was parked.
pub const PARKED_AT: &str = "rehop-parked-at";
/// What lapin cannot read of the message, as it was. rehop's connections restore it when they
/// publish, so a queued message has this header only for originals that stand nowhere else in it.
pub const BYTES: &str = "rehop-bytes";
/// How often the message was replayed.
pub const REPLAYS: &str = "rehop-replays";
/// The replay that sent the message back last. Whoever runs it asks for receipts by this id.
pub const REPLAY_RUN: &str = "rehop-replay-run";
/// Which of the replay's messages it is, from 0.
pub const REPLAY_NUMBER: &str = "rehop-replay-number";
/// The replay waits for this message's fate, so it is parked instead of waiting.
pub const CANARY: &str = "rehop-canary";
/// In a receipt: what became of the replayed message.
pub const FATE: &str = "rehop-fate";
/// When an operator replaced the body.
pub const EDITED_AT: &str = "rehop-edited-at";
/// When an operator discarded the message.
pub const DISCARDED_AT: &str = "rehop-discarded-at";
/// Why an operator discarded the message.
pub const DISCARDED_WHY: &str = "rehop-discarded-why";
/// The discard or the edit that moved it.
pub const DISCARD_RUN: &str = "rehop-discard-run";
/// The queue that it was discarded from.
pub const DISCARDED_FROM: &str = "rehop-discarded-from";
/// The span of the previous attempt, or after a replay that of the message's rest, as a
/// `traceparent`.
pub const PREVIOUS_ATTEMPT: &str = "rehop-previous-attempt";
/// When the chain's present trace began.
pub const TRACED_SINCE: &str = "rehop-traced-since";

/// W3C trace context: the parent of the next span.
pub const TRACEPARENT: &str = "traceparent";
/// W3C trace context: what other tracing systems add.
pub const TRACESTATE: &str = "tracestate";
/// W3C baggage.
pub const BAGGAGE: &str = "baggage";

/// The broker's own: how often a message came back and was counted towards the delivery limit.
pub const DELIVERY_COUNT: &str = "x-delivery-count";
/// The broker's own, from 4.3 on: how often a message was delivered before.
pub const ACQUIRED_COUNT: &str = "x-acquired-count";
/// The header in which the broker lists how a message was dead-lettered.
pub(super) const DEATHS: &str = "x-death";

const PREFIX: &str = "rehop-";

/// Removed from every copy. Otherwise messages would loop, vanish, multiply or be miscounted: with
/// `x-death` later hops vanish on 3.10, a stale count is shown on the first delivery on all
/// versions, and `CC` is routed again.
const STRIPPED: [&str; 5] = [DEATHS, DELIVERY_COUNT, ACQUIRED_COUNT, "CC", "BCC"];
const STRIPPED_PREFIXES: [&str; 2] = ["x-first-death-", "x-last-death-"];

/// The header that leads a copy on from the rung with this TTL, in milliseconds.
pub fn then(ttl: u128) -> String {
    format!("{THEN}{ttl}")
}

/// Whether a header leads from one rung of the ladder to another.
pub(super) fn is_then(name: &str) -> bool {
    let is_number = |ttl: &str| !ttl.is_empty() && ttl.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_prefix(THEN).is_some_and(is_number)
}

/// Whether a copy keeps a header of the original. The others are rehop's own, or would make the
/// copy loop, vanish or be misrouted. The connection needs [`BYTES`] to restore the originals.
pub fn travels(name: &str) -> bool {
    !is_stripped(name) && (!is_own(name) || name == BYTES)
}

fn is_stripped(name: &str) -> bool {
    STRIPPED.contains(&name) || STRIPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a header is rehop's own.
pub fn is_own(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Whether a header belongs to a trace context.
pub fn is_trace_context(name: &str) -> bool {
    [TRACEPARENT, TRACESTATE, BAGGAGE].contains(&name)
}

/// Whether a producer's deadline may not have this name, because the header has another meaning.
pub fn is_reserved(name: &str) -> bool {
    let ours = is_own(name) && name != EXPIRES_AT;
    ours || is_stripped(name) || is_trace_context(name) || name == X_DELAY
}
