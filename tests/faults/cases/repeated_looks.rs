//! Parked and stray messages are fetched and returned again and again, and none is lost.

use futures_util::future::join_all;
use lapin::options::{BasicGetOptions, BasicNackOptions, BasicRejectOptions};
use lapin::{Connection, ConnectionProperties};
use rehop_operator::parked::{ListRequest, Parked};
use rehop_testing::{Broker, Publish, Received, eventually};
use serde_json::{Value, json};

use crate::evidence::Policy;
use crate::expectation::Fate;
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::operator::Action;
use crate::service::Does;

/// How a message is returned.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// What "Get messages" in the management UI does.
    Nack,
    Reject,
    ChannelClosed,
}

/// On 4.x, a queue without a limit has the limit 20.
const LOOKS: usize = 40;
const MESSAGES: usize = 3;
/// The lower of a policy's limit and the queue's own applies.
const LIMIT: u32 = 2;

fn delivery_limit(limit: u32) -> Value {
    json!({ "delivery-limit": limit })
}

pub(crate) async fn without_a_policy(ground: Ground) -> Account {
    looked_at(&ground, None).await
}

pub(crate) async fn with_a_policy(ground: Ground) -> Account {
    looked_at(&ground, Some(LIMIT)).await
}

/// One whose broker has time to answer.
async fn lab(ground: &Ground, name: &str) -> Lab {
    let mut lab = ground.lab(name).await;
    lab.config.answer = SOON;
    lab
}

async fn looked_at(ground: &Ground, limit: Option<u32>) -> Account {
    let broker = ground.shared_broker().await;
    let mut sum = Account::default();
    for way in [Way::Nack, Way::Reject, Way::ChannelClosed] {
        let lab = lab(ground, &format!("looks-{way:?}")).await;
        sum.add(&looked_at_by(&broker, lab, limit, way).await);
    }
    sum
}

async fn looked_at_by(broker: &Broker, lab: Lab, limit: Option<u32>, way: Way) -> Account {
    let parked_and_stray = [lab.parked(), lab.stray()];
    // The service must declare the queues before the policy applies to them.
    lab.send_nowhere(MESSAGES).await;
    let mut policies = Vec::new();
    // Only for the parked queue. A message that exceeds a policy's limit in the stray queue could
    // only return there, so the broker holds it where no client can get it.
    if let Some(limit) = limit {
        policies.push(Policy::set(broker, &lab.parked(), delivery_limit(limit)).await);
    }
    for queue in &parked_and_stray {
        let looks = look(&lab.admin_url, queue, way).await;
        assert!(looks > 0, "{queue} was looked at");
    }
    for policy in policies {
        policy.clear().await;
    }
    // A message that exceeds the limit may move from the parked queue to the stray queue.
    lab.close(Allowed::nothing().or(Fate::Stray)).await.of(&format!("{LOOKS} looks by {way:?}"))
}

impl Lab {
    /// As many parked as stray messages.
    async fn send_nowhere(&self, count: usize) {
        self.declare().await;
        let mut service = self.service();
        self.send(count, Does::Permanent).await;
        let to_nowhere = |message: Publish| {
            let (exchange, routing_key) = (self.exchange("return"), "nobody".to_owned());
            Publish { exchange, routing_key, ..message }
        };
        let first = self.send_with(count, Does::Succeed, to_nowhere).await;
        self.expect(first..first + count as u64, Fate::Stray);
        self.depth(&self.parked(), count as u32).await;
        self.depth(&self.stray(), count as u32).await;
        service.stop().await;
    }
}

/// Fetches each message of the queue and returns it, forty times. Returns how often there was one
/// to fetch.
async fn look(url: &str, queue: &str, way: Way) -> usize {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let mut looks = 0;
    for _ in 0..LOOKS {
        #[allow(clippy::disallowed_methods, reason = "few channels are opened here")]
        let channel = connection.create_channel().await.unwrap();
        let mut taken = Vec::new();
        while let Some(message) =
            channel.basic_get(queue.into(), BasicGetOptions { no_ack: false }).await.unwrap()
        {
            taken.push(message);
        }
        looks += taken.len();
        for message in &taken {
            match way {
                Way::Nack => {
                    message
                        .nack(BasicNackOptions { requeue: true, multiple: false })
                        .await
                        .unwrap();
                }
                Way::Reject => {
                    message.reject(BasicRejectOptions { requeue: true }).await.unwrap();
                }
                Way::ChannelClosed => {}
            }
        }
        channel.close(200, "seen".into()).await.unwrap();
    }
    connection.close(200, "seen".into()).await.unwrap();
    looks
}

/// The parked and the stray messages of a lab, as they are before anybody looks at them.
struct Resting {
    lab: Lab,
    each: usize,
    queues: [(String, Vec<Received>); 2],
}

impl Resting {
    /// Takes all messages, and puts them back as they are.
    async fn new(lab: Lab, each: usize) -> Self {
        lab.send_nowhere(each).await;
        let client = lab.client().await;
        let mut queues = [(lab.parked(), Vec::new()), (lab.stray(), Vec::new())];
        for (queue, messages) in &mut queues {
            *messages = client.get_all(queue).await.unwrap().iter().map(content).collect();
            let again = messages.iter().map(|message| {
                let (properties, headers) =
                    (message.properties.clone(), message.exact_headers.clone());
                Publish {
                    properties,
                    headers,
                    ..Publish::to_queue(queue.as_str()).body(message.body.clone())
                }
            });
            assert_eq!(client.publish_many(again).await.unwrap(), each);
            lab.depth(queue, each as u32).await;
        }
        Self { lab, each, queues }
    }

    /// Lists both queues again and again, by several subscriptions each. Whatever a listing shows
    /// stays as it is, and so do the messages and their order.
    async fn list(&self, looks: usize) -> Account {
        let Self { lab, each, queues } = self;
        let stray =
            Parked::open(&lab.config.settings(), rehop_operator::parked::Place::Stray).unwrap();
        let all = [lab.operator(), stray].map(|operator| async move {
            let operator = operator.with_prefetch((*each / 3 + 1) as u16);
            let mut request = ListRequest::default();
            request.rows = *each;
            let mut first = None;
            for look in 0..looks {
                let mut listing = operator.list(&request).await.unwrap();
                assert_eq!(
                    (listing.depth, listing.matched),
                    (*each as u64, *each as u64),
                    "look {look}"
                );
                // Before 4.3 the broker counts the looks themselves.
                listing.messages.iter_mut().for_each(|message| message.returns = 0);
                assert_eq!(first.get_or_insert_with(|| listing.clone()), &listing, "look {look}");
            }
            let listed = first.map(|listing| listing.messages).unwrap_or_default();
            listed.into_iter().map(|message| message.message_id).collect::<Vec<_>>()
        });
        let listed = join_all(all).await;
        let (account, found) = lab.close_and_look(Allowed::nothing()).await;
        for ((queue, before), listed) in queues.iter().zip(listed) {
            let ids: Vec<_> =
                before.iter().map(|message| message.properties.message_id.clone()).collect();
            assert_eq!(ids, listed, "the list of {queue} is in its order");
            let after: Vec<_> =
                found.iter().filter(|it| it.routing_key == *queue).map(content).collect();
            assert!(
                after == *before,
                "the messages in {queue} are what they were, in their order: {after:?}"
            );
        }
        account.with_note(format!("{looks} looks"))
    }
}

/// A message without what the broker tells of its way.
fn content(message: &Received) -> Received {
    let mut content = message.clone();
    (content.exchange, content.routing_key, content.redelivered) = Default::default();
    for headers in [&mut content.headers, &mut content.exact_headers] {
        headers.retain(|name, _| !name.starts_with("x-"));
    }
    content
}

pub(crate) async fn listed(ground: Ground) -> Account {
    let resting = Resting::new(lab(&ground, "looks-list").await, 40).await;
    resting.list(ground.times(40, 1_000)).await
}

/// From 4.3 on, a message that is given back by a nack does not come nearer to a limit.
pub(crate) async fn listed_under_a_low_limit(ground: Ground) -> Account {
    if !ground.is("4.3").await {
        return Account::default().with_note("not tried: this version counts each look");
    }
    let broker = ground.shared_broker().await;
    let resting = Resting::new(lab(&ground, "looks-free").await, 10).await;
    let mut policies = Vec::new();
    for (queue, _) in &resting.queues {
        policies.push(Policy::set(&broker, queue, delivery_limit(LIMIT)).await);
    }
    let account = resting.list(ground.times(40, 1_000)).await;
    for policy in policies {
        policy.clear().await;
    }
    account
}

/// Where looks count, the warning comes before the limit of a policy moves a message. Where they do
/// not, nothing moves.
pub(crate) async fn listed_under_a_policy(ground: Ground) -> Account {
    const LOOKS_ALLOWED: usize = 20;
    const DEFAULT_LIMIT: u32 = 20;
    const WARNING: &str = "this broker counts how often messages are looked at";
    let broker = ground.shared_broker().await;
    let lab = lab(&ground, "looks-policy").await;
    lab.send_nowhere(MESSAGES).await;
    let policy = Policy::set(&broker, &lab.parked(), delivery_limit(DEFAULT_LIMIT)).await;
    let (client, mut was_warned) = (lab.client().await, false);
    for look in 0..=LOOKS_ALLOWED {
        let mut operator = lab.operator_with(&lab.config, &Action::List);
        assert!(operator.ended(SOON).await.unwrap(), "look {look}: {}", operator.log());
        was_warned |= operator.log().contains(WARNING);
        let all_back = async || {
            let (parked, stray) = lab.ready(&client, &lab.stray()).await;
            if (parked + stray) as usize == 2 * MESSAGES {
                Ok(true)
            } else {
                Err(format!("{parked} and {stray}"))
            }
        };
        eventually(SOON, "every message is in one of the two queues", all_back).await.unwrap();
        if (client.depth(&lab.parked()).await.unwrap() as usize) < MESSAGES {
            assert!(was_warned, "the warning comes before look {look}, which moves messages");
            break;
        }
    }
    assert_eq!(was_warned, !ground.is("4.3").await, "there is a warning where looks count");
    policy.clear().await;
    lab.close(Allowed::nothing().or(Fate::Stray)).await
}
