//! Declaring, deleting and binding queues and exchanges.

use lapin::types::{FieldTable, ShortString};

use crate::arguments::{self, Declaration, QueueType};
use crate::broker::{Broker, Timer};
use crate::error::{Exception, exchange_in_vhost, queue_in_vhost};
use crate::exchange::{Destination, Exchange, ExchangeType};
use crate::headers::string;
use crate::names::{ChannelId, Name, Publisher, QueueId, count};
use crate::permissions::{Access, Resource};
use crate::policy::Settings;
use crate::protocol::{Event, Method, Time};
use crate::queue::{Command, ConsumeRequest, Effect, Queue, QueueReply};

/// How long a declaration waits for the counts of a queue whose leader does not answer.
const COUNT_TIMEOUT: Time = Time::from_millis(250);

impl Broker {
    /// Methods about queues and exchanges.
    pub(crate) fn change_topology(
        &mut self,
        id: ChannelId,
        method: Method,
    ) -> Result<(), Exception> {
        use Method::{BindExchange, BindQueue, DeclareExchange, DeleteExchange, UnbindQueue};
        match method {
            BindQueue { .. } | UnbindQueue { .. } | BindExchange { .. } => {
                self.change_bindings(id, method)?;
            }
            DeclareExchange { .. } | DeleteExchange { .. } => self.change_exchanges(id, method)?,
            // These are answered with counts.
            _ => return self.change_queues(id, method),
        }
        self.send_on(id, Event::Done);
        Ok(())
    }

    fn change_queues(&mut self, id: ChannelId, method: Method) -> Result<(), Exception> {
        match method {
            Method::DeclareQueue { queue, is_passive: true, .. } => {
                let queue = self.accessible_queue(id, queue.as_str())?;
                self.count(id, queue);
            }
            Method::DeclareQueue {
                queue,
                is_durable,
                is_exclusive,
                is_auto_delete,
                arguments,
                ..
            } => {
                let owner = self
                    .channels
                    .get(&id)
                    .map(|channel| channel.connection)
                    .filter(|_| is_exclusive);
                let kind = match arguments::kind_of(queue.as_str(), &arguments) {
                    // It is compared with that of the queue.
                    Err(_) if self.queue_names.contains_key(queue.as_str()) => QueueType::Classic,
                    kind => kind?,
                };
                let declaration = Declaration {
                    kind,
                    is_durable: is_durable && !is_exclusive,
                    is_auto_delete,
                    owner,
                    arguments,
                };
                self.declare_queue(id, &queue, declaration)?;
            }
            Method::DeleteQueue { queue, if_empty } => {
                let queue = self.expand_queue_name(id, &queue)?;
                let messages = self.delete_queue_for(id, &queue, if_empty)?;
                self.send_on(id, Event::Removed { messages: count(messages) });
            }
            Method::PurgeQueue { queue } => {
                let queue = self.expand_queue_name(id, &queue)?;
                self.check_access(id, Access::Read, Resource::Queue(&queue))?;
                let queue = self.accessible_queue(id, &queue)?;
                self.ask(id, queue, Command::Purge(id));
            }
            // Every other method is handled by the channel.
            _ => {}
        }
        Ok(())
    }

    fn change_bindings(&mut self, id: ChannelId, method: Method) -> Result<(), Exception> {
        match method {
            Method::BindQueue { queue, exchange, routing_key, arguments } => {
                let queue = self.expand_queue_name(id, &queue)?;
                self.check_binding(id, Resource::Queue(&queue), exchange.as_str(), true)?;
                self.accessible_queue(id, &queue)?;
                self.bind(exchange.as_str(), Destination::Queue(queue), &routing_key, arguments);
            }
            Method::UnbindQueue { queue, exchange, routing_key, arguments } => {
                let queue = self.expand_queue_name(id, &queue)?;
                self.check_binding(id, Resource::Queue(&queue), exchange.as_str(), false)?;
                if let Some(exchange) = self.exchanges.get_mut(exchange.as_str()) {
                    exchange.unbind(&Destination::Queue(queue), routing_key.as_str(), &arguments);
                }
            }
            Method::BindExchange { destination, source, routing_key, arguments } => {
                let resource = Resource::Exchange(destination.as_str());
                self.check_binding(id, resource, source.as_str(), true)?;
                self.existing_exchange(destination.as_str())?;
                let destination = Destination::Exchange(Name::from(destination.as_str()));
                self.bind(source.as_str(), destination, &routing_key, arguments);
            }
            _ => {}
        }
        Ok(())
    }

    fn change_exchanges(&mut self, id: ChannelId, method: Method) -> Result<(), Exception> {
        match method {
            Method::DeclareExchange { exchange, is_passive: true, .. } => {
                check_not_default(exchange.as_str())?;
                self.existing_exchange(exchange.as_str())?;
            }
            Method::DeclareExchange { exchange, kind, is_durable, arguments, .. } => {
                let kind = ExchangeType::from_name(&kind).ok_or_else(|| {
                    Exception::precondition_failed(&format!("unknown exchange type '{kind}'"))
                })?;
                let declared = Exchange::new(kind, is_durable, arguments);
                self.declare_exchange(id, exchange.as_str(), declared)?;
            }
            Method::DeleteExchange { exchange, if_unused } => {
                self.delete_exchange(id, exchange.as_str(), if_unused)?
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks a queue for its counts, but not for long.
    fn count(&mut self, id: ChannelId, queue: QueueId) {
        if self.queues.get(&queue).is_some_and(Queue::is_silent) {
            self.set_timer(self.now + COUNT_TIMEOUT, Timer::Count(id, queue));
        }
        self.ask(id, queue, Command::Count(id));
    }

    fn declare_queue(
        &mut self,
        id: ChannelId,
        queue: &ShortString,
        declaration: Declaration,
    ) -> Result<(), Exception> {
        let version = self.version;
        let name = match queue.as_str() {
            "" if declaration.kind == QueueType::Quorum => {
                let text = "Cannot declare a server-named queue for type rabbit_quorum_queue";
                return Err(Exception::precondition_failed(text));
            }
            "" => Name::from(format!("amq.gen-{}", self.next_number())),
            name => Name::from(name),
        };
        self.check_access(id, Access::Configure, Resource::Queue(&name))?;
        if let Some(&existing) = self.queue_names.get(&name) {
            let Some(queue) = self.queues.get(&existing) else { return Ok(()) };
            if queue.declaration.owner != declaration.owner {
                return Err(locked(&name));
            }
            arguments::check_again(version, &name, &queue.declaration, &declaration)?;
            self.count(id, existing);
            return Ok(());
        }
        if let Some(exchange) = string(&declaration.arguments, "x-dead-letter-exchange") {
            self.check_access(id, Access::Read, Resource::Queue(&name))?;
            self.check_access(id, Access::Write, Resource::Exchange(exchange))?;
        }
        arguments::check(version, &name, &declaration)?;
        self.queue_limit(&name)?;
        let queue = QueueId(self.next_number());
        if let Some(connection) =
            declaration.owner.and_then(|owner| self.connections.get_mut(&owner))
        {
            connection.exclusive_queues.push(queue);
        }
        let settings = self.settings_of(&name, &declaration);
        self.queue_names.insert(name.clone(), queue);
        self.queues.insert(queue, Queue::new(queue, name, self.now, declaration, settings));
        self.touched.insert(queue);
        self.send_counts(id, queue, 0, 0);
        Ok(())
    }

    pub(crate) fn settings_of(&self, name: &str, declaration: &Declaration) -> Settings {
        Settings::new(
            self.version,
            declaration.kind,
            &declaration.arguments,
            self.policies.get(name),
        )
    }

    fn delete_queue_for(
        &mut self,
        id: ChannelId,
        name: &str,
        if_empty: bool,
    ) -> Result<usize, Exception> {
        self.check_access(id, Access::Configure, Resource::Queue(name))?;
        if !self.queue_names.contains_key(name) {
            return Ok(0);
        }
        let queue = self.accessible_queue(id, name)?;
        if if_empty && self.queues.get(&queue).is_some_and(|queue| !queue.is_classic()) {
            return Err(Exception::not_implemented(&format!(
                "cannot delete {}. queue.delete operations with if-empty flag set are not supported by quorum queues",
                queue_in_vhost(name)
            )));
        }
        Ok(self.remove_queue(queue))
    }

    /// Deletes a queue: its bindings go, its subscribers are told, and what was published to it
    /// counts as taken.
    pub(crate) fn remove_queue(&mut self, id: QueueId) -> usize {
        let Some(queue) = self.queues.remove(&id) else { return 0 };
        self.queue_names.remove(&queue.name);
        self.remove_bindings_to(&Destination::Queue(queue.name.clone()));
        for (channel, tag) in queue.subscribers() {
            self.end_subscription(channel, &tag);
        }
        for command in &queue.unanswered {
            let effect = match command {
                // A dead-letter worker does not count on it, and looks for other routes when it
                // tries again.
                Command::Publish(Some((publisher @ Publisher::Channel(_), sequence)), _) => {
                    Effect::Confirm(*publisher, *sequence, true)
                }
                Command::Subscribe(ConsumeRequest { channel, .. })
                | Command::Get(ConsumeRequest { channel, .. })
                | Command::Cancel(channel, _)
                | Command::Purge(channel)
                | Command::Count(channel) => {
                    Effect::Reply(*channel, QueueReply::Refused(Exception::no_queue(&queue.name)))
                }
                _ => continue,
            };
            self.effects.push_back((id, effect));
        }
        for other in self.queues.values_mut() {
            other.worker.forget(id);
        }
        queue.ready()
    }

    /// Whatever led there leads there no more.
    fn remove_bindings_to(&mut self, destination: &Destination) {
        self.exchanges.values_mut().for_each(|exchange| exchange.unbind_all(destination));
    }

    pub(crate) fn remove_exchange(&mut self, name: &Name) {
        self.exchanges.remove(name);
        self.remove_bindings_to(&Destination::Exchange(name.clone()));
    }

    /// The queue of that name, unless another connection has it for itself.
    pub(crate) fn accessible_queue(&self, id: ChannelId, name: &str) -> Result<QueueId, Exception> {
        let queue = self.queue_names.get(name).and_then(|id| self.queues.get(id));
        let queue = queue.ok_or_else(|| Exception::no_queue(name))?;
        let connection = self.channels.get(&id).map(|channel| channel.connection);
        if queue.declaration.owner.is_some() && queue.declaration.owner != connection {
            return Err(locked(name));
        }
        Ok(queue.id)
    }

    /// An empty queue name stands for the queue that was declared last on the channel.
    pub(crate) fn expand_queue_name(
        &self,
        id: ChannelId,
        name: &ShortString,
    ) -> Result<Name, Exception> {
        if !name.as_str().is_empty() {
            return Ok(Name::from(name.as_str()));
        }
        let last = self
            .channels
            .get(&id)
            .map(|channel| channel.last_declared.as_str())
            .unwrap_or_default();
        if last.is_empty() {
            return Err(Exception::not_found("no previously declared queue"));
        }
        Ok(Name::from(last))
    }

    pub(crate) fn existing_exchange(&self, name: &str) -> Result<&Exchange, Exception> {
        self.exchanges.get(name).ok_or_else(|| Exception::no_exchange(name))
    }

    fn declare_exchange(
        &mut self,
        id: ChannelId,
        name: &str,
        declared: Exchange,
    ) -> Result<(), Exception> {
        check_not_default(name)?;
        self.check_access(id, Access::Configure, Resource::Exchange(name))?;
        let Some(current) = self.exchanges.get(name) else {
            if let Some(alternate) = declared.alternate() {
                self.check_access(id, Access::Read, Resource::Exchange(name))?;
                self.check_access(id, Access::Write, Resource::Exchange(alternate))?;
            }
            self.exchanges.insert(Name::from(name), declared);
            return Ok(());
        };
        let what = exchange_in_vhost(name);
        if current.kind != declared.kind {
            let (received, current) =
                (format!("'{}'", declared.kind.name()), format!("'{}'", current.kind.name()));
            return Err(arguments::inequivalent("type", &what, &received, &current));
        }
        arguments::compare_flag(&what, "durable", current.is_durable, declared.is_durable)?;
        let alternate = "alternate-exchange";
        let (current, received) = (&current.arguments, &declared.arguments);
        arguments::compare(
            &what,
            alternate,
            current.inner().get(alternate),
            received.inner().get(alternate),
        )
    }

    fn delete_exchange(
        &mut self,
        id: ChannelId,
        name: &str,
        if_unused: bool,
    ) -> Result<(), Exception> {
        check_not_default(name)?;
        self.check_access(id, Access::Configure, Resource::Exchange(name))?;
        if if_unused && self.exchanges.get(name).is_some_and(Exchange::is_bound) {
            return Err(Exception::precondition_failed(&format!(
                "{} in use",
                exchange_in_vhost(name)
            )));
        }
        self.remove_exchange(&Name::from(name));
        Ok(())
    }

    /// Binding needs to write to the destination and to read from the source.
    fn check_binding(
        &self,
        id: ChannelId,
        destination: Resource<'_>,
        source: &str,
        is_new: bool,
    ) -> Result<(), Exception> {
        self.check_access(id, Access::Write, destination)?;
        if let Resource::Exchange(destination) = destination {
            check_not_default(destination)?;
        }
        check_not_default(source)?;
        self.check_access(id, Access::Read, Resource::Exchange(source))?;
        // A binding that is removed need not exist, nor its ends.
        if is_new {
            self.existing_exchange(source)?;
        }
        Ok(())
    }

    fn bind(
        &mut self,
        source: &str,
        destination: Destination,
        key: &ShortString,
        arguments: FieldTable,
    ) {
        if let Some(exchange) = self.exchanges.get_mut(source) {
            exchange.bind(destination, Name::from(key.as_str()), arguments);
        }
    }

    pub(crate) fn has_exchange(&self, name: &str) -> bool {
        name.is_empty() || self.exchanges.contains_key(name)
    }
}

fn check_not_default(exchange: &str) -> Result<(), Exception> {
    if exchange.is_empty() {
        return Err(Exception::access_refused("operation not permitted on the default exchange"));
    }
    Ok(())
}

fn locked(queue: &str) -> Exception {
    Exception::resource_locked(&format!(
        "cannot obtain exclusive access to locked {}. It could be originally declared on another connection or the exclusive \
         property value does not match that of the original declaration.",
        queue_in_vhost(queue)
    ))
}
