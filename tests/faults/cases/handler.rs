//! Handlers that misbehave without killing their process.

use std::time::Duration;

use crate::ground::{Ground, SOON};
use crate::ledger::{Account, Allowed};
use crate::service::Does;

/// Three messages that misbehave each time, among neighbours.
async fn misbehaves(ground: Ground, name: &str, does: Does) -> Account {
    let mut lab = ground.lab(name).await;
    lab.work_mut().handler_timeout = Duration::from_millis(500);
    lab.work_mut().immediate = 1;
    lab.declare().await;
    for _ in 0..3 {
        lab.send(100, Does::Succeed).await;
        lab.send(1, does).await;
    }
    let mut service = lab.service();
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

pub(crate) async fn panics(ground: Ground) -> Account {
    misbehaves(ground, "panics", Does::Panic).await
}

pub(crate) async fn hangs(ground: Ground) -> Account {
    misbehaves(ground, "hangs", Does::Hang).await
}

pub(crate) async fn blocks(ground: Ground) -> Account {
    misbehaves(ground, "blocks", Does::Block(300)).await
}

pub(crate) async fn allocates(ground: Ground) -> Account {
    misbehaves(ground, "allocates", Does::Allocate(128)).await
}
