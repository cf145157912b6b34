//! `basic.publish`: checks, routing, returns and confirms.

use std::collections::BTreeSet;
use std::sync::Arc;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use crate::arguments::out_of_range;
use crate::broker::Broker;
use crate::error::{Exception, exchange_in_vhost};
use crate::exchange::Destination;
use crate::headers::{header_frame_size, strings, with_headers};
use crate::message::Message;
use crate::names::{ChannelId, Name, Publisher, QueueId};
use crate::permissions::{Access, Resource};
use crate::protocol::{Event, Time, Version};
use crate::queue::Command;

/// What fits into a frame of the usual 131072 bytes. A content header cannot be split.
const MAX_FRAME_PAYLOAD: usize = 131_064;

impl Broker {
    pub(crate) fn publish(
        &mut self,
        id: ChannelId,
        exchange: ShortString,
        routing_key: ShortString,
        is_mandatory: bool,
        properties: BasicProperties,
        body: Vec<u8>,
    ) -> Result<(), Exception> {
        self.check_publish(id, exchange.as_str(), &properties, &body)?;
        let message = message(exchange.as_str(), routing_key.as_str(), properties, body)?;
        let queues = self.route_message(&message);
        if queues.is_empty() && is_mandatory {
            let event = Event::Returned {
                code: 312,
                text: "NO_ROUTE".to_owned(),
                exchange,
                routing_key,
                properties: Box::new((*message.properties).clone()),
                body: (*message.body).clone(),
            };
            self.send_on(id, event);
        }
        let Some(channel) = self.channels.get_mut(&id) else { return Ok(()) };
        let mut sequence = 0;
        if channel.is_confirming {
            sequence = channel.next_publish;
            channel.next_publish += 1;
            if queues.is_empty() {
                channel.confirmed.push(sequence);
                self.answering.insert(id);
            } else {
                channel.unconfirmed.insert(sequence, queues.len());
            }
        }
        channel.queues.extend(&queues);
        let message = Arc::new(message);
        for queue in queues {
            let publisher = Some((Publisher::Channel(id), sequence));
            self.command(queue, Command::Publish { publisher, message: message.clone() });
        }
        Ok(())
    }

    fn check_publish(
        &self,
        id: ChannelId,
        exchange: &str,
        properties: &BasicProperties,
        body: &[u8],
    ) -> Result<(), Exception> {
        let header = header_frame_size(properties);
        if header > MAX_FRAME_PAYLOAD {
            let text = format!("type 2, all octets = <<>>: {{frame_too_large,{header},{MAX_FRAME_PAYLOAD}}}");
            return Err(Exception::frame_error(&text));
        }
        let max = self.max_message_size;
        if body.len() > max {
            let text = format!("message size {} is larger than configured max size {max}", body.len());
            return Err(Exception::precondition_failed(&text));
        }
        self.check_access(id, Access::Write, Resource::Exchange(exchange))?;
        if !exchange.is_empty() {
            let found = self.exchanges.get(exchange);
            let found = found.ok_or_else(|| Exception::not_found(&format!("no {}", exchange_in_vhost(exchange))))?;
            if found.is_internal {
                let text = format!("cannot publish to internal {}", exchange_in_vhost(exchange));
                return Err(Exception::access_refused(&text));
            }
        }
        let user = self.user_of(id);
        let claimed = properties.user_id().as_ref().map(ShortString::as_str).filter(|claimed| *claimed != user);
        let check_user = || match claimed {
            None => Ok(()),
            Some(claimed) => Err(Exception::precondition_failed(&format!(
                "user_id property set to '{claimed}' but authenticated user was '{user}'"
            ))),
        };
        let check_expiration = || expiration(properties).map(|_| ());
        if self.version() == Version::V3_10 {
            check_user().and_then(|()| check_expiration())
        } else {
            check_expiration().and_then(|()| check_user())
        }
    }

    /// The queues that a message goes to, each once.
    pub(crate) fn route_message(&self, message: &Message) -> Vec<QueueId> {
        let mut queues = BTreeSet::new();
        if message.exchange.is_empty() {
            queues.extend(message.routing_keys.iter().filter_map(|key| self.queue_names.get(key).copied()));
            return queues.into_iter().collect();
        }
        let mut exchanges = vec![&*message.exchange];
        let mut seen = exchanges.clone();
        while let Some(name) = exchanges.pop() {
            let Some(exchange) = self.exchanges.get(name) else { continue };
            let mut has_route = false;
            let mut next = Vec::new();
            exchange.route(message, |destination| {
                has_route = true;
                match destination {
                    Destination::Queue(name) => queues.extend(self.queue_names.get(name).copied()),
                    Destination::Exchange(name) => next.push(&**name),
                }
            });
            if !has_route {
                next.extend(exchange.alternate());
            }
            for name in next {
                if !seen.contains(&name) {
                    seen.push(name);
                    exchanges.push(name);
                }
            }
        }
        queues.into_iter().collect()
    }

    /// A queue has taken a publish, or refused it. One refusal is enough.
    pub(crate) fn confirm(&mut self, id: ChannelId, sequence: u64, is_taken: bool) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let Some(open) = channel.unconfirmed.get_mut(&sequence) else { return };
        *open -= 1;
        if is_taken && *open > 0 {
            return;
        }
        channel.unconfirmed.remove(&sequence);
        if is_taken {
            channel.confirmed.push(sequence)
        } else {
            channel.refused.push(sequence)
        }
        self.answering.insert(id);
    }

    /// Sends the confirms that have come together: as one where no older publish is open.
    pub(crate) fn send_confirms(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let confirmed = std::mem::take(&mut channel.confirmed);
        let refused = std::mem::take(&mut channel.refused);
        let oldest_open = channel.unconfirmed.first_key_value().map(|(sequence, _)| *sequence);
        if let ([tag], []) = (confirmed.as_slice(), refused.as_slice()) {
            return self.send_on(id, Event::Acked { tag: *tag, is_multiple: false });
        }
        let acked = |tag, is_multiple| Event::Acked { tag, is_multiple };
        self.send_together(id, &confirmed, &refused, oldest_open, acked);
        let nacked = |tag, is_multiple| Event::Nacked { tag, is_multiple };
        self.send_together(id, &refused, &confirmed, oldest_open, nacked);
    }

    fn send_together(
        &mut self,
        id: ChannelId,
        sequences: &[u64],
        others: &[u64],
        oldest_open: Option<u64>,
        event: impl Fn(u64, bool) -> Event,
    ) {
        let mut sequences = sequences.to_vec();
        sequences.sort_unstable();
        let Some(last) = sequences.last() else { return };
        let end = others.iter().copied().chain([oldest_open.unwrap_or(last + 1)]).min().unwrap_or_default();
        let split = sequences.partition_point(|sequence| *sequence < end);
        let (together, single) = sequences.split_at(split);
        if let Some(tag) = together.last() {
            self.send_on(id, event(*tag, true));
        }
        for tag in single {
            self.send_on(id, event(*tag, false));
        }
    }
}

/// `CC` and `BCC` are further routing keys, and nobody but the broker sees `BCC`.
fn message(
    exchange: &str,
    routing_key: &str,
    properties: BasicProperties,
    body: Vec<u8>,
) -> Result<Message, Exception> {
    let mut routing_keys = vec![Name::from(routing_key)];
    let mut bcc = 0;
    let mut properties = properties;
    if let Some(headers) = properties.headers() {
        routing_keys.extend(further_keys("CC", headers.inner().get("CC"))?);
        let blind = further_keys("BCC", headers.inner().get("BCC"))?;
        bcc = blind.len();
        routing_keys.extend(blind);
        if headers.contains_key("BCC") {
            properties = with_headers(&properties, |headers| {
                headers.remove("BCC");
            });
        }
    }
    Ok(Message {
        exchange: Name::from(exchange),
        routing_keys,
        bcc,
        ttl: expiration(&properties)?,
        properties: Arc::new(properties),
        body: Arc::new(body),
        deaths: Vec::new(),
        delivery_count: None,
    })
}

fn further_keys(header: &str, value: Option<&AMQPValue>) -> Result<Vec<Name>, Exception> {
    match value {
        None => Ok(Vec::new()),
        Some(value @ AMQPValue::FieldArray(_)) => Ok(strings(value)),
        Some(_) => {
            let text = format!("invalid message: {{unacceptable_type_in_header,\"{header}\",longstr}}");
            Err(Exception::precondition_failed(&text))
        }
    }
}

/// The time to live that the publisher asks for: milliseconds as a string.
fn expiration(properties: &BasicProperties) -> Result<Option<Time>, Exception> {
    let Some(text) = properties.expiration().as_ref().map(ShortString::as_str) else { return Ok(None) };
    let digits = text.trim_start_matches(['-', '+']).chars().take_while(char::is_ascii_digit).count();
    let length = text.len() - text.trim_start_matches(['-', '+']).len() + digits;
    let (number, rest) = text.split_at(length);
    let problem = match number.parse::<i64>() {
        Err(_) => Some("no_integer".to_owned()),
        Ok(_) if !rest.is_empty() => Some(format!("{{leftover_string,\"{rest}\"}}")),
        Ok(number) => match out_of_range(number) {
            None => return Ok(Some(Time::from_millis(number.unsigned_abs()))),
            problem => problem,
        },
    };
    let text = format!("invalid expiration '{text}': {}", problem.unwrap_or_default());
    Err(Exception::precondition_failed(&text))
}
