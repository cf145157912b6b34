// says: a `Failure` is made from an `Error + Send + Sync`
// says: such as `Box<dyn Error + Send + Sync>`
use std::error::Error;

use rehop::Failure;

pub fn charge(pay: fn() -> Result<(), Box<dyn Error>>) -> Result<(), Failure> {
    pay()?;
    Ok(())
}
