//! Handlers that share a state.

use std::future::Future;

use super::Handler;
use crate::failure::Failure;
use crate::message::Message;

/// A handler that gets a clone of this state with each message: a connection pool, an HTTP client,
/// an `Arc` of your own.
///
/// The state is cloned once for each attempt, so a clone should be cheap. Pools and clients are
/// cheap to clone; put anything else into an [`Arc`](std::sync::Arc).
///
/// ```
/// use std::sync::Arc;
/// use rehop::{Consumer, Failure, Handler, Message, with_state};
///
/// struct Limits {
///     most: u32,
/// }
///
/// async fn charge(amount: Message<u32>, limits: Arc<Limits>) -> Result<(), Failure> {
///     if amount.body > limits.most {
///         return Err(Failure::permanent("above the limit"));
///     }
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limits = Arc::new(Limits { most: 1_000 });
/// let handler = with_state(limits, charge);
///
/// let too_much = rehop::testing::message(1_001).build();
/// assert_eq!(handler.handle(too_much).await.unwrap_err().message(), "above the limit");
///
/// let consumer = Consumer::new("charges", handler);
/// # let _ = consumer;
/// # }
/// ```
///
/// A closure works as well: `with_state(pool, |order: Message<Order>, pool| async move { … })`.
///
/// Several states are a tuple, which the function takes apart:
///
/// ```
/// # use std::sync::Arc;
/// # use rehop::{Consumer, Failure, Message, with_state};
/// # struct Bank; struct Mail;
/// async fn charge(amount: Message<u32>, (bank, mail): (Arc<Bank>, Arc<Mail>)) -> Result<(), Failure> {
///     # let _ = (amount, bank, mail);
///     Ok(())
/// }
///
/// let (bank, mail) = (Arc::new(Bank), Arc::new(Mail));
/// let consumer = Consumer::new("charges", with_state((bank, mail), charge));
/// # let _ = consumer;
/// ```
///
/// A state that cannot be shared between threads does not compile:
///
/// ```compile_fail
/// # use rehop::{Message, with_state};
/// let state = std::rc::Rc::new(1); // `Rc<i32>` cannot be sent between threads safely
/// let handler = with_state(state, |_: Message<String>, _| async { Ok::<_, rehop::Failure>(()) });
/// # rehop::Consumer::new("queue", handler);
/// ```
pub fn with_state<T, S, F, R, E>(state: S, handler: F) -> impl Handler<T>
where
    S: Clone + Send + Sync + 'static,
    F: Fn(Message<T>, S) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send,
    E: Into<Failure>,
{
    move |message| handler(message, state.clone())
}
