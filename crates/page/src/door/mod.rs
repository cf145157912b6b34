//! What every request has to pass before it reaches a page.

mod cookie;
mod fields;
mod guard;
mod headers;
mod hosts;
mod secret;
mod sessions;

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

pub(super) use fields::Fields;
pub(super) use guard::{FormToken, guard};
pub(super) use hosts::{Hosts, PublicUrl, bracketed};
use secret::Token;
use sessions::BrowserSessions;

/// Who may come in, and by which names.
#[derive(Debug)]
pub(super) struct Door {
    hosts: Hosts,
    /// The name of the session's cookie. It is random: a browser sends a host's cookies to all its
    /// ports, so two pages, also behind two tunnels, would overwrite each other's.
    cookie: String,
    /// A proxy with TLS serves the page.
    is_https: bool,
    sessions: Mutex<BrowserSessions>,
}

impl Door {
    /// The door, and the one-time token that opens it.
    ///
    /// # Errors
    ///
    /// When the operating system has no random numbers.
    pub(super) fn new(hosts: Hosts, is_https: bool) -> std::io::Result<(Self, String)> {
        let (invitation, name) = (Token::random()?, Token::random()?);
        let cookie = format!("rehop-ui-{}", &name.expose()[..12]);
        let exposed = invitation.expose().to_owned();
        Ok((
            Self {
                hosts,
                cookie,
                is_https,
                sessions: Mutex::new(BrowserSessions::new(invitation)),
            },
            exposed,
        ))
    }

    /// Another one-time token, for another browser. The one before is void.
    ///
    /// # Errors
    ///
    /// When the operating system has no random numbers.
    pub(super) fn invite(&self) -> std::io::Result<String> {
        let invitation = Token::random()?;
        let exposed = invitation.expose().to_owned();
        self.sessions().invite(invitation);
        Ok(exposed)
    }

    /// The cookie of a new session, if the token is valid.
    fn enter(&self, given: &str) -> std::io::Result<Option<String>> {
        let (id, form) = (Token::random()?, Token::random()?);
        let is_open = self.sessions().open(given, id.clone(), form, Instant::now());
        Ok(is_open.then(|| cookie::write(&self.cookie, &id, self.is_https)))
    }

    /// What the session's forms carry.
    fn session(&self, cookies: &str) -> Option<Token> {
        self.sessions().find(cookie::read(cookies, &self.cookie)?, Instant::now())
    }

    fn sessions(&self) -> MutexGuard<'_, BrowserSessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pages_at_one_address_have_cookies_of_different_names() {
        let [one, other] = [(); 2].map(|()| Door::new(Hosts::loopback(), false).unwrap().0);
        assert_ne!(one.cookie, other.cookie);
    }
}
