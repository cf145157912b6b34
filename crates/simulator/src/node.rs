//! What happens to a node: what clients send, what operators do, and the time at which something is
//! due.

use lapin::BasicProperties;
use lapin::types::FieldTable;

use crate::broker::{Broker, Timer};
use crate::connection::{Alarm, Connection};
use crate::error::Exception;
use crate::names::{Publisher, QueueId};
use crate::permissions::Permissions;
use crate::protocol::{ChannelNumber, ConnectionId, Event, Method, Sent, Time};
use crate::queue::{Effect, Handed, Queue, QueueView, Turnover};

impl Broker {
    /// Sets the node's `consumer_timeout` for channels that are opened from now on.
    pub fn set_consumer_timeout(&mut self, timeout: Time) {
        self.consumer_timeout = timeout;
    }

    /// Sets what a user may not do. It is checked with each method.
    pub fn set_permissions(&mut self, user: &str, permissions: Permissions) {
        self.permissions.insert(user.to_owned(), permissions);
    }

    /// Sets or removes the policy of a queue, which need not exist. Its keys are those of RabbitMQ,
    /// such as `delivery-limit`.
    pub fn set_policy(&mut self, now: Time, name: &str, definition: Option<FieldTable>) {
        self.advance(now);
        self.policies.remove(name);
        self.policies.extend(definition.map(|definition| (name.to_owned(), definition)));
        if let Some(&id) = self.queue_names.get(name)
            && let Some(declaration) = self.queues.get(&id).map(|queue| queue.declaration.clone())
        {
            let settings = self.settings_of(name, &declaration);
            self.change_queue(id, |queue, now| queue.configure(now, settings));
            self.run();
            // Seen in the source of all versions: the worker looks for its routes again.
            self.retry_dead_letters(id);
            self.run();
        }
    }

    /// Raises or clears an alarm. Connections that have published meanwhile go on with what they
    /// have sent.
    pub fn set_alarm(&mut self, now: Time, alarm: Option<Alarm>) {
        self.advance(now);
        self.alarm = alarm;
        if alarm.is_none() {
            self.unblock_connections();
        }
        self.run();
    }

    /// Whether messages can be published now: the node is not down and has no alarm.
    pub fn takes_messages(&self) -> bool {
        !self.is_down && self.alarm.is_none()
    }

    /// Opens a connection. A node that is down takes none, and one whose limits are reached refuses
    /// it: see [`refuses_connection`](Self::refuses_connection).
    pub fn connect(&mut self, now: Time, user: &str) -> Option<ConnectionId> {
        self.advance(now);
        if self.is_down || self.connection_limit(user).is_err() {
            return None;
        }
        let id = ConnectionId(self.next_number());
        let (user, channel_max) = (user.to_owned(), self.limits.connection_channels);
        let connection = Connection { user, channel_max, ..Connection::default() };
        self.connections.insert(id, connection);
        Some(id)
    }

    /// Takes a method that a client has sent. One for a connection or channel that is gone is
    /// ignored.
    pub fn receive(
        &mut self,
        now: Time,
        connection: ConnectionId,
        channel: ChannelNumber,
        method: Method,
    ) {
        self.advance(now);
        self.read(connection, channel, method);
        self.run();
    }

    /// A connection is gone, closed by its client or lost: its channels end, and what they held
    /// goes back.
    pub fn disconnect(&mut self, now: Time, connection: ConnectionId) {
        self.advance(now);
        self.drop_connection(connection);
        self.run();
    }

    /// An operator closes a connection, such as with 320 and
    /// `CONNECTION_FORCED - Closed via management plugin`.
    pub fn close(&mut self, now: Time, connection: ConnectionId, code: u16, text: &str) {
        self.advance(now);
        self.close_connection(
            connection,
            Exception { code, text: text.to_owned(), ends_connection: true },
        );
        self.run();
    }

    /// An operator deletes a queue.
    pub fn delete_queue(&mut self, now: Time, name: &str) {
        self.advance(now);
        if let Some(&id) = self.queue_names.get(name) {
            self.remove_queue(id);
        }
        self.run();
    }

    /// The leader of a queue answers nothing until then, as between the death of one leader and the
    /// election of the next.
    pub fn silence(&mut self, now: Time, queue: &str, until: Time) {
        self.advance(now);
        if let Some(&id) = self.queue_names.get(queue) {
            self.change_queue(id, |queue, _| queue.silence(until));
            self.run();
        }
    }

    /// The node goes down: connections are cut, and what consumers held comes back when it starts
    /// again.
    pub fn stop(&mut self, now: Time) {
        self.advance(now);
        self.is_down = true;
        self.alarm = None;
        self.channels.clear();
        for id in std::mem::take(&mut self.connections).into_keys() {
            self.send(id, 0, Event::Cut);
        }
        self.timers.clear();
        self.queue_timers.clear();
        self.on_their_way.clear();
    }

    /// The node starts again, with what was durable.
    pub fn start(&mut self, now: Time) {
        if !self.is_down {
            return;
        }
        self.is_down = false;
        self.now = self.now.max(now);
        let transient = self.exchanges.iter().filter(|(_, exchange)| !exchange.is_durable);
        for name in transient.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.remove_exchange(&name);
        }
        for id in self.queues.keys().copied().collect::<Vec<_>>() {
            if self.queues.get(&id).is_some_and(|queue| queue.declaration.is_durable) {
                self.change_queue(id, |queue, now| queue.restart(now));
            } else {
                self.remove_queue(id);
            }
        }
        self.run();
    }

    /// What a queue holds.
    pub fn queue(&self, name: &str) -> Option<QueueView> {
        self.queue_names.get(name).and_then(|id| self.queues.get(id)).map(Queue::view)
    }

    /// The properties of a message that a queue holds, by its `message_id`; of several, those of
    /// the first.
    pub fn properties_of(&self, queue: &str, message_id: &str) -> Option<&BasicProperties> {
        self.queue_names.get(queue).and_then(|id| self.queues.get(id))?.properties_of(message_id)
    }

    /// What has passed through a queue.
    pub fn turnover(&self, name: &str) -> Option<Turnover> {
        self.queue_names.get(name).and_then(|id| self.queues.get(id)).map(|queue| queue.turnover)
    }

    /// What all queues hold, in the order of their names.
    pub fn queues(&self) -> impl Iterator<Item = (&str, QueueView)> {
        self.queue_names
            .iter()
            .filter_map(|(name, id)| Some((&**name, self.queues.get(id)?.view())))
    }

    /// When [`pass_time`](Self::pass_time) has something to do, if nothing else happens.
    pub fn next_timer(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Does what is due: messages expire, deliveries time out, dead-lettering is tried again.
    pub fn pass_time(&mut self, now: Time) {
        self.advance(now);
    }

    /// What the broker has sent since the last call, in order.
    pub fn sent(&mut self) -> impl Iterator<Item = Sent> {
        self.sent.drain(..)
    }

    /// Lets time pass until now, doing each thing at its time. A node that is down does nothing.
    fn advance(&mut self, now: Time) {
        while let Some(&(time, timer)) = self.timers.first()
            && time <= now
        {
            self.timers.pop_first();
            self.now = self.now.max(time);
            match timer {
                Timer::Queue(queue) => self.pass_queue_time(queue),
                Timer::Channel(channel) => self.tick_channel(channel),
                Timer::Count(channel, queue) => self.give_up_count(channel, queue),
                Timer::Delivery => self.bring_deliveries(),
            }
            self.run();
        }
        self.now = self.now.max(now);
    }

    /// Deliveries that have been on their way for long enough reach their channels.
    fn bring_deliveries(&mut self) {
        while self.on_their_way.front().is_some_and(|(due, ..)| *due <= self.now)
            && let Some((_, channel, queue, delivery)) = self.on_their_way.pop_front()
        {
            self.notify_channel(channel, queue, delivery);
        }
    }

    fn pass_queue_time(&mut self, id: QueueId) {
        self.queue_timers.remove(&id);
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if !queue.is_silent() && queue.worker.timer.is_some_and(|time| time <= now) {
            queue.worker.timer = None;
            self.retry_dead_letters(id);
        }
        self.change_queue(id, |queue, now| queue.pass_time(now));
    }

    /// Carries out what follows, until nothing more does.
    pub(crate) fn run(&mut self) {
        loop {
            while let Some((queue, effect)) = self.effects.pop_front() {
                self.carry_out(queue, effect);
            }
            for channel in std::mem::take(&mut self.answering) {
                self.send_confirms(channel);
            }
            if self.effects.is_empty() {
                break;
            }
        }
        while let Some(id) = self.touched.pop_first() {
            self.set_queue_timer(id);
        }
    }

    fn carry_out(&mut self, queue: QueueId, effect: Effect) {
        match effect {
            Effect::Deliver(Handed { channel, .. }, _) if !self.delivery_lag.is_zero() => {
                let due = self.now + self.delivery_lag;
                self.on_their_way.push_back((due, channel, queue, effect));
                self.set_timer(due, Timer::Delivery);
            }
            Effect::Reply(channel, _)
            | Effect::TimedOut(channel, _)
            | Effect::Deliver(Handed { channel, .. }, _)
            | Effect::Confirm(Publisher::Channel(channel), ..) => {
                self.notify_channel(channel, queue, effect)
            }
            Effect::Confirm(Publisher::Worker(worker), id, is_taken) => {
                self.answer_worker(worker, id, queue, is_taken)
            }
            Effect::DeadLetter(reason, entry) => self.dead_letter_once(queue, reason, &entry),
            Effect::Forward(id, reason, entry) => self.forward(queue, id, reason, &entry),
        }
    }

    fn set_queue_timer(&mut self, id: QueueId) {
        let time = self.queues.get(&id).and_then(Queue::next_timer);
        if time == self.queue_timers.get(&id).copied() {
            return;
        }
        if let Some(former) = self.queue_timers.remove(&id) {
            self.timers.remove(&(former, Timer::Queue(id)));
        }
        if let Some(time) = time {
            self.queue_timers.insert(id, time);
            self.timers.insert((time, Timer::Queue(id)));
        }
    }

    /// The alarm is over: what blocked connections have sent is read now.
    fn unblock_connections(&mut self) {
        let blocked: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_blocked)
            .map(|(id, _)| *id)
            .collect();
        for id in blocked {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.is_blocked = false;
            let unread = std::mem::take(&mut connection.unread);
            self.send(id, 0, Event::Unblocked);
            for (number, method) in unread {
                self.read(id, number, method);
                self.run();
            }
        }
    }
}
