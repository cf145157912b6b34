//! Names of attributes and metrics, according to version 1.44.0 of OpenTelemetry's semantic
//! conventions.
//!
//! The messaging conventions are still in development, so the names are kept here and not taken
//! from a crate.

pub const SYSTEM: &str = "messaging.system";
pub const RABBITMQ: &str = "rabbitmq";
pub const OPERATION_NAME: &str = "messaging.operation.name";
pub const OPERATION_TYPE: &str = "messaging.operation.type";
pub const DESTINATION_NAME: &str = "messaging.destination.name";
pub const DESTINATION_TEMPLATE: &str = "messaging.destination.template";
pub const ROUTING_KEY: &str = "messaging.rabbitmq.destination.routing_key";
pub const DELIVERY_TAG: &str = "messaging.rabbitmq.message.delivery_tag";
pub const MESSAGE_ID: &str = "messaging.message.id";
pub const CONVERSATION_ID: &str = "messaging.message.conversation_id";
pub const BODY_SIZE: &str = "messaging.message.body.size";
pub const SERVER_ADDRESS: &str = "server.address";
pub const SERVER_PORT: &str = "server.port";
pub const ERROR_TYPE: &str = "error.type";

pub const ATTEMPT: &str = "rehop.attempt";
pub const HOP: &str = "rehop.hop";
pub const MAX_ATTEMPTS: &str = "rehop.max_attempts";
pub const OUTCOME: &str = "rehop.outcome";
pub const REASON: &str = "rehop.reason";
/// How the chain ended, as far as this span knows: one search finds all that ended in the same way.
pub const END: &str = "rehop.end";
/// Whether the chain came to the parked queue. A search of Jaeger's compares with one value, so
/// `false` finds all that ended in any other way.
pub const WAS_PARKED: &str = "rehop.was_parked";
/// True if the handler deferred the message, so that the wait follows no failure.
pub const DEFER: &str = "rehop.defer";
/// How many rungs of the ladder a wait has taken.
pub const LEGS: &str = "rehop.legs";
pub const DELAY_MS: &str = "rehop.delay_ms";
/// When a wait is over, as planned.
pub const UNTIL: &str = "rehop.until";
pub const LATENESS_MS: &str = "rehop.lateness_ms";
pub const CHAIN_ID: &str = "rehop.chain_id";
/// True on the failure after which the message gets no further attempt.
pub const FINAL: &str = "rehop.final";
/// How many deliveries before this one this process has not answered.
pub const UNANSWERED: &str = "rehop.unanswered";
/// How often the queue may deliver a message again.
pub const DELIVERY_LIMIT: &str = "rehop.delivery_limit";
/// True if the broker parks the message unless this delivery is answered.
pub const LAST_DELIVERY: &str = "rehop.last_delivery";
/// True if the clocks of two machines disagreed and a time had to be adjusted.
pub const CLOCK_SKEW: &str = "rehop.clock_skew";
/// A queue in which messages rest: parked ones, and for an operator also stray and discarded ones.
pub const PARKED_QUEUE: &str = "rehop.parked_queue";
/// What an operator does with messages at rest.
pub const OPERATION: &str = "rehop.operation";
/// Names an operator's run.
pub const REPLAY_RUN: &str = "rehop.replay_run";
/// Who began it.
pub const OPERATOR: &str = "rehop.operator";
/// Why, in the operator's words.
pub const WHY: &str = "rehop.why";
/// Which messages an operator meant.
pub const SELECTION: &str = "rehop.selection";
/// How many of an operator's messages were selected.
pub const MATCHED: &str = "rehop.matched";
/// How many of them were moved.
pub const SENT: &str = "rehop.sent";
/// How many of these were handled.
pub const HANDLED: &str = "rehop.handled";
/// How many of these were parked again.
pub const PARKED_AGAIN: &str = "rehop.parked_again";
/// The fate of how many of these is not known.
pub const UNKNOWN: &str = "rehop.unknown";
/// How many of the selected ones were not moved.
pub const STAYED: &str = "rehop.stayed";
/// Why an operation ended before it had moved all.
pub const STOPPED: &str = "rehop.stopped";
pub const NAMESPACE: &str = "rehop.namespace";

pub const SENT_MESSAGES: &str = "messaging.client.sent.messages";
pub const CONSUMED_MESSAGES: &str = "messaging.client.consumed.messages";
pub const OPERATION_DURATION: &str = "messaging.client.operation.duration";
pub const PROCESS_DURATION: &str = "messaging.process.duration";
pub const SETTLED: &str = "rehop.settled";
pub const PARKED: &str = "rehop.parked";
pub const PARKED_DEPTH: &str = "rehop.parked.depth";
pub const PARKED_MOVED: &str = "rehop.parked.moved";
pub const REPLAYED: &str = "rehop.replayed";
pub const WAIT_LATENESS: &str = "rehop.wait.lateness";
pub const CHAIN_DURATION: &str = "rehop.chain.duration";
pub const CHAIN_ATTEMPTS: &str = "rehop.chain.attempts";
pub const PUBLISH_RETRIES: &str = "rehop.publish.retries";
pub const IN_FLIGHT: &str = "rehop.in_flight";
pub const CONSUMING: &str = "rehop.consuming";
pub const STRAY: &str = "rehop.stray";
