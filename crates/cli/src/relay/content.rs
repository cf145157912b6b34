//! How AMQP's `content_type` and `content_encoding` are said in HTTP.
//!
//! Many clients put a charset into `content_encoding`: kombu, Celery and Spring's JSON converter
//! send `utf-8`. An HTTP server would answer 415 to such a `Content-Encoding`.

use std::borrow::Cow;

use encoding_rs::Encoding;

/// The content codings of IANA's registry, without `identity`, which says nothing.
const CODINGS: [&str; 12] = [
    "aes128gcm",
    "br",
    "compress",
    "dcb",
    "dcz",
    "deflate",
    "exi",
    "gzip",
    "pack200-gzip",
    "x-compress",
    "x-gzip",
    "zstd",
];

/// The values of HTTP's headers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content<'a> {
    /// For `Content-Type`.
    pub(super) media_type: Option<Cow<'a, str>>,
    /// For `Content-Encoding`.
    pub(super) coding: Option<String>,
    /// A `content_encoding` that is no content coding.
    pub(super) other: Option<&'a str>,
}

impl<'a> Content<'a> {
    pub(super) fn of(content_type: Option<&'a str>, content_encoding: Option<&'a str>) -> Self {
        let media_type = content_type.map(Cow::Borrowed);
        let Some(encoding) = content_encoding else {
            return Self { media_type, ..Self::default() };
        };
        if let Some(codings) = codings(encoding) {
            let coding = Some(codings.join(", ")).filter(|codings| !codings.is_empty());
            return Self { media_type, coding, other: None };
        }
        let media_type = media_type.map(|media_type| {
            let can_have = !media_type.trim().is_empty() && !names_charset(&media_type);
            if can_have && is_charset(encoding) {
                format!("{media_type}; charset={}", encoding.trim()).into()
            } else {
                media_type
            }
        });
        Self { media_type, coding: None, other: Some(encoding) }
    }
}

/// The codings of a list such as `deflate, gzip`, but for `identity`; or `None` if one of them is
/// not a content coding.
fn codings(encoding: &str) -> Option<Vec<&str>> {
    let mut codings = Vec::new();
    for coding in encoding.split(',').map(str::trim) {
        if CODINGS.iter().any(|known| known.eq_ignore_ascii_case(coding)) {
            codings.push(coding);
        } else if !coding.eq_ignore_ascii_case("identity") {
            return None;
        }
    }
    Some(codings)
}

/// Whether it is the label of a charset, and can stand in a parameter without quotes, as all but a
/// few old labels with colons can.
fn is_charset(encoding: &str) -> bool {
    !encoding.contains(':') && Encoding::for_label(encoding.as_bytes()).is_some()
}

fn names_charset(media_type: &str) -> bool {
    media_type.split(';').skip(1).any(|parameter| {
        let name = parameter.split('=').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("charset")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(content_type: Option<&str>, content_encoding: &str, expected: [Option<&str>; 3]) {
        let content = Content::of(content_type, Some(content_encoding));
        let found = [content.media_type.as_deref(), content.coding.as_deref(), content.other];
        assert_eq!(found, expected, "{content_type:?}, {content_encoding:?}");
    }

    #[test]
    fn a_content_coding_stays_one_and_identity_is_left_out() {
        check(None, "gzip", [None, Some("gzip"), None]);
        check(Some("text/csv"), "Deflate , GZIP", [Some("text/csv"), Some("Deflate, GZIP"), None]);
        check(None, "identity", [None, None, None]);
        check(None, "identity,br", [None, Some("br"), None]);
        assert_eq!(
            Content::of(Some("a/b"), None),
            Content { media_type: Some("a/b".into()), ..Content::default() }
        );
    }

    #[test]
    fn a_charset_becomes_a_parameter_of_the_content_type_unless_that_has_one() {
        let json = "application/json";
        check(Some(json), "utf-8", [Some("application/json; charset=utf-8"), None, Some("utf-8")]);
        check(
            Some(json),
            " Latin1 ",
            [Some("application/json; charset=Latin1"), None, Some(" Latin1 ")],
        );
        let stated = "application/json; Charset = \"utf-16\"";
        check(Some(stated), "utf-8", [Some(stated), None, Some("utf-8")]);
        check(
            Some("a/charset; b=c"),
            "utf-8",
            [Some("a/charset; b=c; charset=utf-8"), None, Some("utf-8")],
        );
        for media_type in [None, Some(""), Some(" ")] {
            check(media_type, "utf-8", [media_type, None, Some("utf-8")]);
        }
        check(Some(json), "ISO_8859-1:1987", [Some(json), None, Some("ISO_8859-1:1987")]);
    }

    #[test]
    fn what_is_neither_a_coding_nor_a_charset_changes_nothing_else() {
        for other in ["binary", "", "gzip, utf-8", "gzip,", "gz\nip", "7bit"] {
            check(Some("a/b"), other, [Some("a/b"), None, Some(other)]);
        }
    }

    proptest! {
        #[test]
        fn only_registered_codings_are_said_to_be_codings(encoding in "[a-z0-9, -]{0,20}|.*") {
            let content = Content::of(None, Some(&encoding));
            let all_known = |codings: &str| codings.split(", ").all(|coding| CODINGS.contains(&&*coding.to_lowercase()));
            prop_assert!(content.coding.as_deref().is_none_or(all_known));
            prop_assert!(content.coding.is_none() || content.other.is_none());
        }
    }
}
