//! A name in AMQP's own form.

use lapin::types::ShortString;

use crate::error::Error;

/// The name as AMQP carries it. Names from settings are checked before; those of a topology built
/// by hand are not.
///
/// # Errors
///
/// When it is too long. Cut or left empty it would be another exchange's or queue's name.
pub fn short(name: &str) -> Result<ShortString, Error> {
    ShortString::try_new(name).map_err(|_| Error::Name { name: name.to_owned() })
}
