//! Where the connections of a small HTTP server wait until they have sent a request.
//!
//! Whoever connects and sends nothing would hold a seat for as long as it likes. So the lobby has a
//! number of seats, and if all are taken, the one that waits longest gives way to whoever comes. A
//! request that has arrived by then is served all the same: a probe must not go unanswered because
//! others connect at the same time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Notify, oneshot};

/// The seats of a server.
#[derive(Debug)]
pub struct Lobby {
    most: usize,
    seats: VecDeque<Seat>,
}

#[derive(Debug)]
struct Seat {
    /// Asks the guest to leave.
    give_way: Arc<Notify>,
    /// Ends when the guest has left.
    gone: oneshot::Receiver<()>,
}

/// One connection in the lobby, until it is dropped.
#[derive(Debug)]
pub struct Guest {
    give_way: Arc<Notify>,
    _here: oneshot::Sender<()>,
}

impl Lobby {
    /// With so many seats.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), seats: VecDeque::new() }
    }

    /// Lets one more in. If all seats are taken, the guest that came first has left by then.
    pub async fn admit(&mut self) -> Guest {
        self.seats.retain_mut(|seat| seat.gone.try_recv() == Err(EMPTY));
        while self.seats.len() >= self.most
            && let Some(Seat { give_way, gone }) = self.seats.pop_front()
        {
            give_way.notify_one();
            // A guest sends nothing, so this is when it is dropped.
            let _ = gone.await;
        }
        let (here, gone) = oneshot::channel();
        let give_way = Arc::new(Notify::new());
        self.seats.push_back(Seat { give_way: give_way.clone(), gone });
        Guest { give_way, _here: here }
    }
}

const EMPTY: oneshot::error::TryRecvError = oneshot::error::TryRecvError::Empty;

impl Guest {
    /// Completes when the guest is to leave.
    pub async fn gives_way(&self) {
        self.give_way.notified().await;
    }

    /// The head of a request, or as much of it as `most` allows, with what came after it. `None` if
    /// it did not come in time, or before the guest had to give way.
    pub async fn head<S: AsyncRead + Unpin>(
        self,
        stream: &mut S,
        most: usize,
        within: Duration,
    ) -> Option<Vec<u8>> {
        let mut reading = std::pin::pin!(tokio::time::timeout(within, read_head(stream, most)));
        let head = tokio::select! {
            biased;
            head = &mut reading => head,
            () = self.gives_way() => {
                // Not before the runtime has asked the system what has arrived.
                tokio::task::yield_now().await;
                reading.now_or_never()?
            }
        };
        head.ok().flatten()
    }
}

async fn read_head<S: AsyncRead + Unpin>(stream: &mut S, most: usize) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        match stream.read_buf(&mut head).await {
            Ok(1..) if is_whole(&head) || head.len() >= most => return Some(head),
            Ok(1..) => {}
            Ok(0) | Err(_) => return None,
        }
    }
}

/// Lines may also end with LF alone.
fn is_whole(head: &[u8]) -> bool {
    let ends = |end: &[u8]| head.windows(end.len()).any(|window| window == end);
    ends(b"\r\n\r\n") || ends(b"\n\n")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    const REQUEST: &[u8] = b"GET /livez HTTP/1.1\r\nhost: here\r\n\r\n";

    /// A connection on which this has been sent. Its task has not run yet.
    async fn connect(
        lobby: &mut Lobby,
        sent: &[u8],
    ) -> (DuplexStream, JoinHandle<Option<Vec<u8>>>) {
        let guest = lobby.admit().await;
        let (mut client, mut server) = duplex(1024);
        client.write_all(sent).await.unwrap();
        let head = async move { guest.head(&mut server, 512, Duration::from_secs(3600)).await };
        (client, tokio::spawn(head))
    }

    #[tokio::test]
    async fn a_request_that_was_sent_is_read_however_many_connect_after_it() {
        let mut lobby = Lobby::new(2);
        let (_probe, head) = connect(&mut lobby, REQUEST).await;
        let mut others = Vec::new();
        for _ in 0..100 {
            others.push(connect(&mut lobby, b"").await);
        }
        assert_eq!(head.await.unwrap().as_deref(), Some(REQUEST));
    }

    #[tokio::test]
    async fn whoever_sends_nothing_or_little_gives_way_in_the_order_of_coming() {
        let mut lobby = Lobby::new(2);
        let (_first, first) = connect(&mut lobby, b"").await;
        let (_second, second) = connect(&mut lobby, b"GET / HTTP/1.1\r\nhost:").await;
        let (mut third, last) = connect(&mut lobby, b"").await;
        assert_eq!(first.await.unwrap(), None);
        assert!(!second.is_finished());
        let (_fourth, _) = connect(&mut lobby, b"").await;
        assert_eq!(second.await.unwrap(), None);
        third.write_all(REQUEST).await.unwrap();
        assert_eq!(last.await.unwrap().as_deref(), Some(REQUEST));
        assert_eq!(lobby.seats.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_come_or_never_ends_is_given_up() {
        let mut lobby = Lobby::new(2);
        let (_silent, head) = connect(&mut lobby, b"").await;
        assert_eq!(head.await.unwrap(), None);
        let (_endless, head) = connect(&mut lobby, &[b'x'; 600]).await;
        assert_eq!(head.await.unwrap().map(|head| head.len() >= 512), Some(true));
    }
}
