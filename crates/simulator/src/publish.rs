//! `basic.publish`: checks, routing, returns and confirms.

use std::collections::BTreeSet;
use std::sync::Arc;

use lapin::BasicProperties;
use lapin::types::ShortString;

use crate::arguments::out_of_range;
use crate::broker::Broker;
use crate::error::Exception;
use crate::exchange::Destination;
use crate::message::Message;
use crate::names::{ChannelId, Publisher, QueueId, short};
use crate::permissions::{Access, Resource};
use crate::protocol::{Event, Time, Version};
use crate::queue::Command;

impl Broker {
    pub(crate) fn publish(
        &mut self,
        id: ChannelId,
        mut message: Message,
        is_mandatory: bool,
    ) -> Result<(), Exception> {
        message.ttl = self.check_publish(id, &message)?;
        let queues = self.route_message(&message);
        if queues.is_empty() && is_mandatory {
            let event = Event::Returned {
                code: 312,
                text: "NO_ROUTE".to_owned(),
                exchange: short(&message.exchange),
                routing_key: short(message.routing_key()),
                properties: Box::new((*message.properties).clone()),
                body: (*message.body).clone(),
            };
            self.send_on(id, event);
        }
        let Some(channel) = self.channels.get_mut(&id) else { return Ok(()) };
        let mut sequence = 0;
        if channel.is_confirming {
            channel.publishes += 1;
            sequence = channel.publishes;
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
            self.command(
                queue,
                Command::Publish(Some((Publisher::Channel(id), sequence)), message.clone()),
            );
        }
        Ok(())
    }

    /// Checks a publish in the broker's order, and returns the time to live that the publisher asks
    /// for.
    fn check_publish(&self, id: ChannelId, message: &Message) -> Result<Option<Time>, Exception> {
        let (exchange, properties, size) =
            (&*message.exchange, &*message.properties, message.body.len());
        if size > self.max_message_size {
            let text = format!(
                "message size {size} is larger than configured max size {}",
                self.max_message_size
            );
            return Err(Exception::precondition_failed(&text));
        }
        self.check_access(id, Access::Write, Resource::Exchange(exchange))?;
        if !exchange.is_empty() {
            self.existing_exchange(exchange)?;
        }
        if self.version == Version::V3_10 {
            self.check_user(id, properties)?;
        }
        let ttl = expiration(properties)?;
        self.check_user(id, properties)?;
        Ok(ttl)
    }

    /// Nobody may publish in another user's name.
    fn check_user(&self, id: ChannelId, properties: &BasicProperties) -> Result<(), Exception> {
        let user = self.user_of(id);
        match properties.user_id() {
            Some(claimed) if claimed.as_str() != user => {
                let text = format!(
                    "user_id property set to '{claimed}' but authenticated user was '{user}'"
                );
                Err(Exception::precondition_failed(&text))
            }
            _ => Ok(()),
        }
    }

    /// The queues that a message goes to, each once.
    pub(crate) fn route_message(&self, message: &Message) -> Vec<QueueId> {
        let mut queues = BTreeSet::new();
        if message.exchange.is_empty() {
            queues.extend(
                message.routing_keys.iter().filter_map(|key| self.queue_names.get(key).copied()),
            );
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
        let mut confirmed = std::mem::take(&mut channel.confirmed);
        let mut refused = std::mem::take(&mut channel.refused);
        confirmed.sort_unstable();
        refused.sort_unstable();
        let open =
            channel.unconfirmed.first_key_value().map_or(u64::MAX, |(sequence, _)| *sequence);
        let before = |others: &[u64]| others.first().map_or(open, |other| open.min(*other));
        let (acks_end, nacks_end) = (before(&refused), before(&confirmed));
        let is_single = confirmed.len() == 1 && refused.is_empty();
        for (delivery_tag, is_multiple) in together(&confirmed, acks_end) {
            self.send_on(id, Event::Acked { delivery_tag, is_multiple: is_multiple && !is_single });
        }
        for (delivery_tag, is_multiple) in together(&refused, nacks_end) {
            self.send_on(id, Event::Nacked { delivery_tag, is_multiple });
        }
    }
}

/// The last number before the end stands for all before it. The others are sent one by one.
fn together(sequences: &[u64], end: u64) -> impl Iterator<Item = (u64, bool)> {
    let split = sequences.partition_point(|sequence| *sequence < end);
    let (before, after) = sequences.split_at(split);
    before.last().map(|tag| (*tag, true)).into_iter().chain(after.iter().map(|tag| (*tag, false)))
}

/// The time to live that the publisher asks for: milliseconds as a string.
fn expiration(properties: &BasicProperties) -> Result<Option<Time>, Exception> {
    let Some(text) = properties.expiration().as_ref().map(ShortString::as_str) else {
        return Ok(None);
    };
    let digits =
        text.trim_start_matches(['-', '+']).chars().take_while(char::is_ascii_digit).count();
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
