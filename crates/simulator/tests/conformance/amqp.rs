//! One AMQP 0.9.1 connection, frame by frame, so that a script sees what the broker says in exactly
//! its order. A client library hides some of it, and does some things of its own accord.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use amq_protocol::frame::{AMQPContentHeader, AMQPFrame, WriteContext, gen_frame, parse_frame};
use amq_protocol::protocol::{AMQPClass, basic, channel, confirm, connection, exchange, queue};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::AMQPUri;
use rehop_simulator::{Delivery, Event, Method};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const OPENED_WITHIN: Duration = Duration::from_secs(60);
const FRAME_MAX: u32 = 131_072;
const BASIC: u16 = 60;

/// What comes from the broker, and on which of a script's links.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) link: u64,
    pub(crate) channel: u16,
    pub(crate) what: Said,
}

#[derive(Debug)]
pub(crate) enum Said {
    Event(Event),
    /// The answer to a ping: everything that the channel was told before it has been looked at.
    Pong,
    /// `connection.close-ok`, or the end of the socket.
    Ended,
}

/// A connection of a client.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) number: u64,
    writer: OwnedWriteHalf,
    reader: JoinHandle<()>,
    unsent: Vec<u8>,
}

impl Link {
    /// Connects and logs in. What comes from the broker goes `to` the script.
    pub(crate) async fn open(
        uri: &AMQPUri,
        number: u64,
        to: UnboundedSender<Incoming>,
    ) -> io::Result<Self> {
        let opened = async {
            let stream =
                TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).await?;
            stream.set_nodelay(true)?;
            let (reader, writer) = stream.into_split();
            let mut link =
                Self { number, writer, reader: tokio::spawn(async {}), unsent: Vec::new() };
            let mut frames = Frames { reader, buffer: Vec::new() };
            link.log_in(uri, &mut frames).await?;
            link.reader = tokio::spawn(read(frames, number, to));
            Ok(link)
        };
        timeout(OPENED_WITHIN, opened).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn log_in(&mut self, uri: &AMQPUri, frames: &mut Frames) -> io::Result<()> {
        self.unsent.extend_from_slice(b"AMQP\x00\x00\x09\x01");
        self.flush().await?;
        frames.next().await?;
        let user = &uri.authority.userinfo;
        let response = format!("\0{}\0{}", user.username, user.password);
        self.queue_method(
            0,
            AMQPClass::Connection(connection::AMQPMethod::StartOk(connection::StartOk {
                client_properties: client_properties(),
                mechanism: "PLAIN".into(),
                response: response.as_bytes().into(),
                locale: "en_US".into(),
            })),
        );
        self.flush().await?;
        frames.next().await?;
        let tune = connection::TuneOk { channel_max: 100, frame_max: FRAME_MAX, heartbeat: 0 };
        self.queue_method(0, AMQPClass::Connection(connection::AMQPMethod::TuneOk(tune)));
        let open = connection::Open { virtual_host: uri.vhost.as_str().into() };
        self.queue_method(0, AMQPClass::Connection(connection::AMQPMethod::Open(open)));
        self.flush().await?;
        match frames.next().await? {
            AMQPFrame::Method(0, AMQPClass::Connection(connection::AMQPMethod::OpenOk(_))) => {
                Ok(())
            }
            other => Err(io::Error::other(format!("instead of connection.open-ok came {other:?}"))),
        }
    }

    /// Puts a method behind those that are still to be [sent](Self::flush).
    pub(crate) fn queue(&mut self, channel: u16, method: &Method) {
        self.queue_method(channel, class(method));
        if let Method::Publish { properties, body, .. } = method {
            let header = AMQPContentHeader {
                class_id: BASIC,
                body_size: body.len() as u64,
                properties: properties.as_ref().clone(),
            };
            self.queue_frame(&AMQPFrame::Header(channel, header));
            if !body.is_empty() {
                self.queue_frame(&AMQPFrame::Body(channel, body.clone()));
            }
        }
    }

    /// Asks for a [`Said::Pong`].
    pub(crate) fn queue_ping(&mut self, channel: u16) {
        let ping = channel::AMQPMethod::Flow(channel::Flow { active: true });
        self.queue_method(channel, AMQPClass::Channel(ping));
    }

    /// Answers the broker's `channel.close`, or on channel 0 its `connection.close`.
    pub(crate) fn queue_close_ok(&mut self, channel: u16) {
        let answer = if channel == 0 {
            AMQPClass::Connection(connection::AMQPMethod::CloseOk(connection::CloseOk {}))
        } else {
            AMQPClass::Channel(channel::AMQPMethod::CloseOk(channel::CloseOk {}))
        };
        self.queue_method(channel, answer);
    }

    /// Asks to close the connection; [`Said::Ended`] is the answer.
    pub(crate) fn queue_close(&mut self) {
        let close = connection::Close {
            reply_code: 200,
            reply_text: "bye".into(),
            ..connection::Close::default()
        };
        self.queue_method(0, AMQPClass::Connection(connection::AMQPMethod::Close(close)));
    }

    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let unsent = std::mem::take(&mut self.unsent);
        self.writer.write_all(&unsent).await
    }

    fn queue_method(&mut self, channel: u16, method: AMQPClass) {
        self.queue_frame(&AMQPFrame::Method(channel, method));
    }

    fn queue_frame(&mut self, frame: &AMQPFrame) {
        let before = std::mem::take(&mut self.unsent);
        self.unsent = gen_frame(frame)(WriteContext::from(before)).unwrap().into_inner().0;
    }
}

impl Drop for Link {
    /// The socket closes without a word if it was not closed before.
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// What RabbitMQ tells only clients that say that they understand it.
fn client_properties() -> FieldTable {
    let mut capabilities = FieldTable::default();
    for capability in [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
    ] {
        capabilities.insert(capability.into(), AMQPValue::Boolean(true));
    }
    let mut properties = FieldTable::default();
    properties.insert("product".into(), AMQPValue::LongString("rehop conformance".into()));
    properties.insert("capabilities".into(), AMQPValue::FieldTable(capabilities));
    properties
}

/// Reads until the connection ends.
async fn read(mut frames: Frames, link: u64, to: UnboundedSender<Incoming>) {
    let mut unfinished: BTreeMap<u16, Content> = BTreeMap::new();
    while let Ok(frame) = frames.next().await {
        let (channel, said) = match frame {
            AMQPFrame::Method(channel, method) => match heard(method) {
                Heard::Said(said) => (channel, said),
                Heard::Content(event) => {
                    unfinished.insert(channel, Content { event, missing: 0 });
                    continue;
                }
            },
            AMQPFrame::Header(channel, header) => {
                let content = unfinished.get_mut(&channel).unwrap();
                content.set_properties(header.properties);
                content.missing = header.body_size;
                if content.missing > 0 {
                    continue;
                }
                (channel, Said::Event(unfinished.remove(&channel).unwrap().event))
            }
            AMQPFrame::Body(channel, bytes) => {
                let content = unfinished.get_mut(&channel).unwrap();
                content.missing -= bytes.len() as u64;
                content.body().extend_from_slice(&bytes);
                if content.missing > 0 {
                    continue;
                }
                (channel, Said::Event(unfinished.remove(&channel).unwrap().event))
            }
            AMQPFrame::ProtocolHeader(_)
            | AMQPFrame::Heartbeat
            | AMQPFrame::InvalidHeartbeat(_) => continue,
        };
        let is_end = matches!(said, Said::Ended);
        if to.send(Incoming { link, channel, what: said }).is_err() || is_end {
            return;
        }
    }
    // Nobody listens any more if the script has ended.
    let _ = to.send(Incoming { link, channel: 0, what: Said::Ended });
}

struct Content {
    event: Event,
    missing: u64,
}

impl Content {
    fn set_properties(&mut self, from: BasicProperties) {
        match &mut self.event {
            Event::Got { delivery, .. } | Event::Delivered { delivery, .. } => {
                *delivery.properties = from
            }
            Event::Returned { properties, .. } => **properties = from,
            other => unreachable!("{other:?} has no content"),
        }
    }

    fn body(&mut self) -> &mut Vec<u8> {
        match &mut self.event {
            Event::Got { delivery, .. } | Event::Delivered { delivery, .. } => &mut delivery.body,
            Event::Returned { body, .. } => body,
            other => unreachable!("{other:?} has no content"),
        }
    }
}

/// A socket as a sequence of frames.
struct Frames {
    reader: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Frames {
    async fn next(&mut self) -> io::Result<AMQPFrame> {
        loop {
            if let Some(length) = self.length().filter(|length| self.buffer.len() >= *length) {
                let frame = parse_frame(&self.buffer[..length]).map(|(_, frame)| frame);
                let frame = frame.map_err(|error| io::Error::other(format!("{error:?}")))?;
                self.buffer.drain(..length);
                return Ok(frame);
            }
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The length of the frame that the buffer begins with: its type, channel, size, payload and
    /// end.
    fn length(&self) -> Option<usize> {
        let size = self.buffer.get(3..7)?;
        Some(7 + u32::from_be_bytes(size.try_into().unwrap()) as usize + 1)
    }
}

enum Heard {
    Said(Said),
    /// Properties and body follow.
    Content(Event),
}

fn heard(method: AMQPClass) -> Heard {
    let event = match method {
        AMQPClass::Basic(method) => return heard_basic(method),
        AMQPClass::Channel(channel::AMQPMethod::FlowOk(_)) => return Heard::Said(Said::Pong),
        AMQPClass::Channel(channel::AMQPMethod::Close(close)) => {
            Event::Closed { code: close.reply_code, text: close.reply_text.to_string() }
        }
        AMQPClass::Connection(connection::AMQPMethod::Close(close)) => {
            Event::Closed { code: close.reply_code, text: close.reply_text.to_string() }
        }
        AMQPClass::Connection(connection::AMQPMethod::CloseOk(_)) => {
            return Heard::Said(Said::Ended);
        }
        AMQPClass::Connection(connection::AMQPMethod::Blocked(blocked)) => {
            Event::Blocked { reason: blocked.reason.to_string() }
        }
        AMQPClass::Connection(connection::AMQPMethod::Unblocked(_)) => Event::Unblocked,
        AMQPClass::Queue(queue::AMQPMethod::DeclareOk(it)) => Event::Queue {
            queue: it.queue,
            messages: it.message_count,
            consumers: it.consumer_count,
        },
        AMQPClass::Queue(queue::AMQPMethod::DeleteOk(it)) => {
            Event::Removed { messages: it.message_count }
        }
        AMQPClass::Queue(queue::AMQPMethod::PurgeOk(it)) => {
            Event::Removed { messages: it.message_count }
        }
        // All others that a broker sends are answers without a result.
        _ => Event::Done,
    };
    Heard::Said(Said::Event(event))
}

fn heard_basic(method: basic::AMQPMethod) -> Heard {
    let event = match method {
        basic::AMQPMethod::Deliver(it) => {
            let delivery = delivery(it.delivery_tag, it.redelivered, it.exchange, it.routing_key);
            return Heard::Content(Event::Delivered { consumer_tag: it.consumer_tag, delivery });
        }
        basic::AMQPMethod::GetOk(it) => {
            let delivery = delivery(it.delivery_tag, it.redelivered, it.exchange, it.routing_key);
            return Heard::Content(Event::Got { delivery, messages: it.message_count });
        }
        basic::AMQPMethod::Return(it) => {
            return Heard::Content(Event::Returned {
                code: it.reply_code,
                text: it.reply_text.to_string(),
                exchange: it.exchange,
                routing_key: it.routing_key,
                properties: Box::default(),
                body: Vec::new(),
            });
        }
        basic::AMQPMethod::ConsumeOk(it) => Event::Subscribed { consumer_tag: it.consumer_tag },
        basic::AMQPMethod::Cancel(it) => Event::Cancelled { consumer_tag: it.consumer_tag },
        basic::AMQPMethod::Ack(it) => {
            Event::Acked { delivery_tag: it.delivery_tag, is_multiple: it.multiple }
        }
        basic::AMQPMethod::Nack(it) => {
            Event::Nacked { delivery_tag: it.delivery_tag, is_multiple: it.multiple }
        }
        basic::AMQPMethod::GetEmpty(_) => Event::Empty,
        // All others that a broker sends are answers without a result.
        _ => Event::Done,
    };
    Heard::Said(Said::Event(event))
}

fn delivery(
    tag: u64,
    is_redelivered: bool,
    exchange: lapin::types::ShortString,
    routing_key: lapin::types::ShortString,
) -> Delivery {
    Delivery {
        tag,
        is_redelivered,
        exchange,
        routing_key,
        properties: Box::default(),
        body: Vec::new(),
    }
}

fn class(method: &Method) -> AMQPClass {
    match method.clone() {
        Method::OpenChannel => AMQPClass::Channel(channel::AMQPMethod::Open(channel::Open {})),
        Method::CloseChannel => {
            let close = channel::Close {
                reply_code: 200,
                reply_text: "bye".into(),
                ..channel::Close::default()
            };
            AMQPClass::Channel(channel::AMQPMethod::Close(close))
        }
        Method::Flow => {
            AMQPClass::Channel(channel::AMQPMethod::Flow(channel::Flow { active: true }))
        }
        Method::ConfirmSelect => {
            AMQPClass::Confirm(confirm::AMQPMethod::Select(confirm::Select { nowait: false }))
        }
        Method::BindExchange { destination, source, routing_key, arguments } => {
            AMQPClass::Exchange(exchange::AMQPMethod::Bind(exchange::Bind {
                destination,
                source,
                routing_key,
                nowait: false,
                arguments,
            }))
        }
        Method::DeclareExchange { exchange, kind, is_passive, is_durable, arguments } => {
            AMQPClass::Exchange(exchange::AMQPMethod::Declare(exchange::Declare {
                exchange,
                kind: kind.into(),
                passive: is_passive,
                durable: is_durable,
                auto_delete: false,
                internal: false,
                nowait: false,
                arguments,
            }))
        }
        Method::DeleteExchange { exchange, if_unused } => {
            AMQPClass::Exchange(exchange::AMQPMethod::Delete(exchange::Delete {
                exchange,
                if_unused,
                nowait: false,
            }))
        }
        Method::DeclareQueue { .. }
        | Method::DeleteQueue { .. }
        | Method::PurgeQueue { .. }
        | Method::BindQueue { .. }
        | Method::UnbindQueue { .. } => AMQPClass::Queue(queue_class(method.clone())),
        other => AMQPClass::Basic(basic_class(other)),
    }
}

fn queue_class(method: Method) -> queue::AMQPMethod {
    match method {
        Method::DeclareQueue {
            queue,
            is_passive,
            is_durable,
            is_exclusive,
            is_auto_delete,
            arguments,
        } => queue::AMQPMethod::Declare(queue::Declare {
            queue,
            passive: is_passive,
            durable: is_durable,
            exclusive: is_exclusive,
            auto_delete: is_auto_delete,
            nowait: false,
            arguments,
        }),
        Method::DeleteQueue { queue, if_empty } => queue::AMQPMethod::Delete(queue::Delete {
            queue,
            if_unused: false,
            if_empty,
            nowait: false,
        }),
        Method::PurgeQueue { queue } => {
            queue::AMQPMethod::Purge(queue::Purge { queue, nowait: false })
        }
        Method::BindQueue { queue, exchange, routing_key, arguments } => {
            queue::AMQPMethod::Bind(queue::Bind {
                queue,
                exchange,
                routing_key,
                nowait: false,
                arguments,
            })
        }
        Method::UnbindQueue { queue, exchange, routing_key, arguments } => {
            queue::AMQPMethod::Unbind(queue::Unbind { queue, exchange, routing_key, arguments })
        }
        other => unreachable!("{other:?} is not a method of queues"),
    }
}

fn basic_class(method: Method) -> basic::AMQPMethod {
    match method {
        Method::Qos { prefetch } => {
            basic::AMQPMethod::Qos(basic::Qos { prefetch_count: prefetch, global: false })
        }
        Method::Consume { queue, consumer_tag, is_no_ack, is_exclusive, arguments } => {
            basic::AMQPMethod::Consume(basic::Consume {
                queue,
                consumer_tag,
                no_local: false,
                no_ack: is_no_ack,
                exclusive: is_exclusive,
                nowait: false,
                arguments,
            })
        }
        Method::Cancel { consumer_tag } => {
            basic::AMQPMethod::Cancel(basic::Cancel { consumer_tag, nowait: false })
        }
        Method::Get { queue, is_no_ack } => {
            basic::AMQPMethod::Get(basic::Get { queue, no_ack: is_no_ack })
        }
        Method::Ack { delivery_tag, is_multiple } => {
            basic::AMQPMethod::Ack(basic::Ack { delivery_tag, multiple: is_multiple })
        }
        Method::Reject { delivery_tag, is_requeued } => {
            basic::AMQPMethod::Reject(basic::Reject { delivery_tag, requeue: is_requeued })
        }
        Method::Nack { delivery_tag, is_multiple, is_requeued } => {
            basic::AMQPMethod::Nack(basic::Nack {
                delivery_tag,
                multiple: is_multiple,
                requeue: is_requeued,
            })
        }
        Method::Publish { exchange, routing_key, is_mandatory, .. } => {
            basic::AMQPMethod::Publish(basic::Publish {
                exchange,
                routing_key,
                mandatory: is_mandatory,
                immediate: false,
            })
        }
        other => unreachable!("{other:?} is not a method of messages"),
    }
}
