//! The management API: one client, which only reads.

mod http;
pub mod stats;
pub(crate) mod unlisted;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::management::http::{client, credentials, describe, shown};
use rehop::Settings;
use rehop::internals::uris;
use rehop::settings::BrokerSettings;

/// The management API of one broker, as one user.
pub struct Api {
    client: Client,
    url: Url,
    user: String,
    password: String,
    /// The user of the AMQP connection, who may be another one.
    pub amqp_user: String,
    pub vhost: String,
    /// Host and port, the only parts of the URL that may be shown.
    shown: String,
}

/// The answer that the API gave in place of what was asked for: a text that names no credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    problem: String,
    /// Whether only this question has no answer. Otherwise no other would have one either.
    is_of_one: bool,
}

impl Refusal {
    /// Notes that this alone could not be seen.
    ///
    /// # Errors
    ///
    /// When nothing else could be seen either.
    pub(crate) fn noted(self, what: &str, unseen: &mut Vec<String>) -> Result<(), String> {
        let is_of_one = self.is_of_one;
        let text = self.of(what);
        match is_of_one {
            true => {
                unseen.push(text);
                Ok(())
            }
            false => Err(text),
        }
    }

    /// What could not be seen, and why.
    pub fn of(self, what: &str) -> String {
        format!("{what}: {}", self.problem)
    }
}

/// What is encoded in a part of a path: the API answers 400 to brackets, for instance.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Api {
    /// The API that the settings name; `None` if they name none.
    ///
    /// # Errors
    ///
    /// When its URL or its certificates cannot be used. The text names no credentials.
    pub fn of(settings: &Settings) -> Option<Result<Self, String>> {
        let url = settings.broker.management_url.as_ref()?;
        Some(Self::new(url.expose(), &settings.broker))
    }

    fn new(url: &str, broker: &BrokerSettings) -> Result<Self, String> {
        let mut url = Url::parse(url)
            .map_err(|error| format!("broker.management_url is not a URL: {error}"))?;
        let amqp =
            uris(broker).ok().and_then(|mut uris| (!uris.is_empty()).then(|| uris.swap_remove(0)));
        let amqp = amqp.ok_or("broker.url cannot be used")?;
        let (user, password) = credentials(&url, &amqp, broker)?;
        let shown = shown(&url);
        // The credentials go into a header, and not into errors, which quote the URL.
        let stripped = url.set_username("").and_then(|()| url.set_password(None));
        stripped.map_err(|()| "broker.management_url has no host".to_owned())?;
        if cfg!(not(any(feature = "tls-ring", feature = "tls-aws-lc"))) {
            return Err(
                "its HTTP client needs rehop's feature `tls-ring` or `tls-aws-lc`".to_owned()
            );
        }
        let client = client(&url, broker)?;
        let amqp_user = amqp.authority.userinfo.username;
        Ok(Self { client, url, user, password, amqp_user, vhost: amqp.vhost, shown })
    }

    /// What is at this path below `/api`; `None` if it does not exist.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Option<T>, Refusal> {
        // They are left out of a path, however they are encoded.
        if let Some(name) = path.iter().find(|name| matches!(**name, "." | "..")) {
            let problem = format!("no address of the management API can have the name {name:?}");
            return Err(Refusal { problem, is_of_one: true });
        }
        self.fetch(self.address(path)).await
    }

    pub fn address(&self, path: &[&str]) -> Url {
        let mut url = self.url.clone();
        let mut whole = format!("{}/api", url.path().trim_end_matches('/'));
        for part in path {
            whole.push('/');
            whole.extend(utf8_percent_encode(part, IN_PATH));
        }
        url.set_path(&whole);
        url
    }

    /// `None` if it does not exist.
    pub async fn fetch<T: DeserializeOwned>(&self, url: Url) -> Result<Option<T>, Refusal> {
        let refusal = |problem: String, is_of_one| Refusal {
            problem: format!("the management API at {}: {problem}", self.shown),
            is_of_one,
        };
        let failed = |problem: String| refusal(problem, false);
        let send =
            || self.client.get(url.clone()).basic_auth(&self.user, Some(&self.password)).send();
        let answer = match send().await {
            // The API may close a connection that was kept open, just as the request is sent.
            Err(error) if !error.is_timeout() && !error.is_connect() => send().await,
            other => other,
        };
        let answer = answer.map_err(|error| failed(describe(&error)))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| failed(describe(&error)))?;
        match status {
            StatusCode::NOT_FOUND if is_hidden(&body) => Err(failed(format!(
                "virtual host {:?} does not exist, or user {:?} may not see it; give the user permissions there",
                self.vhost, self.user
            ))),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(failed(unauthorised(&self.user, &body)))
            }
            status if !status.is_success() => Err(refusal(format!("it answered {status}"), true)),
            _ => parsed(&body).map(Some).map_err(|_| {
                refusal("its answer is not understood; is this RabbitMQ?".to_owned(), true)
            }),
        }
    }
}

/// Of a queue without a majority, 4.0 and 4.3 name some keys twice. The last one counts.
fn parsed<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice::<serde_json::Value>(body).and_then(T::deserialize)
}

/// Whether an answer 404 is about the whole virtual host. 4.3 gives it to a user without permissions
/// there, where 3.10 and 4.0 answer 401. Of an object that does not exist it says `Object Not
/// Found`.
fn is_hidden(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Body {
        error: String,
    }
    serde_json::from_slice::<Body>(body).is_ok_and(|body| body.error == "not_found")
}

/// A wrong password, a missing tag and missing permissions have the same status, and only the reason
/// in the body tells them apart (3.10, 4.0 and 4.3).
fn unauthorised(user: &str, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Body {
        reason: String,
    }
    let reason = serde_json::from_slice::<Body>(body).map(|body| body.reason).unwrap_or_default();
    let tags = [
        ("Not monitor", "monitoring"),
        ("Not administrator", "administrator"),
        ("Not management", "management"),
        // Limits of other users (4.3).
        ("User not authorised to access object", "monitoring"),
    ];
    match tags.iter().find(|(said, _)| reason.starts_with(said)) {
        Some((_, tag)) => format!("user {user:?} may not ask for this; give it the tag `{tag}`"),
        None if reason == "User not authorised to access virtual host" => {
            format!("user {user:?} may not see the virtual host; give the user permissions there")
        }
        None => format!("it refused user {user:?}; check the user and the password"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use rehop::settings::Secret;

    fn api(url: &str, change: impl FnOnce(&mut BrokerSettings)) -> Result<Api, String> {
        let mut broker = BrokerSettings::default();
        (broker.url, broker.timeout) =
            (Secret::from("amqp://amqp:secret@host/a%2fb"), Duration::from_secs(1));
        change(&mut broker);
        Api::new(url, &broker)
    }

    #[test]
    fn user_and_password_are_those_of_the_amqp_connection_unless_the_url_has_its_own() {
        let of = |url: &str| {
            let api = api(url, |_| {}).unwrap_or_else(|problem| panic!("{problem}"));
            (api.user, api.password, api.shown)
        };
        let owned = |user: &str, password: &str, shown: &str| {
            (user.to_owned(), password.to_owned(), shown.to_owned())
        };
        assert_eq!(of("http://rabbit:15672"), owned("amqp", "secret", "rabbit:15672"));
        assert_eq!(of("http://us%40er:p%2Fw@rabbit"), owned("us@er", "p/w", "rabbit:80"));
        let other = api("http://rabbit", |broker| broker.password = Some(Secret::from("other")))
            .map(|api| api.password);
        assert_eq!(other.ok().as_deref(), Some("other"));
    }

    #[test]
    fn of_a_key_that_is_named_twice_the_last_one_counts() {
        #[derive(Deserialize)]
        struct Seen {
            state: String,
        }
        let seen: Seen = parsed(br#"{"state":"running","state":"minority"}"#).unwrap();
        assert_eq!(seen.state, "minority");
    }

    #[test]
    fn names_are_encoded_and_the_address_has_no_credentials() {
        let api = api("http://user:secret@rabbit:15672/behind/", |_| {})
            .unwrap_or_else(|problem| panic!("{problem}"));
        let url = api.address(&["queues", &api.vhost, "or/ders?"]);
        assert_eq!(url.as_str(), "http://rabbit:15672/behind/api/queues/a%2Fb/or%2Fders%3F");
        for (name, encoded) in [
            ("x[2", "x%5B2"),
            ("a|b", "a%7Cb"),
            ("a^b", "a%5Eb"),
            ("a%2Fb \u{fc}", "a%252Fb%20%C3%BC"),
            ("...", "..."),
            ("orders.v2-a_b~c", "orders.v2-a_b~c"),
        ] {
            let url = api.address(&["queues", name]);
            let expected = format!("http://rabbit:15672/behind/api/queues/{encoded}");
            assert_eq!(url.as_str(), expected, "{name:?}");
        }
    }

    #[tokio::test]
    async fn a_name_that_no_address_can_have_is_refused_without_a_question() {
        let api = api("http://rabbit", |_| {}).unwrap_or_else(|problem| panic!("{problem}"));
        for name in [".", ".."] {
            let refused = api.get::<serde_json::Value>(&["queues", "a", name]).await.unwrap_err();
            assert!(refused.is_of_one && refused.of("a queue").contains("no address"), "{name}");
        }
    }

    #[test]
    fn a_virtual_host_that_is_not_seen_is_told_from_an_object_that_does_not_exist() {
        assert!(is_hidden(br#"{"error":"not_found","reason":"Not Found"}"#));
        assert!(!is_hidden(br#"{"error":"Object Not Found","reason":"Not Found"}"#));
        assert!(!is_hidden(b"") && !is_hidden(b"<html>"));
    }

    #[test]
    fn a_wrong_password_and_a_missing_tag_are_told_apart() {
        for (reason, says) in [
            ("Not monitor user", "tag `monitoring`"),
            ("Not administrator user", "tag `administrator`"),
            ("Not management user", "tag `management`"),
            ("User not authorised to access object", "tag `monitoring`"),
            ("User not authorised to access virtual host", "give the user permissions there"),
            ("Login failed", "check the user and the password"),
            ("Not_Authorized", "check the user and the password"),
        ] {
            let said = unauthorised(
                "u",
                format!(r#"{{"error":"not_authorised","reason":"{reason}"}}"#).as_bytes(),
            );
            assert!(said.contains(says), "{reason}: {said}");
        }
        assert!(unauthorised("u", b"<html>").contains("check the user"));
    }
}
