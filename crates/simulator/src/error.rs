//! How the broker closes a channel or a connection: reply codes and texts.

/// Why a channel, or its whole connection, is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exception {
    pub(crate) code: u16,
    pub(crate) text: String,
    /// AMQP calls these hard errors: they end the connection, not only the channel.
    pub(crate) ends_connection: bool,
}

impl Exception {
    fn new(code: u16, name: &str, explanation: &str, ends_connection: bool) -> Self {
        Self { code, text: reply_text(name, explanation), ends_connection }
    }

    pub(crate) fn access_refused(explanation: &str) -> Self {
        Self::new(403, "ACCESS_REFUSED", explanation, false)
    }

    pub(crate) fn not_found(explanation: &str) -> Self {
        Self::new(404, "NOT_FOUND", explanation, false)
    }

    pub(crate) fn no_queue(name: &str) -> Self {
        Self::not_found(&format!("no {}", queue_in_vhost(name)))
    }

    pub(crate) fn no_exchange(name: &str) -> Self {
        Self::not_found(&format!("no {}", exchange_in_vhost(name)))
    }

    pub(crate) fn resource_locked(explanation: &str) -> Self {
        Self::new(405, "RESOURCE_LOCKED", explanation, false)
    }

    pub(crate) fn precondition_failed(explanation: &str) -> Self {
        Self::new(406, "PRECONDITION_FAILED", explanation, false)
    }

    pub(crate) fn channel_error(explanation: &str) -> Self {
        Self::new(504, "CHANNEL_ERROR", explanation, true)
    }

    pub(crate) fn not_allowed(explanation: &str) -> Self {
        Self::new(530, "NOT_ALLOWED", explanation, true)
    }

    pub(crate) fn not_implemented(explanation: &str) -> Self {
        Self::new(540, "NOT_IMPLEMENTED", explanation, true)
    }
}

/// A reply text is a short string.
fn reply_text(name: &str, explanation: &str) -> String {
    let mut text = format!("{name} - {explanation}");
    if text.len() > 255 {
        let end = (0..=252).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// How RabbitMQ writes the name of a queue in its texts.
pub(crate) fn queue_in_vhost(name: &str) -> String {
    format!("queue '{name}' in vhost '/'")
}

/// How RabbitMQ writes the name of an exchange in its texts.
pub(crate) fn exchange_in_vhost(name: &str) -> String {
    format!("exchange '{name}' in vhost '/'")
}
