//! Characters that reorder or hide what is around them: a page shows them as what they are, and a
//! form sends them back unchanged. Pure.

use std::fmt::Write;

use askama::filters::Safe;
use serde_json::Value;

use rehop_operator::format::{is_unsafe, lines};

/// A whole page. Its templates have no such characters, so all of them come from outside.
pub(super) fn page(html: String) -> String {
    let is_plain = |c| !is_unsafe(c) || matches!(c, '\n' | '\t');
    if html.chars().all(is_plain) { html } else { lines(&html) }
}

/// Texts that a script puts onto a page.
pub(super) fn texts(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(lines(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(texts).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, texts(value))).collect())
        }
        other => other,
    }
}

/// The value of a form's field, as HTML that stands for exactly this text.
pub(super) fn exact(text: &str) -> Safe<String> {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '<' | '>' | '&' | '"' | '\'') || (is_unsafe(c) && c != '\n') {
            // A string takes all that is written to it.
            let _ = write!(html, "&#{};", u32::from(c));
        } else {
            html.push(c);
        }
    }
    Safe(html)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_shows_what_would_reorder_it_and_a_form_keeps_it() {
        assert_eq!(page("<p>a\n\tb ü</p>".to_owned()), "<p>a\n\tb ü</p>");
        assert_eq!(page("<p>a\u{202e}b\u{0}</p>".to_owned()), "<p>a\\u{202e}b\\u{0}</p>");
        assert_eq!(exact("a<\"\u{202e}\r\n\tü").0, "a&#60;&#34;&#8238;&#13;\n&#9;ü");
        let seen = json!({ "a": ["b\u{2066}", 1], "c": null });
        assert_eq!(texts(seen), json!({ "a": ["b\\u{2066}", 1], "c": null }));
    }
}
