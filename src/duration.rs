//! Durations as settings write them: "30s", "5m" or "1h 30m".

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration where serde needs a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) Duration);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Text)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

pub(crate) fn serialize<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    struct Visitor;

    impl serde::de::Visitor<'_> for Visitor {
        type Value = Duration;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a duration such as \"30s\", \"5m\" or \"1h 30m\"")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
            humantime::parse_duration(text)
                .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Visitor)
}

pub(crate) fn list<S: Serializer>(
    durations: &[Duration],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(durations.iter().map(|duration| Text(*duration)))
}

/// Says what is wrong with a duration that is out of bounds.
pub(crate) fn check_bounds(value: Duration, least: Duration, most: Duration) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    // humantime's years and months are averages, in which no bound is a round number.
    let text = |duration: Duration| match duration.as_secs() {
        secs if secs >= DAY && duration == Duration::from_secs(secs / DAY * DAY) => {
            format!("{}d", secs / DAY)
        }
        _ => humantime::format_duration(duration).to_string(),
    };
    Err(format!("{} is out of bounds: {} to {}", text(value), text(least), text(most)))
}

const DAY: u64 = 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_as_it_is_read() {
        for (text, millis) in [("500ms", 500), ("30s", 30_000), ("1h 30m", 5_400_000)] {
            let duration = Duration::from_millis(millis);
            let json = format!("{text:?}");
            assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), Text(duration));
            assert_eq!(serde_json::to_string(&Text(duration)).unwrap(), json);
            let listed = list(&[duration, duration], serde_json::value::Serializer).unwrap();
            assert_eq!(listed, serde_json::json!([text, text]));
        }
    }

    #[test]
    fn what_is_not_a_duration_is_quoted_with_examples() {
        for text in ["\"soon\"", "\"10\"", "10"] {
            let error = serde_json::from_str::<Text>(text).unwrap_err().to_string();
            assert!(
                error.contains(text.trim_matches('"')) && error.contains("such as \"30s\""),
                "{error}"
            );
        }
    }

    #[test]
    fn a_duration_out_of_bounds_is_named_with_its_bounds_and_each_bound_is_allowed() {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));
        let check = |value| check_bounds(value, hour, 2 * day);
        assert_eq!((check(hour), check(day), check(2 * day)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(check(hour / 2), Err("30m is out of bounds: 1h to 2d".to_owned()));
        assert_eq!(check(3 * day), Err("3d is out of bounds: 1h to 2d".to_owned()));
        assert_eq!(check(2 * day + hour), Err("2days 1h is out of bounds: 1h to 2d".to_owned()));
        let millis = Duration::from_millis;
        assert_eq!(
            check_bounds(millis(1), day, day),
            Err("1ms is out of bounds: 1d to 1d".to_owned())
        );
        assert_eq!(
            check(2 * day + millis(1)),
            Err("2days 1ms is out of bounds: 1h to 2d".to_owned())
        );
    }
}
