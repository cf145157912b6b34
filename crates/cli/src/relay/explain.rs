//! What the body of an answer says about a failure, within bounds.
//!
//! It becomes part of the error, which is stored with the message, logged, and in spans.

use rehop::internals::cut;
use rehop_operator::parked::Mask;
use serde_json::Value;

/// How much of a problem's `title` and `detail` is said, in bytes.
const MAX_TITLE: usize = 120;
const MAX_DETAIL: usize = 400;

/// What is said of bodies.
pub(super) struct Explanations {
    pub(super) mask: Mask,
    /// How many bytes are said of a body that is no problem of RFC 9457.
    pub(super) other: usize,
}

impl Explanations {
    /// Whether anything might be said of a body of this type.
    pub(super) fn wants(&self, content_type: &str) -> bool {
        self.other > 0 || is_problem(content_type)
    }

    /// What is said of a body.
    pub(super) fn of(&self, content_type: &str, body: &[u8]) -> Option<String> {
        if is_problem(content_type)
            && let Some(problem) = problem(body)
        {
            return Some(problem);
        }
        let masked = self.mask.json(body).map(|value| value.to_string());
        let text = match &masked {
            Some(text) => text,
            None => std::str::from_utf8(body)
                .or_else(|error| {
                    // What was cut off may have ended within a character.
                    let is_cut = error.error_len().is_none();
                    if is_cut {
                        std::str::from_utf8(&body[..error.valid_up_to()])
                    } else {
                        Err(error)
                    }
                })
                .ok()?,
        };
        within(text, self.other)
    }
}

fn is_problem(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/problem+json")
}

/// The title and the detail of a problem. <https://www.rfc-editor.org/rfc/rfc9457>
fn problem(body: &[u8]) -> Option<String> {
    let problem: Value = serde_json::from_slice(body).ok()?;
    let member = |name: &str, max| within(problem.get(name)?.as_str()?, max);
    let members = [member("title", MAX_TITLE), member("detail", MAX_DETAIL)];
    let said: Vec<_> = members.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(": "))
}

/// The beginning of a text, on one line and without control characters.
fn within(text: &str, max: usize) -> Option<String> {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let clean: String = text.chars().take(max.saturating_mul(4)).map(printable).collect();
    let mut line = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > max {
        line.truncate(cut(&line, max).len());
        line.push('…');
    }
    (max > 0 && !line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rehop::settings::MaskSettings;

    use super::*;

    const PROBLEM: &str = "Application/Problem+JSON; charset=utf-8";

    fn said(other: usize, content_type: &str, body: &[u8]) -> Option<String> {
        let mask = Mask::new(&MaskSettings::default()).unwrap();
        Explanations { mask, other }.of(content_type, body)
    }

    #[test]
    fn of_a_problem_title_and_detail_are_said_and_nothing_else() {
        let said = |body: &str| said(0, PROBLEM, body.as_bytes());
        let both = r#"{"title": "Sold\nout", "detail": "item 7", "status": 422, "card": "4111"}"#;
        assert_eq!(said(both).as_deref(), Some("Sold out: item 7"));
        assert_eq!(said(r#"{"title": "Sold out", "detail": 7}"#).as_deref(), Some("Sold out"));
        assert_eq!(said(r#"{"detail": "item 7"}"#).as_deref(), Some("item 7"));
        for nothing in ["{}", r#"{"title": " "}"#, "[]", "{\"title\"", "title", ""] {
            assert_eq!(said(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn other_bodies_are_said_only_if_that_is_asked_for() {
        for body in [r#"{"title": "x"}"#, "x"] {
            assert_eq!(said(0, "application/json", body.as_bytes()), None);
            assert_eq!(said(99, "application/json", body.as_bytes()).as_deref(), Some(body));
        }
        assert_eq!(said(9, "text/html", b"<p>Sold\r\n out</p>").as_deref(), Some("<p>Sold o…"));
        assert_eq!(said(9, "image/png", b"\x89PNG\xff\x00"), None);
        assert_eq!(said(9, "text/plain", b"cut \xc3").as_deref(), Some("cut"));
    }

    #[test]
    fn what_the_settings_mask_in_bodies_is_masked_here_too() {
        let masked = said(99, "application/json", br#"{"a": {"token": "hunter2"}}"#);
        assert_eq!(masked.as_deref(), Some(r#"{"a":{"token":"***"}}"#));
        let cut = said(99, "application/json", br#"{"a": {"token": "hunt"#);
        assert_eq!(cut.as_deref(), Some(r#""***""#));
    }

    proptest! {
        #[test]
        fn what_is_said_is_bounded_and_on_one_line(text in ".{0,300}", max in 0..200_usize) {
            if let Some(said) = within(&text, max) {
                prop_assert!(said.len() <= max + '…'.len_utf8());
                prop_assert!(!said.contains(char::is_control));
            }
        }
    }
}
