//! The HTTP service that handles the orders, with an outage in it, and its own log of what it was asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use super::clock::now_nanos;
use super::script::{Body, Kind, OUTAGE, Order, RETRY_AFTER};

/// The header by which the handler says which attempt this is.
pub(super) const ATTEMPT: &str = "x-attempt";

/// One request, as the service saw it.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// When it came, in nanoseconds since the epoch.
    pub(super) at: u64,
    pub(super) order: u32,
    pub(super) attempt: u32,
    pub(super) answer: u16,
    /// What the answer's `Retry-After` said.
    pub(super) retry_after: Option<Duration>,
}

impl Request {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.answer)
    }
}

/// How long a request takes.
const WORK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Shop {
    kinds: HashMap<u32, Kind>,
    opened: OnceLock<Instant>,
    log: Mutex<Vec<Request>>,
}

impl Shop {
    pub(super) fn new(orders: &[Order]) -> Arc<Self> {
        let kinds = orders.iter().map(|order| (order.id, order.kind)).collect();
        Arc::new(Self { kinds, opened: OnceLock::new(), log: Mutex::default() })
    }

    pub(super) fn router(self: &Arc<Self>) -> Router {
        Router::new().route("/orders", post(take)).with_state(self.clone())
    }

    /// From now on the time to the outage counts.
    pub(super) fn open(&self) {
        self.opened.get_or_init(Instant::now);
    }

    pub(super) fn is_out(&self) -> bool {
        self.opened.get().is_some_and(|opened| OUTAGE.contains(&opened.elapsed()))
    }

    pub(super) fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn answer(&self, order: u32, attempt: u32) -> Request {
        let kind = self.kinds.get(&order).copied().unwrap_or(Kind::Ordinary);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let outage = self.is_out();
        let status = match kind {
            Kind::Hopeless | Kind::Hurried => StatusCode::SERVICE_UNAVAILABLE,
            _ if outage => StatusCode::SERVICE_UNAVAILABLE,
            // Not in a later attempt: the broker counts a crash of a neighbour against the immediate attempts too, and an order
            // that comes home from its last wait has no others.
            Kind::Contended if attempt == 1 && order.is_multiple_of(2) => StatusCode::CONFLICT,
            Kind::Contended if attempt == 1 => StatusCode::LOCKED,
            Kind::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::Ordinary | Kind::Contended | Kind::Late | Kind::Undecodable | Kind::Poison | Kind::Misrouted => {
                StatusCode::OK
            }
        };
        let patient = outage && order.is_multiple_of(2) && matches!(kind, Kind::Ordinary | Kind::Contended);
        let retry_after = patient.then_some(RETRY_AFTER);
        let request = Request { at: now_nanos(), order, attempt, answer: status.as_u16(), retry_after };
        log.push(request.clone());
        request
    }
}

async fn take(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(order) = serde_json::from_slice::<Body>(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let attempt = headers.get(ATTEMPT).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
    let request = shop.answer(order.id, attempt);
    tokio::time::sleep(WORK).await;
    let status = StatusCode::from_u16(request.answer).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match request.retry_after {
        Some(after) => (status, [(header::RETRY_AFTER, HeaderValue::from(after.as_secs()))]).into_response(),
        None => status.into_response(),
    }
}
