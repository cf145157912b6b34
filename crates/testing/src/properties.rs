use lapin::BasicProperties;
use lapin::types::ShortString;

use super::{client_error::ClientError, fields::short};

/// The properties of a message, besides its headers. Those that are `None` are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The MIME type of the body.
    pub content_type: Option<String>,
    /// The encoding of the body, for example `gzip`.
    pub content_encoding: Option<String>,
    /// 2 is persistent, 1 is not.
    pub delivery_mode: Option<u8>,
    /// 0 is the lowest.
    pub priority: Option<u8>,
    /// Relates a message to another.
    pub correlation_id: Option<String>,
    /// The queue for the answer.
    pub reply_to: Option<String>,
    /// Milliseconds in decimal digits, as AMQP requires. Any text is allowed here, so that a test
    /// can send nonsense.
    pub expiration: Option<String>,
    /// The message's own id.
    pub message_id: Option<String>,
    /// Seconds since the epoch.
    pub timestamp: Option<u64>,
    /// The property that AMQP calls `type`.
    pub kind: Option<String>,
    /// The publisher, checked by the broker against the login.
    pub user_id: Option<String>,
    /// The publishing application.
    pub app_id: Option<String>,
    /// Deprecated by AMQP, but still carried.
    pub cluster_id: Option<String>,
}

type Set = fn(BasicProperties, ShortString) -> BasicProperties;

impl Properties {
    pub(super) fn to_lapin(&self) -> Result<BasicProperties, ClientError> {
        let mut to = BasicProperties::default();
        let texts: [(&Option<String>, Set); 10] = [
            (&self.content_type, BasicProperties::with_content_type),
            (&self.content_encoding, BasicProperties::with_content_encoding),
            (&self.correlation_id, BasicProperties::with_correlation_id),
            (&self.reply_to, BasicProperties::with_reply_to),
            (&self.expiration, BasicProperties::with_expiration),
            (&self.message_id, BasicProperties::with_message_id),
            (&self.kind, BasicProperties::with_type),
            (&self.user_id, BasicProperties::with_user_id),
            (&self.app_id, BasicProperties::with_app_id),
            (&self.cluster_id, BasicProperties::with_cluster_id),
        ];
        for (value, set) in texts {
            if let Some(value) = value {
                to = set(to, short(value)?);
            }
        }
        if let Some(mode) = self.delivery_mode {
            to = to.with_delivery_mode(mode);
        }
        if let Some(priority) = self.priority {
            to = to.with_priority(priority);
        }
        if let Some(timestamp) = self.timestamp {
            to = to.with_timestamp(timestamp);
        }
        Ok(to)
    }

    pub(super) fn from_lapin(from: &BasicProperties) -> Self {
        let text = |value: &Option<ShortString>| value.as_ref().map(ToString::to_string);
        Self {
            content_type: text(from.content_type()),
            content_encoding: text(from.content_encoding()),
            delivery_mode: *from.delivery_mode(),
            priority: *from.priority(),
            correlation_id: text(from.correlation_id()),
            reply_to: text(from.reply_to()),
            expiration: text(from.expiration()),
            message_id: text(from.message_id()),
            timestamp: *from.timestamp(),
            kind: text(from.kind()),
            user_id: text(from.user_id()),
            app_id: text(from.app_id()),
            cluster_id: text(from.cluster_id()),
        }
    }
}
