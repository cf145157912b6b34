//! Shows the messages of one chain, with headers and bodies, in bounded memory, and finds the chain
//! by its id or a prefix of it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lapin::BasicProperties;
use serde::Serialize;
use serde_json::Value;

use crate::format::hex;
use crate::parked::error::ParkedError;
use crate::parked::mask::{Mask, masked_headers};
use crate::parked::message::ParkedMessage;
use crate::parked::operator::{Parked, Scanned};
use crate::parked::queue_head::size;

/// How many bytes of a body are shown.
const MAX_BODY: usize = 64 * 1024;
/// How many bytes of headers and shown bodies are kept in all. As JSON values they may take eighty
/// times as much.
const MAX_BYTES: u64 = 1024 * 1024;
/// How many chains an error names at most.
const NAMED: usize = 5;

impl Parked {
    /// The messages of a chain, with headers and bodies: all are counted, and the
    /// [first](Shown::messages) are kept. `scan` is as for a list.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), and when there is no such message.
    pub async fn show(&self, chain: &str, scan: Option<u64>) -> Result<Shown, ParkedError> {
        self.show_found(ChainSearch::exact(chain), scan).await
    }

    /// The messages of the one chain that has this id or, if there is none, whose id begins with
    /// it. As [`show`](Self::show).
    ///
    /// # Errors
    ///
    /// As [`show`](Self::show), and when several chains begin so.
    pub async fn show_by_prefix(
        &self,
        prefix: &str,
        scan: Option<u64>,
    ) -> Result<Shown, ParkedError> {
        self.show_found(ChainSearch::by_prefix(prefix), scan).await
    }

    async fn show_found(
        &self,
        mut search: ChainSearch<'_>,
        scan: Option<u64>,
    ) -> Result<Shown, ParkedError> {
        let session = self.session().await?;
        let mut shown = Shown::default();
        let scanned = self
            .scan(&session, scan, &mut self.stop.clone(), |message, held| {
                let matches = search.see(&message.chain);
                if matches == Match::FirstExact {
                    shown = Shown::default();
                }
                if matches != Match::No {
                    shown.add(message, &held.delivery.properties, &held.delivery.data, &self.mask);
                }
                ControlFlow::Continue(())
            })
            .await;
        session.close().await;
        let scanned = scanned?;
        (shown.looked_at, shown.wanted) = (scanned.looked_at, scanned.wanted);
        self.found_chain(search, &scanned)?;
        Ok(shown)
    }

    /// The chain that a search has found.
    ///
    /// # Errors
    ///
    /// When there is none, or not only one. If not everything was seen, it is not known that there
    /// is none.
    pub(super) fn found_chain(
        &self,
        search: ChainSearch<'_>,
        scanned: &Scanned,
    ) -> Result<String, ParkedError> {
        let asked = search.asked().to_owned();
        match search.end() {
            Ok(Some(chain)) => Ok(chain),
            Ok(None) => {
                scanned.complete(&self.queue)?;
                Err(ParkedError::NoSuchMessage { chain: asked, looked_at: scanned.looked_at })
            }
            Err(chains) => Err(ParkedError::SeveralChains { prefix: asked, chains }),
        }
    }
}

/// The messages of a chain.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Shown {
    /// How many messages are of this chain, among those that were looked at.
    pub matched: u64,
    /// How many messages were looked at.
    pub looked_at: u64,
    /// How many were to be looked at: more than that if messages were held for half of
    /// `broker.consumer_timeout`, or if others took some.
    pub wanted: u64,
    /// The first of them: at most [`MOST`](Self::MOST), with 1 MiB of headers and shown bodies in
    /// all, but always one. Anyone can write the id of a chain into any number of messages.
    pub messages: Vec<Detail>,
    /// The size of what is kept.
    #[serde(skip)]
    bytes: u64,
}

impl Shown {
    /// At most this many messages are kept.
    pub const MOST: usize = 100;

    /// How many messages of this chain were counted but not kept.
    pub fn more(&self) -> u64 {
        self.matched - self.messages.len() as u64
    }

    /// Counts another message of the chain, and keeps it if it is one of the first.
    pub(crate) fn add(
        &mut self,
        message: ParkedMessage,
        properties: &BasicProperties,
        body: &[u8],
        mask: &Mask,
    ) {
        let size = size(properties, &body[..body.len().min(MAX_BODY)]);
        let has_room = self.messages.len() < Self::MOST && self.bytes + size <= MAX_BYTES;
        let is_next = self.more() == 0;
        self.matched += 1;
        if is_next && (has_room || self.messages.is_empty()) {
            self.bytes += size;
            self.messages.push(Detail::of(message, properties, body, mask));
        }
    }
}

/// One message with its headers and its body.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Detail {
    /// What is known of it.
    #[serde(flatten)]
    pub message: ParkedMessage,
    /// Its headers, with masked values.
    pub headers: BTreeMap<String, Value>,
    /// Its other properties, by their AMQP names.
    pub properties: BTreeMap<String, String>,
    /// Its body, with masked values.
    pub body: Body,
    /// How many bytes of the body are not shown.
    pub omitted: u64,
}

/// A body as it is shown. It comes from outside, and may hold anything: escape it for a terminal or
/// a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// JSON.
    Json(Value),
    /// UTF-8.
    Text(String),
    /// Anything else, as hexadecimal digits.
    Hex(String),
}

impl Detail {
    fn of(message: ParkedMessage, properties: &BasicProperties, body: &[u8], mask: &Mask) -> Self {
        let (body, omitted) = shown(body, mask);
        Self {
            message,
            headers: masked_headers(properties, mask),
            properties: others(properties),
            body,
            omitted,
        }
    }
}

fn shown(body: &[u8], mask: &Mask) -> (Body, u64) {
    match mask.json(body) {
        Some(masked) if body.len() <= MAX_BODY => return (Body::Json(masked), 0),
        Some(masked) => return beginning(masked.to_string().as_bytes()),
        None => {}
    }
    if body.len() <= MAX_BODY
        && let Ok(json) = serde_json::from_slice(body)
    {
        return (Body::Json(json), 0);
    }
    beginning(body)
}

/// As much of a body as is shown, and how many bytes are not.
fn beginning(body: &[u8]) -> (Body, u64) {
    let part = &body[..body.len().min(MAX_BODY)];
    let text = match std::str::from_utf8(part) {
        Ok(text) => Some(text),
        // The cut may be inside a character.
        Err(error) if error.error_len().is_none() && part.len() < body.len() => {
            std::str::from_utf8(&part[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    match text {
        Some(text) => (Body::Text(text.to_owned()), (body.len() - text.len()) as u64),
        None => (Body::Hex(hex(part)), (body.len() - part.len()) as u64),
    }
}

fn others(properties: &BasicProperties) -> BTreeMap<String, String> {
    let texts = [
        ("content_type", properties.content_type()),
        ("content_encoding", properties.content_encoding()),
        ("correlation_id", properties.correlation_id()),
        ("reply_to", properties.reply_to()),
        ("expiration", properties.expiration()),
        ("message_id", properties.message_id()),
        ("type", properties.kind()),
        ("user_id", properties.user_id()),
        ("app_id", properties.app_id()),
        ("cluster_id", properties.cluster_id()),
    ];
    let mut all: BTreeMap<_, _> = texts
        .into_iter()
        .filter_map(|(name, text)| Some((name.to_owned(), text.as_ref()?.to_string())))
        .collect();
    if let Some(priority) = properties.priority() {
        all.insert("priority".to_owned(), priority.to_string());
    }
    if let Some(timestamp) = properties.timestamp() {
        all.insert("timestamp".to_owned(), timestamp.cast_signed().to_string());
    }
    all
}

/// Finds the one chain whose id is this or, if prefixes are taken and there is none, begins with
/// it.
///
/// Only looks take prefixes. An id that is gone by now may be a prefix of another one, which nobody
/// wants to move.
#[derive(Debug)]
pub(super) struct ChainSearch<'a> {
    asked: &'a str,
    takes_prefix: bool,
    /// Whether a chain has exactly this id.
    is_exact: bool,
    /// The first chains whose ids begin with it.
    candidates: Vec<String>,
}

/// What a message is to the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// It belongs to another chain.
    No,
    /// It belongs to the chain, as far as is known by now.
    Yes,
    /// It belongs to the chain, and is the first with exactly this id: earlier matches belong to
    /// others.
    FirstExact,
}

impl<'a> ChainSearch<'a> {
    /// Finds only a chain that has exactly this id.
    pub(super) fn exact(asked: &'a str) -> Self {
        Self { asked, takes_prefix: false, is_exact: false, candidates: Vec::new() }
    }

    pub(super) fn by_prefix(asked: &'a str) -> Self {
        Self { takes_prefix: true, ..Self::exact(asked) }
    }

    pub(super) fn asked(&self) -> &str {
        self.asked
    }

    pub(super) fn see(&mut self, chain: &str) -> Match {
        if chain == self.asked {
            return match std::mem::replace(&mut self.is_exact, true) {
                true => Match::Yes,
                false => Match::FirstExact,
            };
        }
        if !self.takes_prefix
            || self.is_exact
            || self.asked.is_empty()
            || !chain.starts_with(self.asked)
        {
            return Match::No;
        }
        if self.candidates.len() <= NAMED && !self.candidates.iter().any(|known| known == chain) {
            self.candidates.push(chain.to_owned());
        }
        if self.candidates[0] == chain { Match::Yes } else { Match::No }
    }

    /// The id of the chain, if there is one.
    ///
    /// # Errors
    ///
    /// When there are several: some of their ids.
    pub(super) fn end(mut self) -> Result<Option<String>, Vec<String>> {
        if self.is_exact {
            return Ok(Some(self.asked.to_owned()));
        }
        if self.candidates.len() > 1 {
            self.candidates.truncate(NAMED);
            return Err(self.candidates);
        }
        Ok(self.candidates.pop())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parked::samples::sample;
    use rehop::settings::MaskSettings;

    fn search(prefix: &str, chains: &[&str]) -> (Result<Option<String>, Vec<String>>, Vec<Match>) {
        let mut search = ChainSearch::by_prefix(prefix);
        let matches = chains.iter().map(|chain| search.see(chain)).collect();
        (search.end(), matches)
    }

    #[test]
    fn a_chain_is_found_by_its_id_or_by_a_prefix_that_no_other_chain_has() {
        use Match::{FirstExact, No, Yes};
        let found = |id: &str| Ok(Some(id.to_owned()));
        assert_eq!(search("5f", &["a1", "5f0c", "5f0c"]), (found("5f0c"), vec![No, Yes, Yes]));
        assert_eq!(
            search("5f", &["5f0c", "5f", "5f0c", "5f"]),
            (found("5f"), vec![Yes, FirstExact, No, Yes])
        );
        let several = Err(vec!["5f0c".to_owned(), "5f1".to_owned()]);
        assert_eq!(search("5f", &["5f0c", "5f1", "5f0c"]), (several, vec![Yes, No, Yes]));
        assert_eq!(search("6", &["5f0c"]), (Ok(None), vec![No]));
        let mut exact = ChainSearch::exact("5f");
        assert_eq!(["5f0c", "5f", "5f"].map(|chain| exact.see(chain)), [No, FirstExact, Yes]);
        let mut gone = ChainSearch::exact("5f");
        assert_eq!((gone.see("5f0c"), gone.end()), (No, Ok(None)));
        assert_eq!(search("", &["5f0c", ""]), (found(""), vec![No, FirstExact]));
    }

    #[test]
    fn an_error_names_a_few_of_many_chains() {
        let chains: Vec<_> = (0..100).map(|number| format!("order-{number}")).collect();
        let chains: Vec<_> = chains.iter().map(String::as_str).collect();
        assert_eq!(search("order-", &chains).0.unwrap_err().len(), NAMED);
    }

    fn shown(bodies: impl IntoIterator<Item = Vec<u8>>) -> Shown {
        let mut shown = Shown::default();
        for body in bodies {
            shown.add(sample(), &BasicProperties::default(), &body, &Mask::nothing());
        }
        shown
    }

    #[test]
    fn the_first_messages_of_a_chain_are_kept_within_both_bounds_and_all_are_counted() {
        const LARGE: usize = 2 * MAX_BODY;
        let kept = |shown: &Shown| (shown.messages.len(), shown.more());
        assert_eq!(kept(&shown(vec![b"x".to_vec(); 100])), (100, 0));
        assert_eq!(kept(&shown(vec![b"x".to_vec(); 100_000])), (100, 99_900));
        assert_eq!(kept(&shown(vec![vec![b'x'; LARGE]; 20])), (16, 4), "64 KiB of each body");
        assert_eq!(kept(&shown([])), (0, 0));
        let sizes = [vec![LARGE; 15], vec![40 * 1024, LARGE, 1]].concat();
        let gapless = shown(sizes.into_iter().map(|size| vec![b'x'; size]));
        assert_eq!(kept(&gapless), (16, 2), "the last one would fit, but is not among the first");
    }

    #[test]
    fn one_message_is_kept_however_large_its_headers_are() {
        let mut headers = lapin::types::FieldTable::default();
        headers.insert(
            "name".into(),
            lapin::types::AMQPValue::LongString("x".repeat(2 * MAX_BYTES as usize).as_str().into()),
        );
        let (properties, mut shown) =
            (BasicProperties::default().with_headers(headers), Shown::default());
        for _ in 0..2 {
            shown.add(sample(), &properties, b"", &Mask::nothing());
        }
        assert_eq!((shown.messages.len(), shown.more()), (1, 1));
    }

    #[test]
    fn of_a_large_masked_body_the_beginning_is_shown_and_nothing_that_is_masked() {
        let mask = Mask::new(&MaskSettings::default()).unwrap();
        let body = json!({ "a": "x".repeat(2 * MAX_BODY), "password": "hunter2" }).to_string();
        let (Body::Text(text), omitted) = super::shown(body.as_bytes(), &mask) else {
            panic!("text")
        };
        assert!(text.len() == MAX_BODY && omitted > MAX_BODY as u64 && !text.contains("hunter2"));
        let whole = json!({ "a": "x", "password": "hunter2" }).to_string();
        let masked = Body::Json(json!({ "a": "x", "password": "***" }));
        assert_eq!(super::shown(whole.as_bytes(), &mask), (masked, 0));
    }

    #[test]
    fn a_body_is_shown_as_json_or_text_if_it_is_any_up_to_where_it_is_cut() {
        let shown = |body: &[u8]| super::shown(body, &Mask::nothing());
        let hex = |digits: &str| Body::Hex(digits.to_owned());
        assert_eq!(shown(b"{\"a\":1}"), (Body::Json(json!({ "a": 1 })), 0));
        assert_eq!(shown(b"a"), (Body::Text("a".to_owned()), 0));
        assert_eq!(shown(b"\xff\x0a"), (hex("ff0a"), 0));
        assert_eq!(shown(b"a\xc3"), (hex("61c3"), 0), "half a character, and nothing was cut");
        let almost = "x".repeat(MAX_BODY - 1);
        let followed_by = |end: &[u8]| shown(&[almost.as_bytes(), end].concat());
        assert_eq!(
            followed_by("\u{e9}z".as_bytes()),
            (Body::Text(almost.clone()), 3),
            "the cut is inside a character"
        );
        assert_eq!(followed_by(b"\xffzz"), (hex(&("78".repeat(MAX_BODY - 1) + "ff")), 2));
        assert_eq!(followed_by(b"\xff"), (hex(&("78".repeat(MAX_BODY - 1) + "ff")), 0));
        let text = "x".repeat(MAX_BODY - 2);
        assert_eq!(shown(format!("\"{text}\"").as_bytes()), (Body::Json(json!(text)), 0));
        assert_eq!(
            shown(format!("\"{text}\" ").as_bytes()),
            (Body::Text(format!("\"{text}\"")), 1)
        );
    }

    #[test]
    fn the_properties_that_a_message_has_are_shown() {
        assert_eq!(others(&BasicProperties::default()), BTreeMap::new());
        let properties = BasicProperties::default()
            .with_content_type("text/plain".into())
            .with_type("order".into())
            .with_priority(3)
            .with_timestamp(1_700_000_000);
        let expected = [
            ("content_type", "text/plain"),
            ("type", "order"),
            ("priority", "3"),
            ("timestamp", "1700000000"),
        ];
        assert_eq!(
            others(&properties),
            expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        );
        let before_1970 = BasicProperties::default().with_timestamp((-1_i64).cast_unsigned());
        assert_eq!(others(&before_1970)["timestamp"], "-1");
    }
}
