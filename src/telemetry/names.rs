//! Names of attributes and metrics, according to version 1.44.0 of OpenTelemetry's semantic conventions.
//!
//! The messaging conventions are still in development, so the names are kept here and not taken from a crate.

pub(crate) const SYSTEM: &str = "messaging.system";
pub(crate) const RABBITMQ: &str = "rabbitmq";
pub(crate) const OPERATION_NAME: &str = "messaging.operation.name";
pub(crate) const OPERATION_TYPE: &str = "messaging.operation.type";
pub(crate) const DESTINATION_NAME: &str = "messaging.destination.name";
pub(crate) const DESTINATION_TEMPLATE: &str = "messaging.destination.template";
pub(crate) const ROUTING_KEY: &str = "messaging.rabbitmq.destination.routing_key";
pub(crate) const DELIVERY_TAG: &str = "messaging.rabbitmq.message.delivery_tag";
pub(crate) const MESSAGE_ID: &str = "messaging.message.id";
pub(crate) const CONVERSATION_ID: &str = "messaging.message.conversation_id";
pub(crate) const BODY_SIZE: &str = "messaging.message.body.size";
pub(crate) const SERVER_ADDRESS: &str = "server.address";
pub(crate) const SERVER_PORT: &str = "server.port";
pub(crate) const ERROR_TYPE: &str = "error.type";

pub(crate) const ATTEMPT: &str = "rehop.attempt";
pub(crate) const HOP: &str = "rehop.hop";
pub(crate) const MAX_ATTEMPTS: &str = "rehop.max_attempts";
pub(crate) const OUTCOME: &str = "rehop.outcome";
pub(crate) const REASON: &str = "rehop.reason";
/// True if the handler deferred the message, so that the wait follows no failure.
pub(crate) const DEFER: &str = "rehop.defer";
/// How many rungs of the ladder a wait has taken.
pub(crate) const LEGS: &str = "rehop.legs";
pub(crate) const DELAY_MS: &str = "rehop.delay_ms";
pub(crate) const LATENESS_MS: &str = "rehop.lateness_ms";
pub(crate) const CHAIN_ID: &str = "rehop.chain_id";
/// True on the failure after which the message gets no further attempt.
pub(crate) const FINAL: &str = "rehop.final";
/// True if the clocks of two machines disagreed and a time had to be adjusted.
pub(crate) const CLOCK_SKEW: &str = "rehop.clock_skew";
/// A queue in which messages rest: parked ones, and for an operator also stray and discarded ones.
pub(crate) const PARKED_QUEUE: &str = "rehop.parked_queue";
/// What an operator does with messages at rest.
pub(crate) const OPERATION: &str = "rehop.operation";
/// Names the replay or edit that sent a message back.
pub(crate) const REPLAY_RUN: &str = "rehop.replay_run";
pub(crate) const NAMESPACE: &str = "rehop.namespace";

pub(crate) const SENT_MESSAGES: &str = "messaging.client.sent.messages";
pub(crate) const CONSUMED_MESSAGES: &str = "messaging.client.consumed.messages";
pub(crate) const OPERATION_DURATION: &str = "messaging.client.operation.duration";
pub(crate) const PROCESS_DURATION: &str = "messaging.process.duration";
pub(crate) const SETTLED: &str = "rehop.settled";
pub(crate) const PARKED: &str = "rehop.parked";
pub(crate) const PARKED_DEPTH: &str = "rehop.parked.depth";
pub(crate) const PARKED_MOVED: &str = "rehop.parked.moved";
pub(crate) const REPLAYED: &str = "rehop.replayed";
pub(crate) const WAIT_LATENESS: &str = "rehop.wait.lateness";
pub(crate) const CHAIN_DURATION: &str = "rehop.chain.duration";
pub(crate) const CHAIN_ATTEMPTS: &str = "rehop.chain.attempts";
pub(crate) const PUBLISH_RETRIES: &str = "rehop.publish.retries";
pub(crate) const IN_FLIGHT: &str = "rehop.in_flight";
pub(crate) const CONSUMING: &str = "rehop.consuming";
pub(crate) const STRAY: &str = "rehop.stray";
