//! Connections to the endpoint that die while they are idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::endpoint::class;
use super::hostile::{Connection, Hostile, OK};
use super::relay_answers::is_on_the_page;
use crate::support::{Fixture, Log, millis};

/// How many connections the relay keeps before they die. It may open one more, which it then did not
/// need.
const KEPT: usize = 10;

const SENT_ONCE_MORE: &str = "sent once more on a new one: no attempt is used up";

/// What a dead connection does with a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Death {
    Closed,
    Reset,
    Silent,
    Forgotten,
}

impl Death {
    /// Half of it must be enough for a second try on a busy machine.
    fn timeout(self) -> &'static str {
        if self == Self::Forgotten { "20s" } else { "4s" }
    }
}

/// An endpoint whose first connections answer until they die, and whose others always answer.
struct Mortal {
    death: Death,
    /// How many connections there have been.
    opened: AtomicUsize,
    /// How many of the first of them are dead.
    dead: AtomicUsize,
    /// Whether requests wait until there is one on each of the first connections.
    waits: AtomicBool,
    waiting: AtomicUsize,
    go_on: Semaphore,
    answered: Log<()>,
    /// The dead connections that got a request.
    tried: Log<usize>,
}

impl Mortal {
    async fn serve(self: Arc<Self>, mut connection: Connection) {
        self.opened.fetch_max(connection.number + 1, Ordering::SeqCst);
        while connection.asked().await.is_some() {
            if connection.number < self.dead.load(Ordering::SeqCst) {
                self.tried.push(connection.number);
                return self.die(connection).await;
            }
            let waits = self.waits.load(Ordering::SeqCst);
            if waits {
                if self.waiting.fetch_add(1, Ordering::SeqCst) + 1 == KEPT {
                    self.waits.store(false, Ordering::SeqCst);
                    self.go_on.add_permits(KEPT);
                }
                self.go_on.acquire().await.unwrap().forget();
            }
            connection.say(OK).await;
            if waits && self.death == Death::Forgotten {
                connection.forget();
            }
            self.answered.push(());
        }
    }

    async fn die(&self, mut connection: Connection) {
        match self.death {
            Death::Closed | Death::Forgotten => {}
            Death::Reset => connection.reset(),
            Death::Silent => while connection.asked().await.is_some() {},
        }
    }
}

/// A relay gets a message after all its connections have died. Returns the attempt at which the
/// message was handled, and how many dead connections were tried.
async fn attempt_after(death: Death) -> (String, usize) {
    let mut fixture = Fixture::new("dead").await;
    fixture.settings.retry.delays = millis([100; 9]);
    let mortal = Arc::new(Mortal {
        death,
        opened: AtomicUsize::new(0),
        dead: AtomicUsize::new(0),
        waits: AtomicBool::new(false),
        waiting: AtomicUsize::new(0),
        go_on: Semaphore::new(0),
        answered: Log::default(),
        tried: Log::default(),
    });
    let shared = mortal.clone();
    let endpoint = Hostile::start(move |connection| shared.clone().serve(connection)).await;
    let options = ["--idle-timeout", "10m", "--timeout", death.timeout()];
    let relay = fixture.relay(&endpoint.url, &options).await;
    fixture.publish("first").await;
    mortal.answered.reaches(1).await;
    mortal.waits.store(true, Ordering::SeqCst);
    fixture.client.publish_many((0..KEPT).map(|_| fixture.to_queue())).await.unwrap();
    mortal.answered.reaches(1 + KEPT).await;
    // From those that are forgotten nothing more comes.
    let opened = if death == Death::Forgotten { 0 } else { mortal.opened.load(Ordering::SeqCst) };
    mortal.dead.store(opened, Ordering::SeqCst);
    fixture.publish("last").await;
    mortal.answered.reaches(2 + KEPT).await;
    let stopped = relay.stop().await;
    assert!(stopped.out.contains(&format!("handled {}", 2 + KEPT)), "{}", stopped.out);
    let asked = endpoint.asked();
    let last = asked.last().unwrap();
    assert!(last.connection >= KEPT.max(opened) && last.body == "last", "{last:?}");
    (last.header("rehop-attempt").unwrap().to_owned(), mortal.tried.all().len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_after_all_idle_connections_died_is_sent_again_within_its_attempt() {
    for death in [Death::Closed, Death::Reset] {
        let (attempt, tried) = attempt_after(death).await;
        assert_eq!(attempt, "1", "{death:?}");
        assert!(tried <= 1, "{death:?}: {tried}");
    }
    let what = "the connection was used before, and ends before a byte of the answer";
    is_on_the_page(what, SENT_ONCE_MORE, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_after_a_firewall_forgot_all_connections_is_sent_again_within_its_attempt() {
    let (attempt, tried) = attempt_after(Death::Forgotten).await;
    assert_eq!((attempt.as_str(), tried), ("1", 0));
    let what = "the connection was used before, and on Linux nobody acknowledges the request for half \
                of `--timeout`, 30 s at most, as behind a firewall that forgot the connection";
    is_on_the_page(what, SENT_ONCE_MORE, "");
}

/// What answers nothing may also be slow, so this costs an attempt; but one for all connections.
#[tokio::test(flavor = "multi_thread")]
async fn of_connections_that_fell_silent_only_one_is_tried() {
    let (attempt, tried) = attempt_after(Death::Silent).await;
    assert!(tried <= 1 && attempt != "1", "{tried}, {attempt}");
    let what = "the connection was used before, the request is acknowledged, and nothing comes";
    is_on_the_page(what, "tried again, on a new one", "http_timeout");
}

/// The endpoint may have died of the request itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_that_ends_before_the_answer_costs_an_attempt() {
    let mut fixture = Fixture::new("new").await;
    fixture.settings.retry.delays = millis([100, 100]);
    let endpoint = Hostile::start(|mut connection| async move {
        connection.asked().await;
    })
    .await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.publish("").await;
    assert_eq!(class(&fixture.drain_parked(1).await[0]), "http_connection");
    relay.stop().await;
    let asked = endpoint.asked();
    let attempts: Vec<_> = asked.iter().map(|it| it.header("rehop-attempt").unwrap()).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    let what = "a new connection ends after the request was sent, and before a byte of the answer: \
                the endpoint may have died of the message, so an attempt is used up";
    is_on_the_page(what, "tried again", "http_connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_idle_time_each_message_has_a_connection_of_its_own() {
    let fixture = Fixture::new("idle").await;
    let endpoint = Hostile::answering(OK).await;
    let options = ["--idle-timeout", "0s", "--concurrency", "1"];
    let relay = fixture.relay(&endpoint.url, &options).await;
    for _ in 0..3 {
        fixture.publish("").await;
    }
    let asked = endpoint.is_asked(3).await;
    assert_eq!(asked.iter().map(|it| it.connection).collect::<Vec<_>>(), [0, 1, 2]);
    relay.stop().await;
}
