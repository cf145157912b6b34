// says: cannot be cloned
// says: put a buffer around it
use std::task::{Context, Poll};

use rehop::{Failure, Message, Service, layered};

pub struct Limit;

pub struct Limited<S>(S);

impl<S> tower_layer::Layer<S> for Limit {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited(inner)
    }
}

impl<S: tower_service::Service<R>, R> tower_service::Service<R> for Limited<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}

async fn charge(_: Message<u64>) -> Result<(), Failure> {
    Ok(())
}

pub fn run(service: Service) -> Service {
    service.consumer("orders", layered(Limit, charge))
}
