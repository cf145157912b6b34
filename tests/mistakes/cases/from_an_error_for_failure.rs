// says: rehop::failure::classify::AnyError
use std::fmt;

use rehop::Failure;

#[derive(Debug)]
pub struct Declined;

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the card was declined")
    }
}

impl std::error::Error for Declined {}

impl From<Declined> for Failure {
    fn from(_: Declined) -> Self {
        Self::permanent("declined")
    }
}
