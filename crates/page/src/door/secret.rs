//! Random tokens, and how they are compared.

use std::fmt;

use rand::TryRngCore;
use rand::rngs::OsRng;
use rehop_operator::format::hex;

/// 256 random bits, in hexadecimal digits. `Debug` does not show them.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// # Errors
    ///
    /// When the operating system has no random numbers.
    pub(crate) fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        OsRng.try_fill_bytes(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(hex(&bytes)))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Compares in a time that does not depend on where the texts differ.
    pub(super) fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        own.len() == given.len() && own.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_equals_itself_only_and_is_not_printed() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.expose().len(), 64);
        assert!(
            one.is(one.expose())
                && !one.is(other.expose())
                && !one.is("")
                && !one.is(&one.expose()[1..])
        );
        assert_eq!(format!("{one:?}"), "Token(***)");
    }
}
