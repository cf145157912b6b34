// says: a `Failure` is made from an `Error + Send + Sync`
use rehop::Failure;

pub struct Declined;

pub fn charge(pay: fn() -> Result<(), Declined>) -> Result<(), Failure> {
    pay()?;
    Ok(())
}
