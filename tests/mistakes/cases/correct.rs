use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;

use rehop::bytes::Bytes;
use rehop::{Consumer, Decode, Failure, Handler, Message, Raw, Service, with_state};
use serde::de::DeserializeOwned;

#[derive(serde::Deserialize)]
pub struct Order {
    id: u64,
}

pub struct Declined;

impl From<Declined> for Failure {
    fn from(_: Declined) -> Self {
        Self::permanent("declined")
    }
}

/// Its error is none of the standard library's, but converts.
async fn charge(order: Message<Order>) -> Result<(), Declined> {
    if order.body.id == 0 { Err(Declined) } else { Ok(()) }
}

async fn charge_with(_: Message<Order>, _: Arc<u32>) -> Result<(), Box<dyn Error + Send + Sync>> {
    Err("no")?
}

pub fn with_functions_and_closures(service: Service) -> Service {
    let pointer: fn(Message<u32>) -> std::future::Ready<Result<(), Failure>> =
        |_| std::future::ready(Ok(()));
    service
        .consumer("function", charge)
        .consumer("state", with_state(Arc::new(1), charge_with))
        .consumer("closure", |_: Message<Order>| async { Err(Failure::from("inferred")) })
        .consumer("pattern", |Message { body, .. }: Message<Order>| async move {
            if body.id == 0 { Err(Failure::permanent("zero")) } else { Ok(()) }
        })
        .consumer("pointer", pointer)
        .with_consumer(Consumer::new("raw", |_: Message<Bytes>| async { Err("text") }).decode(Raw))
}

pub struct Wrapped<H>(H);

impl<T: Send, H: Handler<T>> Handler<T> for Wrapped<H> {
    async fn handle(&self, message: Message<T>) -> Result<(), Failure> {
        self.0.handle(message).await
    }
}

pub fn with_a_handler<T: DeserializeOwned + Send + 'static>(
    service: Service,
    handler: impl Handler<T>,
) -> Service {
    service.consumer("wrapped", Wrapped(handler))
}

pub fn with_a_function<T, F, R, E>(service: Service, function: F) -> Service
where
    T: DeserializeOwned + Send + 'static,
    F: Fn(Message<T>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send,
    E: Into<Failure>,
{
    let again = function.clone();
    service
        .consumer("function", function)
        .consumer("state", with_state((), move |message, ()| again(message)))
}

type Boxed = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

pub fn with_a_boxed_function<T: Send + 'static>(
    service: Service,
    function: Box<dyn Fn(Message<T>) -> Boxed + Send + Sync>,
    decoder: impl Decode<T>,
) -> Service {
    service.with_consumer(Consumer::new("boxed", function).decode(decoder))
}

pub trait Say: Into<Box<dyn Error + Send + Sync>> + 'static {
    fn say(self) -> Failure {
        Failure::from(self)
    }
}
