//! The HTTP service that handles the orders. It has an outage, a bug, and a log of its requests.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use tokio::time::{Instant, sleep};

use super::lock::lock;
use super::script::{Body, OUTAGE, Order, OrderKind, SHORT_BREAK};
use super::traces::now_nanos;

/// The header with the number of the attempt.
pub(crate) const ATTEMPT: &str = "x-attempt";

/// How long a request takes.
const WORK: Duration = Duration::from_millis(10);

/// One request, as the service saw it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// When it came, in nanoseconds since the epoch.
    pub(crate) at: u64,
    pub(crate) order: u32,
    pub(crate) attempt: u32,
    pub(crate) answer: StatusCode,
    /// The answer's `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Shop {
    kinds: HashMap<u32, OrderKind>,
    opened: OnceLock<Instant>,
    is_repaired: AtomicBool,
    log: Mutex<Vec<Request>>,
}

impl Shop {
    pub(crate) fn new(orders: &[Order]) -> Arc<Self> {
        let kinds = orders.iter().map(|order| (order.id, order.kind)).collect();
        Arc::new(Self {
            kinds,
            opened: OnceLock::new(),
            is_repaired: AtomicBool::new(false),
            log: Mutex::default(),
        })
    }

    pub(crate) fn router(self: &Arc<Self>) -> Router {
        Router::new().route("/orders", routing::post(post)).with_state(self.clone())
    }

    /// Starts the time until the outage.
    pub(crate) fn open(&self) {
        self.opened.get_or_init(Instant::now);
    }

    pub(crate) fn is_out(&self) -> bool {
        self.opened.get().is_some_and(|opened| OUTAGE.contains(&opened.elapsed()))
    }

    /// Removes the bug.
    pub(crate) fn repair(&self) {
        self.is_repaired.store(true, Ordering::Relaxed);
    }

    pub(crate) fn log(&self) -> Vec<Request> {
        lock(&self.log).clone()
    }

    pub(crate) fn handled(&self) -> BTreeSet<u32> {
        lock(&self.log)
            .iter()
            .filter(|request| request.answer.is_success())
            .map(|request| request.order)
            .collect()
    }

    /// Handles an order, which takes a while.
    pub(crate) async fn handle(&self, order: u32, attempt: u32) -> Request {
        let request = self.answer(order, attempt);
        sleep(WORK).await;
        request
    }

    fn answer(&self, order: u32, attempt: u32) -> Request {
        let kind = self.kinds.get(&order).copied().unwrap_or(OrderKind::Ordinary);
        let mut log = lock(&self.log);
        let outage = self.is_out();
        let answer = match kind {
            OrderKind::MeetsBug if !self.is_repaired.load(Ordering::Relaxed) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            OrderKind::Hurried => StatusCode::SERVICE_UNAVAILABLE,
            _ if outage => StatusCode::SERVICE_UNAVAILABLE,
            // Only the first attempt: the broker also counts another order's crash against the
            // immediate attempts, and an order that returns from its last wait has no other
            // attempts.
            OrderKind::Contended if attempt == 1 && order.is_multiple_of(2) => StatusCode::CONFLICT,
            OrderKind::Contended if attempt == 1 => StatusCode::LOCKED,
            OrderKind::Refund if attempt == 1 => StatusCode::SERVICE_UNAVAILABLE,
            OrderKind::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::OK,
        };
        let patient = outage
            && order.is_multiple_of(2)
            && matches!(kind, OrderKind::Ordinary | OrderKind::Contended);
        let request = Request {
            at: now_nanos(),
            order,
            attempt,
            answer,
            retry_after: patient.then_some(SHORT_BREAK),
        };
        log.push(request.clone());
        request
    }
}

async fn post(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(order) = serde_json::from_slice::<Body>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let attempt =
        headers.get(ATTEMPT).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
    let request = shop.handle(order.id, attempt).await;
    match request.retry_after {
        Some(after) => {
            (request.answer, [(RETRY_AFTER, after.as_secs().to_string())]).into_response()
        }
        None => request.answer.into_response(),
    }
}
