//! How AMQP's `content_type` and `content_encoding` are said in HTTP.
//!
//! Many clients put a charset into `content_encoding`: kombu, Celery and Spring's JSON converter
//! send `utf-8`, and Spring's compression adds its coding before that: `gzip, UTF-8`, or in earlier
//! versions `gzip:UTF-8`. An HTTP server would answer 415 to such a `Content-Encoding`.

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
    /// The `content_encoding`, if it says anything else than content codings.
    pub(super) other: Option<&'a str>,
}

impl<'a> Content<'a> {
    pub(super) fn of(content_type: Option<&'a str>, content_encoding: Option<&'a str>) -> Self {
        let media_type = content_type.map(Cow::Borrowed);
        let Some(encoding) = content_encoding else {
            return Self { media_type, ..Self::default() };
        };
        let parts = parts(encoding);
        let codings: Vec<_> =
            parts.iter().copied().filter(|part| Part::of(part) == Part::Coding).collect();
        let media_type = media_type.map(|media_type| {
            let charset = parts.iter().find(|part| Part::of(part) == Part::Charset);
            match charset {
                // Those with a colon would need quotes.
                Some(charset) if can_have_charset(&media_type) && !charset.contains(':') => {
                    format!("{media_type}; charset={charset}").into()
                }
                _ => media_type,
            }
        });
        Self {
            media_type,
            coding: (!codings.is_empty()).then(|| codings.join(", ")),
            other: parts
                .iter()
                .any(|part| matches!(Part::of(part), Part::Charset | Part::Unknown))
                .then_some(encoding),
        }
    }
}

/// What one part of a `content_encoding` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Coding,
    Identity,
    Charset,
    Unknown,
}

impl Part {
    fn of(part: &str) -> Self {
        if CODINGS.iter().any(|known| known.eq_ignore_ascii_case(part)) {
            Self::Coding
        } else if part.eq_ignore_ascii_case("identity") {
            Self::Identity
        } else if Encoding::for_label(part.as_bytes()).is_some() {
            Self::Charset
        } else {
            Self::Unknown
        }
    }
}

/// The parts of a list such as `gzip, UTF-8`, in HTTP's order: the coding that was applied first
/// comes first. With colons, as in `gzip:UTF-8`, it comes last; but a few charsets have a colon in
/// their names.
fn parts(encoding: &str) -> Vec<&str> {
    encoding
        .split([',', ';'])
        .map(|part| without_name(part.trim()))
        .flat_map(|part| match Part::of(part) {
            Part::Unknown => part.rsplit(':').map(str::trim).collect(),
            _ => vec![part],
        })
        .collect()
}

/// `utf-8` for `charset=utf-8`.
fn without_name(part: &str) -> &str {
    match part.split_once('=') {
        Some((name, charset)) if name.trim().eq_ignore_ascii_case("charset") => {
            charset.trim().trim_matches('"')
        }
        _ => part,
    }
}

fn can_have_charset(media_type: &str) -> bool {
    !media_type.trim().is_empty() && !names_charset(media_type)
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
        for other in ["binary", "", "gz\nip", "7bit", ":", ",", "a:b"] {
            check(Some("a/b"), other, [Some("a/b"), None, Some(other)]);
        }
        for other in ["gzip,", "gzip, aws-chunked", "charset=none; gzip"] {
            check(Some("a/b"), other, [Some("a/b"), Some("gzip"), Some(other)]);
        }
    }

    #[test]
    fn a_coding_and_a_charset_are_told_apart_as_spring_and_others_write_them() {
        for both in
            ["gzip, UTF-8", "gzip:UTF-8", "gzip;charset=UTF-8", "UTF-8 , gzip", "gzip : UTF-8"]
        {
            check(Some("a/b"), both, [Some("a/b; charset=UTF-8"), Some("gzip"), Some(both)]);
            check(Some("a/b; charset=x"), both, [Some("a/b; charset=x"), Some("gzip"), Some(both)]);
            check(None, both, [None, Some("gzip"), Some(both)]);
        }
        let old = "deflate, ISO_8859-1:1987";
        check(Some("a/b"), old, [Some("a/b"), Some("deflate"), Some(old)]);
    }

    /// Spring writes the outermost coding first, HTTP last.
    #[test]
    fn codings_with_colons_are_said_in_the_order_of_http() {
        check(None, "gzip:deflate", [None, Some("deflate, gzip"), None]);
        check(None, "deflate,gzip", [None, Some("deflate, gzip"), None]);
    }

    proptest! {
        #[test]
        fn only_registered_codings_are_said_to_be_codings(encoding in "[a-z0-9, -]{0,20}|.*") {
            let content = Content::of(None, Some(&encoding));
            let all_known = |codings: &str| codings.split(", ").all(|coding| CODINGS.contains(&&*coding.to_lowercase()));
            prop_assert!(content.coding.as_deref().is_none_or(all_known));
            let is_said = content.other.is_some() || content.coding.is_some();
            prop_assert!(is_said || encoding.to_lowercase().contains("identity"));
        }
    }
}
