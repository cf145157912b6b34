//! What rehop may change of a message, and all other differences.

use std::collections::BTreeMap;

use serde_json::Value;

/// The properties that a copy does not carry as they were: `src/docs/headers.md` says so.
const PROPERTIES: [&str; 3] = ["delivery_mode", "expiration", "user_id"];

/// The headers that the broker adds to a message that came back or was dead-lettered.
const BROKERS: [&str; 9] = [
    "x-acquired-count",
    "x-death",
    "x-delivery-count",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
];

/// What differs between a message that rehop has not touched and one that it has, beyond what is
/// documented.
pub(crate) fn differences(view: &str, untouched: &Value, returned: &Value) -> Vec<String> {
    let (untouched, returned) = (fields(untouched), fields(returned));
    let mut names: Vec<_> = untouched.keys().chain(returned.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differing = names.into_iter().filter(|name| untouched.get(*name) != returned.get(*name));
    let shown =
        |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    differing
        .map(|name| {
            format!(
                "{view}, {name}: {} became {}",
                shown(untouched.get(name)),
                shown(returned.get(name))
            )
        })
        .collect()
}

/// Each property and header, and whatever else there is, by name.
fn fields(message: &Value) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    for (part, value) in message.as_object().expect("a message is an object") {
        let kept: fn(&str) -> bool = match part.as_str() {
            "headers" => is_producers,
            "properties" => |name| !PROPERTIES.contains(&name),
            _ => {
                fields.insert(part.clone(), value.clone());
                continue;
            }
        };
        let values = value.as_object().expect("headers and properties are objects");
        let values = values.iter().filter(|(name, _)| kept(name));
        fields.extend(values.map(|(name, value)| (format!("{part} {name:?}"), value.clone())));
    }
    fields
}

/// Whether neither rehop nor the broker writes this header.
pub(crate) fn is_producers(header: &str) -> bool {
    let is_rehops = header.starts_with("rehop-") || ["traceparent", "tracestate"].contains(&header);
    !is_rehops && !BROKERS.contains(&header)
}
