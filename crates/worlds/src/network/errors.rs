//! The errors by which a client learns how its channel or connection ended.

use std::io;
use std::sync::Arc;

use lapin::protocol::AMQPError;
use lapin::types::ShortString;
use lapin::{ChannelState, ConnectionState, Error, ErrorKind};

/// The broker has closed the channel or the connection.
pub(super) fn closed(code: u16, text: &str) -> Error {
    // A short string has at most 255 bytes; RabbitMQ cuts a longer text.
    let mut end = text.len().min(255);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = ShortString::try_new(&text[..end]).unwrap_or_default();
    AMQPError::from_id(code, text)
        .map_or_else(reset, |error| ErrorKind::ProtocolError(error).into())
}

/// The connection ended without a word.
pub(super) fn reset() -> Error {
    ErrorKind::IOError(Arc::new(io::Error::from(io::ErrorKind::ConnectionReset))).into()
}

/// Nothing was heard from the broker for too long.
pub(super) fn missing_heartbeats() -> Error {
    ErrorKind::MissingHeartbeatError.into()
}

/// The channel was closed before.
pub(super) fn channel_is_closed() -> Error {
    ErrorKind::InvalidChannelState(ChannelState::Closed, "the channel is closed").into()
}

/// The connection was closed before.
pub(super) fn connection_is_closed() -> Error {
    ErrorKind::InvalidConnectionState(ConnectionState::Closed).into()
}

/// The connection has as many channels as it may have.
pub(super) fn no_channel_left() -> Error {
    ErrorKind::ChannelsLimitReached.into()
}
