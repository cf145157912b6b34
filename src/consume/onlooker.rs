//! Tells a simulated world of each attempt. Elsewhere nobody looks on.

use std::cell::RefCell;

use crate::consume::started::Started;
use crate::consume::taken::Taken;
use crate::failure::Failure;
use crate::retry::outcome::Outcome;

type Onlooker = Box<dyn FnMut(&Sighting<'_>)>;

thread_local! {
    static ONLOOKER: RefCell<Option<Onlooker>> = const { RefCell::new(None) };
}

/// A handler begins, or what becomes of a delivery is settled.
#[derive(Debug, Clone, Copy)]
pub struct Sighting<'a> {
    pub queue: &'a str,
    pub message_id: Option<&'a str>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// `None`: the handler begins.
    pub outcome: Option<Outcome>,
    pub failure: Option<&'a Failure>,
}

/// Until the guard is dropped, calls this function for what happens on the current thread.
pub fn observe(onlooker: impl FnMut(&Sighting<'_>) + 'static) -> Observing {
    ONLOOKER.set(Some(Box::new(onlooker)));
    Observing(())
}

/// Nobody looks on any more when it is dropped.
#[derive(Debug)]
pub struct Observing(());

impl Drop for Observing {
    fn drop(&mut self) {
        ONLOOKER.set(None);
    }
}

/// Tells of the start of a handler, or of an outcome.
pub(crate) fn tell(started: &Started, outcome: Option<Outcome>, failure: Option<&Failure>) {
    let Taken { context, delivery, .. } = &*started.taken;
    ONLOOKER.with_borrow_mut(|onlooker| {
        let Some(onlooker) = onlooker else { return };
        onlooker(&Sighting {
            queue: &context.config.queue,
            message_id: delivery.properties.message_id().as_ref().map(|id| id.as_str()),
            attempt: delivery.ledger.attempt(),
            outcome,
            failure,
        });
    });
}
