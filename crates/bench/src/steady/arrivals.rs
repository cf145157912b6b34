//! The producer. It has its own thread and connection, and publishes each message when it is due.
//! Neither a slow confirm nor a slow consumer delays the next one, and lateness is measured from
//! the schedule.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::Result;
use crate::lab::BODY;
use crate::witness::Witness;

/// When each message is due to arrive, on the witness's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) begins: Duration,
    pub(crate) rate: u32,
}

impl Schedule {
    pub(crate) fn due(self, id: usize) -> Duration {
        self.begins + Duration::from_secs_f64(id as f64 / f64::from(self.rate))
    }
}

/// What the producer did.
pub(crate) struct Arrivals {
    pub(crate) schedule: Schedule,
    /// When the broker confirmed each message.
    pub(crate) confirmed: Vec<Duration>,
}

/// How long the broker may take to confirm what was published.
const OVERDUE: Duration = Duration::from_secs(60);

/// Publishes all messages on schedule, and returns when they are confirmed.
pub(crate) async fn publish(
    url: &str,
    queue: &str,
    witness: Arc<Witness>,
    rate: u32,
    messages: usize,
) -> Result<Arrivals> {
    let (url, queue) = (url.to_owned(), queue.to_owned());
    let producer = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(produce(&url, &queue, &witness, rate, messages))
    };
    tokio::task::spawn_blocking(producer).await?
}

async fn produce(
    url: &str,
    queue: &str,
    witness: &Witness,
    rate: u32,
    messages: usize,
) -> Result<Arrivals> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let schedule = Schedule { begins: witness.now(), rate };
    let mut confirmed = vec![Duration::ZERO; messages];
    let mut under_way = FuturesUnordered::new();
    let mut tick = interval(Duration::from_millis(1));
    // A late tick publishes everything that is due, so there is no need to catch up on ticks.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next = 0;
    while next < messages {
        tokio::select! {
            biased;
            _ = tick.tick() => {
                let now = witness.now();
                while next < messages && schedule.due(next) <= now {
                    under_way.push(send(&channel, queue, next));
                    next += 1;
                }
            }
            Some(id) = under_way.next() => confirmed[id?] = witness.now(),
        }
    }
    let rest = async {
        while let Some(id) = under_way.next().await {
            confirmed[id?] = witness.now();
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    timeout(OVERDUE, rest)
        .await
        .map_err(|_| format!("arrivals were not confirmed within {OVERDUE:?}"))??;
    connection.close(200, "done".into()).await?;
    Ok(Arrivals { schedule, confirmed })
}

async fn send(channel: &Channel, queue: &str, id: usize) -> Result<usize> {
    let properties =
        BasicProperties::default().with_delivery_mode(2).with_message_id(id.to_string().into());
    let sent = channel.basic_publish(
        "".into(),
        queue.into(),
        BasicPublishOptions::default(),
        &BODY,
        properties,
    );
    match sent.await?.await? {
        Confirmation::Ack(None) => Ok(id),
        refused => Err(format!("the broker did not accept an arrival: {refused:?}").into()),
    }
}
