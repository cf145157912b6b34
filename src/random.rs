//! Randomness. In a simulated world it follows from a seed.

use std::cell::RefCell;

use rand::distr::{Distribution, StandardUniform};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

thread_local! {
    static SEEDED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// A random value: any number of its type, or a fraction from 0 to 1.
#[doc(hidden)]
pub fn random<T>() -> T
where
    StandardUniform: Distribution<T>,
{
    let seeded = SEEDED.with_borrow_mut(|seeded| seeded.as_mut().map(Rng::random));
    seeded.unwrap_or_else(rand::random)
}

/// Until the guard is dropped, all randomness of the current thread follows from this seed.
#[doc(hidden)]
pub fn seed(seed: u64) -> Seeded {
    SEEDED.set(Some(StdRng::seed_from_u64(seed)));
    Seeded(())
}

/// Makes randomness random again when it is dropped.
#[derive(Debug)]
pub struct Seeded(());

impl Drop for Seeded {
    fn drop(&mut self) {
        SEEDED.set(None);
    }
}
