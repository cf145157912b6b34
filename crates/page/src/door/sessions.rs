//! Who may come in: the one-time token, and the sessions that it opens. Pure.

use std::time::Duration;

use super::secret::Token;
use tokio::time::Instant;

/// A session ends after this time without a request.
const IDLE: Duration = Duration::from_secs(12 * 60 * 60);
/// The number of sessions is bounded; the one that was used longest ago makes room.
const AT_MOST: usize = 16;

/// The one-time token, and the sessions that are open.
#[derive(Debug)]
pub(super) struct BrowserSessions {
    invitation: Option<Token>,
    open: Vec<BrowserSession>,
}

#[derive(Debug)]
struct BrowserSession {
    id: Token,
    form: Token,
    last_used: Instant,
}

impl BrowserSessions {
    pub(super) fn new(invitation: Token) -> Self {
        Self { invitation: Some(invitation), open: Vec::new() }
    }

    /// Replaces the one-time token, used or not.
    pub(super) fn invite(&mut self, invitation: Token) {
        self.invitation = Some(invitation);
    }

    /// Opens a session with this id, if the token is the one that is valid now. It is not valid
    /// again. `form` is what the session's forms carry.
    pub(super) fn open(&mut self, given: &str, id: Token, form: Token, now: Instant) -> bool {
        if self.invitation.take_if(|invitation| invitation.is(given)).is_none() {
            return false;
        }
        self.end_idle(now);
        if self.open.len() == AT_MOST {
            let oldest = self.open.iter().enumerate().min_by_key(|(_, session)| session.last_used);
            if let Some((index, _)) = oldest {
                self.open.remove(index);
            }
        }
        self.open.push(BrowserSession { id, form, last_used: now });
        true
    }

    /// What the forms of this session carry; `None` if there is no such session.
    pub(super) fn find(&mut self, id: &str, now: Instant) -> Option<Token> {
        self.end_idle(now);
        let session = self.open.iter_mut().find(|session| session.id.is(id))?;
        session.last_used = now;
        Some(session.form.clone())
    }

    fn end_idle(&mut self, now: Instant) {
        self.open.retain(|session| now.duration_since(session.last_used) < IDLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token::random().unwrap()
    }

    #[test]
    fn a_token_opens_one_session_and_a_wrong_one_does_not_use_it_up() {
        let (invitation, now) = (token(), Instant::now());
        let mut sessions = BrowserSessions::new(invitation.clone());
        let [first, second] = [token(), token()];
        assert!(!sessions.open("wrong", first.clone(), token(), now));
        assert!(sessions.open(invitation.expose(), first.clone(), token(), now));
        assert!(!sessions.open(invitation.expose(), second.clone(), token(), now));
        assert!(
            sessions.find(first.expose(), now).is_some()
                && sessions.find(second.expose(), now).is_none()
        );
        assert!(sessions.find("", now).is_none());
        let again = token();
        sessions.invite(again.clone());
        assert!(sessions.open(again.expose(), second.clone(), token(), now));
        assert!(sessions.find(second.expose(), now).is_some());
    }

    #[test]
    fn a_session_ends_when_it_is_not_used_for_twelve_hours() {
        let (invitation, id, now) = (token(), token(), Instant::now());
        let mut sessions = BrowserSessions::new(invitation.clone());
        assert!(sessions.open(invitation.expose(), id.clone(), token(), now));
        let almost = now + IDLE - Duration::from_secs(1);
        assert!(sessions.find(id.expose(), almost).is_some());
        assert!(sessions.find(id.expose(), almost + IDLE).is_none());
    }

    #[test]
    fn the_session_that_was_used_longest_ago_makes_room() {
        let start = Instant::now();
        let mut sessions = BrowserSessions::new(token());
        let ids: Vec<_> = (0..=AT_MOST).map(|_| token()).collect();
        for (index, id) in ids.iter().enumerate() {
            let invitation = token();
            sessions.invite(invitation.clone());
            let now = start + Duration::from_secs(index as u64);
            assert!(sessions.open(invitation.expose(), id.clone(), token(), now));
        }
        let open = |sessions: &mut BrowserSessions, id: &Token| {
            sessions.find(id.expose(), start).is_some()
        };
        assert!(!open(&mut sessions, &ids[0]) && ids[1..].iter().all(|id| open(&mut sessions, id)));
    }
}
