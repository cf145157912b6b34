//! The service that consumes. Its handler asks the HTTP service without HTTP, because there is no
//! network in virtual time.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use rehop::{Error, Failure, Message, Settings};
use rehop_worlds::Stop;

use crate::answer::Treatments;
use crate::policy::{ORDERS, REFUNDS};
use crate::script::{Body, POISON};
use crate::shop::Shop;

/// Consumes until it is told to stop. An order that kills its process names itself to `killers`.
pub(super) async fn serve(
    settings: Settings,
    shop: Arc<Shop>,
    killers: Sender<u32>,
    stop: Stop,
) -> Result<(), Error> {
    let handler = move |order: Message<Body>| {
        let (shop, killers) = (shop.clone(), killers.clone());
        async move { handle(&shop, &killers, order).await }
    };
    let service = rehop::Service::new(&settings).with_graceful_shutdown(stop);
    service.consumer(ORDERS, handler.clone()).consumer(REFUNDS, handler).await.map(drop)
}

async fn handle(shop: &Shop, killers: &Sender<u32>, order: Message<Body>) -> Result<(), Failure> {
    if order.body.item == POISON {
        let _ = killers.send(order.body.id);
        return std::future::pending().await;
    }
    let request = shop.handle(order.body.id, order.attempt()).await;
    Treatments::default().judge(request.answer, request.retry_after, None)
}
