use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    error::BrokerError,
    ports::Port,
    url::{address_of, with_address},
};

/// A TCP proxy in front of a broker that breaks connections in the ways that real networks do. It
/// listens on 127.0.0.1.
///
/// Its methods act on all connections; for a single one use [`connection`](Self::connection). It
/// belongs to the runtime that started it. Dropping it cuts all open connections.
#[derive(Debug)]
pub struct Proxy {
    /// Claimed, so that nobody takes it while connections are refused.
    port: Port,
    shared: Arc<Shared>,
    acceptor: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<String>,
    /// How new connections start.
    flow: Mutex<Flow>,
    connections: Mutex<Vec<ProxyConnection>>,
}

/// One client's connection through a [`Proxy`]. It remains available after the connection has
/// ended.
#[derive(Clone)]
pub struct ProxyConnection {
    index: usize,
    control: Arc<Control>,
}

#[derive(Debug)]
struct Control {
    flow: watch::Sender<Flow>,
    end: watch::Sender<Option<End>>,
    to_broker: AtomicU64,
    to_client: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flow {
    silent: Silent,
    delay: Duration,
    bytes_per_second: Option<u64>,
}

/// In which directions no byte passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Silent {
    to_broker: bool,
    to_client: bool,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    ToBroker,
    ToClient,
}

impl Silent {
    const BOTH: Self = Self { to_broker: true, to_client: true };

    fn towards(self, direction: Direction) -> bool {
        match direction {
            Direction::ToBroker => self.to_broker,
            Direction::ToClient => self.to_client,
        }
    }
}

/// How a connection is to end, or has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Cut,
    Reset,
    ByItself,
}

impl Proxy {
    /// A proxy in front of `target`: `host:port`, or an AMQP URL.
    ///
    /// # Errors
    /// When no port is free, or the URL is invalid.
    pub async fn start(target: &str) -> Result<Self, BrokerError> {
        let target = Mutex::new(address(target)?);
        let port = Port::claim()?;
        let listener = TcpListener::bind(port.address())
            .await
            .map_err(BrokerError::io("listen for a proxy"))?;
        let shared =
            Arc::new(Shared { target, flow: Mutex::default(), connections: Mutex::default() });
        let acceptor = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { port, shared, acceptor: tokio::sync::Mutex::new(Some(acceptor)) })
    }

    /// Sends new connections to another `target`, like a load balancer when a node fails. Open ones
    /// are not affected.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub fn retarget(&self, target: &str) -> Result<(), BrokerError> {
        *lock(&self.shared.target) = address(target)?;
        Ok(())
    }

    /// Where the proxy listens: `127.0.0.1:port`.
    #[must_use]
    pub fn address(&self) -> String {
        self.port.address().to_string()
    }

    /// The same URL, through the proxy.
    ///
    /// # Errors
    /// When it is not an AMQP URL.
    pub fn url_for(&self, amqp_url: &str) -> Result<String, BrokerError> {
        with_address(amqp_url, &self.address())
    }

    /// Closes all open connections, like a peer that ends.
    pub fn cut(&self) {
        self.each(ProxyConnection::cut);
    }

    /// Resets all open connections (RST), like a host that has forgotten them.
    pub fn reset(&self) {
        self.each(ProxyConnection::reset);
    }

    /// Goes silent, like a network that drops packets: connections stay open, but no bytes and no
    /// closes pass. New connections are accepted and are silent too.
    pub fn pause(&self) {
        self.change(|flow| flow.silent = Silent::BOTH);
    }

    /// Ends the silence, including that of single connections and directions. What was held passes
    /// now.
    pub fn resume(&self) {
        self.change(|flow| flow.silent = Silent::default());
    }

    /// Delays every byte by this time, in both directions; zero switches it off. Throughput is not
    /// affected.
    pub fn delay(&self, delay: Duration) {
        self.change(|flow| flow.delay = delay);
    }

    /// Limits each connection and direction to this many bytes a second; 0 switches the limit off.
    pub fn rate(&self, bytes_per_second: u64) {
        self.change(|flow| flow.bytes_per_second = Some(bytes_per_second).filter(|&rate| rate > 0));
    }

    /// Refuses new connections, like a host on which nothing listens. Open ones are not affected.
    pub async fn refuse(&self) {
        if let Some(acceptor) = self.acceptor.lock().await.take() {
            acceptor.abort();
            // The listener is closed only when the task has ended.
            let _ = acceptor.await;
        }
    }

    /// Accepts new connections again.
    ///
    /// # Errors
    /// When a process other than a test has taken the port in the meantime.
    pub async fn accept(&self) -> Result<(), BrokerError> {
        let mut acceptor = self.acceptor.lock().await;
        if acceptor.is_none() {
            let listener = TcpListener::bind(self.port.address())
                .await
                .map_err(BrokerError::io("listen again"))?;
            *acceptor = Some(tokio::spawn(accept(listener, self.shared.clone())));
        }
        Ok(())
    }

    /// All connections since the start, in order of arrival.
    #[must_use]
    pub fn connections(&self) -> Vec<ProxyConnection> {
        lock(&self.shared.connections).clone()
    }

    /// The connection with this number in order of arrival, from 0.
    #[must_use]
    pub fn connection(&self, index: usize) -> Option<ProxyConnection> {
        lock(&self.shared.connections).get(index).cloned()
    }

    /// How many connections were accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> usize {
        lock(&self.shared.connections).len()
    }

    /// How many connections are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        lock(&self.shared.connections).iter().filter(|connection| connection.is_open()).count()
    }

    /// Bytes passed to the broker by all connections.
    #[must_use]
    pub fn bytes_to_broker(&self) -> u64 {
        lock(&self.shared.connections).iter().map(ProxyConnection::bytes_to_broker).sum()
    }

    /// Bytes passed to clients by all connections.
    #[must_use]
    pub fn bytes_to_client(&self) -> u64 {
        lock(&self.shared.connections).iter().map(ProxyConnection::bytes_to_client).sum()
    }

    /// The lock on the template is held during both steps, so that a connection that arrives
    /// meanwhile gets the change once.
    fn change(&self, change: impl Fn(&mut Flow)) {
        let mut template = lock(&self.shared.flow);
        change(&mut template);
        self.each(|connection| connection.control.flow.send_modify(&change));
    }

    fn each(&self, act: impl Fn(&ProxyConnection)) {
        lock(&self.shared.connections).iter().for_each(act);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(acceptor) = self.acceptor.get_mut().take() {
            acceptor.abort();
        }
        self.cut();
    }
}

impl ProxyConnection {
    /// Its number in order of arrival, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.control.end.borrow().is_none()
    }

    /// Closes it.
    pub fn cut(&self) {
        self.end(End::Cut);
    }

    /// Resets it (RST).
    pub fn reset(&self) {
        self.end(End::Reset);
    }

    /// Makes it silent.
    pub fn pause(&self) {
        self.control.flow.send_modify(|flow| flow.silent = Silent::BOTH);
    }

    /// Holds what the client sends, acks for example, while the broker's bytes still arrive.
    pub fn pause_to_broker(&self) {
        self.control.flow.send_modify(|flow| flow.silent.to_broker = true);
    }

    /// Holds what the broker sends, confirms for example, while the client's bytes still arrive.
    pub fn pause_to_client(&self) {
        self.control.flow.send_modify(|flow| flow.silent.to_client = true);
    }

    /// Ends its silence in both directions.
    pub fn resume(&self) {
        self.control.flow.send_modify(|flow| flow.silent = Silent::default());
    }

    /// Delays its bytes in both directions.
    pub fn delay(&self, delay: Duration) {
        self.control.flow.send_modify(|flow| flow.delay = delay);
    }

    /// Limits its bytes a second in each direction; 0 switches the limit off.
    pub fn rate(&self, bytes_per_second: u64) {
        self.control.flow.send_modify(|flow| {
            flow.bytes_per_second = Some(bytes_per_second).filter(|&rate| rate > 0)
        });
    }

    /// Bytes passed to the broker.
    #[must_use]
    pub fn bytes_to_broker(&self) -> u64 {
        self.control.to_broker.load(Ordering::Relaxed)
    }

    /// Bytes passed to the client.
    #[must_use]
    pub fn bytes_to_client(&self) -> u64 {
        self.control.to_client.load(Ordering::Relaxed)
    }

    fn end(&self, end: End) {
        self.control.end.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(end);
            }
            first
        });
    }
}

impl fmt::Debug for ProxyConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConnection")
            .field("index", &self.index)
            .field("open", &self.is_open())
            .field("bytes_to_broker", &self.bytes_to_broker())
            .field("bytes_to_client", &self.bytes_to_client())
            .finish()
    }
}

fn address(target: &str) -> Result<String, BrokerError> {
    if target.contains("://") { address_of(target) } else { Ok(target.to_owned()) }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // Neither a client that leaves before it is accepted nor too many open files end the proxy.
        let Ok((client, _)) = listener.accept().await else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let connection = shared.register();
        let target = lock(&shared.target).clone();
        tokio::spawn(async move {
            let mut end = connection.control.end.subscribe();
            tokio::select! {
                // If the broker is unreachable, the connection ends at once.
                result = TcpStream::connect(&target) => if let Ok(broker) = result {
                    relay(client, broker, &connection.control).await;
                },
                _ = told_to_end(&mut end) => {}
            }
            connection.end(End::ByItself);
        });
    }
}

impl Shared {
    fn register(&self) -> ProxyConnection {
        let flow = lock(&self.flow);
        let mut connections = lock(&self.connections);
        let control = Control {
            flow: watch::Sender::new(*flow),
            end: watch::Sender::new(None),
            to_broker: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
        };
        let connection = ProxyConnection { index: connections.len(), control: Arc::new(control) };
        connections.push(connection.clone());
        connection
    }
}

/// Passes bytes both ways until one side ends or the connection is told to end.
async fn relay(client: TcpStream, broker: TcpStream, control: &Control) {
    // The proxy itself should not hold back small AMQP frames. If the option cannot be set, they
    // are only later.
    let _ = client.set_nodelay(true);
    let _ = broker.set_nodelay(true);
    let (mut client_read, mut client_write) = client.into_split();
    let (mut broker_read, mut broker_write) = broker.into_split();
    let mut end = control.end.subscribe();
    let how = tokio::select! {
        _ = pass(&mut client_read, &mut broker_write, control, Direction::ToBroker) => End::ByItself,
        _ = pass(&mut broker_read, &mut client_write, control, Direction::ToClient) => End::ByItself,
        how = told_to_end(&mut end) => how,
    };
    if how == End::Reset {
        // With a linger time of zero, closing sends RST; if it cannot be set, the close is a plain
        // one. Dropping the write half first would send FIN.
        let _ = client_read.as_ref().set_zero_linger();
        let _ = broker_read.as_ref().set_zero_linger();
        client_write.forget();
        broker_write.forget();
    }
}

/// One direction. Reader and writer are separate, so that a delay shifts the stream in time instead
/// of slowing it down.
async fn pass(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    control: &Control,
    direction: Direction,
) -> io::Result<()> {
    let passed = match direction {
        Direction::ToBroker => &control.to_broker,
        Direction::ToClient => &control.to_client,
    };
    let (queue, mut held) = mpsc::channel::<(Instant, Vec<u8>)>(256);
    let mut before_read = control.flow.subscribe();
    let mut before_write = control.flow.subscribe();
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            going(&mut before_read, direction).await;
            let count = from.read(&mut buffer).await?;
            let due = Instant::now() + before_read.borrow().delay;
            // At the end the queue is dropped, which tells the writer that nothing follows.
            if count == 0 || queue.send((due, buffer[..count].to_vec())).await.is_err() {
                return io::Result::Ok(());
            }
        }
    };
    let write = async {
        while let Some((due, bytes)) = held.recv().await {
            sleep_until(due).await;
            write_pieces(&bytes, to, &mut before_write, direction, passed).await?;
        }
        // The close is passed on after the silence, and after everything that was held.
        going(&mut before_write, direction).await;
        Ok(())
    };
    tokio::try_join!(read, write).map(drop)
}

/// Writes in pieces, each at the rate that holds when it begins.
async fn write_pieces(
    bytes: &[u8],
    to: &mut (impl AsyncWrite + Unpin),
    flow: &mut watch::Receiver<Flow>,
    direction: Direction,
    passed: &AtomicU64,
) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let rate = going(flow, direction).await.bytes_per_second;
        // A slow connection transfers twenty pieces a second.
        let piece =
            rate.map_or(usize::MAX, |rate| usize::try_from(rate / 20).unwrap_or(usize::MAX));
        let (piece, after) = rest.split_at(piece.clamp(1, rest.len()));
        to.write_all(piece).await?;
        passed.fetch_add(piece.len() as u64, Ordering::Relaxed);
        rest = after;
        if let Some(rate) = rate {
            let lasts = Duration::from_secs_f64(piece.len() as f64 / rate as f64);
            // A change counts at once.
            let changes = flow.wait_for(|now| {
                now.bytes_per_second != Some(rate) || now.silent.towards(direction)
            });
            let _ = timeout(lasts, changes).await;
        }
    }
    Ok(())
}

/// Returns when the connection is to end.
async fn told_to_end(end: &mut watch::Receiver<Option<End>>) -> End {
    end.wait_for(Option::is_some).await.ok().and_then(|end| *end).unwrap_or(End::Cut)
}

/// Waits until the connection is not silent in this direction, and returns its flow.
async fn going(flow: &mut watch::Receiver<Flow>, direction: Direction) -> Flow {
    // The sender lives as long as the connection.
    flow.wait_for(|flow| !flow.silent.towards(direction))
        .await
        .map(|flow| *flow)
        .unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll};

    use super::*;

    /// Each change is seen at the next poll, however little of the time for a piece is over.
    #[tokio::test]
    async fn pieces_of_what_is_under_way_follow_each_change_of_rate_and_silence_at_once() {
        const SIZE: u64 = 16 * 1024;
        let limited =
            |bytes_per_second| Flow { bytes_per_second: Some(bytes_per_second), ..Flow::default() };
        for direction in [Direction::ToBroker, Direction::ToClient] {
            let (mut to, _from) = tokio::io::duplex(SIZE as usize);
            let (changes, mut flow) = watch::channel(limited(1));
            let (bytes, passed) = (vec![0_u8; SIZE as usize], AtomicU64::new(0));
            let mut writing = pin!(write_pieces(&bytes, &mut to, &mut flow, direction, &passed));
            let mut poll = async || {
                let polled = poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await;
                (polled.is_ready(), passed.load(Ordering::Relaxed))
            };
            assert_eq!(poll().await, (false, 1), "the first of one byte a second");
            changes.send_replace(limited(200));
            assert_eq!(poll().await, (false, 11), "the rate is raised");
            changes.send_replace(Flow { silent: Silent::BOTH, ..Flow::default() });
            assert_eq!(poll().await, (false, 11), "silent, and without a limit");
            changes.send_replace(Flow::default());
            assert_eq!(poll().await, (true, SIZE), "the rest");
        }
    }
}
