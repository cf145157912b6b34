//! A secret in the settings.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// A password, or a URL that may contain one. It is never printed, and its memory is cleared when
/// it is dropped.
///
/// ```
/// use rehop::settings::Secret;
/// let password = Secret::from("hunter2");
/// assert_eq!(password.expose(), "hunter2");
/// assert_eq!(format!("{password:?}"), "Secret(***)");
/// ```
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// The secret itself.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self(secret.into())
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self(secret.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}
