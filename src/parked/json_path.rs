//! Paths into a JSON document: `customer.address[0].zip`, `items.*.price`, `**.password`. Pure.

use std::str::FromStr;

use serde_json::Value;

/// A path into a JSON document. `*` is any one field or element, and `**` any number of them. A name with other characters is written
/// in brackets and quotes: `["first name"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    Any,
    Deep,
}

impl FromStr for JsonPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            rest = rest.strip_prefix('.').filter(|_| !steps.is_empty()).unwrap_or(rest);
            let step;
            (step, rest) =
                step_of(rest).ok_or_else(|| format!("{text:?} is not a path such as customer.items[0].id"))?;
            steps.push(step);
        }
        if steps.is_empty() {
            return Err("a path must not be empty".to_owned());
        }
        Ok(Self(steps))
    }
}

fn step_of(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix("[\"") {
        let (name, rest) = rest.split_once("\"]")?;
        return Some((Step::Field(name.to_owned()), rest));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (index, rest) = rest.split_once(']')?;
        let step = if index == "*" { Step::Any } else { Step::Index(index.parse().ok()?) };
        return Some((step, rest));
    }
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let step = match name {
        "" => return None,
        "*" => Step::Any,
        "**" => Step::Deep,
        name => Step::Field(name.to_owned()),
    };
    Some((step, rest))
}

impl JsonPath {
    /// Whether a value that the path leads to passes the test.
    pub(crate) fn any(&self, document: &Value, test: &dyn Fn(&Value) -> bool) -> bool {
        any(&self.0, document, test)
    }

    /// Replaces every value that the path leads to.
    pub(crate) fn replace(&self, document: &mut Value, with: &Value) {
        replace(&self.0, document, with);
    }
}

fn any(steps: &[Step], value: &Value, test: &dyn Fn(&Value) -> bool) -> bool {
    let Some((step, rest)) = steps.split_first() else { return test(value) };
    match (step, value) {
        (Step::Field(name), Value::Object(fields)) => fields.get(name).is_some_and(|inner| any(rest, inner, test)),
        (Step::Index(index), Value::Array(items)) => items.get(*index).is_some_and(|inner| any(rest, inner, test)),
        (Step::Any, Value::Object(fields)) => fields.values().any(|inner| any(rest, inner, test)),
        (Step::Any, Value::Array(items)) => items.iter().any(|inner| any(rest, inner, test)),
        (Step::Deep, value) => {
            any(rest, value, test)
                || match value {
                    Value::Object(fields) => fields.values().any(|inner| any(steps, inner, test)),
                    Value::Array(items) => items.iter().any(|inner| any(steps, inner, test)),
                    _ => false,
                }
        }
        _ => false,
    }
}

fn replace(steps: &[Step], value: &mut Value, with: &Value) {
    let Some((step, rest)) = steps.split_first() else {
        *value = with.clone();
        return;
    };
    match (step, value) {
        (Step::Field(name), Value::Object(fields)) => {
            if let Some(inner) = fields.get_mut(name) {
                replace(rest, inner, with);
            }
        }
        (Step::Index(index), Value::Array(items)) => {
            if let Some(inner) = items.get_mut(*index) {
                replace(rest, inner, with);
            }
        }
        (Step::Any, Value::Object(fields)) => fields.values_mut().for_each(|inner| replace(rest, inner, with)),
        (Step::Any, Value::Array(items)) => items.iter_mut().for_each(|inner| replace(rest, inner, with)),
        (Step::Deep, value) => {
            match value {
                Value::Object(fields) => fields.values_mut().for_each(|inner| replace(steps, inner, with)),
                Value::Array(items) => items.iter_mut().for_each(|inner| replace(steps, inner, with)),
                _ => {}
            }
            replace(rest, value, with);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::inputs::inputs;

    #[test]
    fn a_path_leads_to_fields_elements_and_all_of_them_at_any_depth() {
        let document =
            json!({"customer": {"name": "Ada", "tags": ["a", "b"]}, "first name": 1, "items": [{"p": 1}, {"p": 2}]});
        let check = |path: &str, value: Value, found| {
            let path: JsonPath = path.parse().unwrap();
            assert_eq!(path.any(&document, &|seen| *seen == value), found, "{path:?}");
        };
        check("customer.name", json!("Ada"), true);
        check("customer.tags[1]", json!("b"), true);
        check("customer.tags[2]", json!("b"), false);
        check("[\"first name\"]", json!(1), true);
        check("items[*].p", json!(2), true);
        check("items.*.p", json!(3), false);
        check("**.p", json!(2), true);
        check("**", json!("b"), true);
        check("name", json!("Ada"), false);
    }

    #[test]
    fn what_a_path_leads_to_is_replaced_and_nothing_else() {
        let mut document = json!({"password": 1, "a": [{"password": 2, "p": 3}]});
        let path: JsonPath = "**.password".parse().unwrap();
        path.replace(&mut document, &json!("***"));
        assert_eq!(document, json!({"password": "***", "a": [{"password": "***", "p": 3}]}));
    }

    #[test]
    fn a_malformed_path_is_refused() {
        for path in ["", " ", "a..b", "a[", "a[x]", "[\"a", "a."] {
            assert!(path.parse::<JsonPath>().is_err(), "{path:?}");
        }
    }

    proptest! {
        #![proptest_config(inputs(1_000))]

        #[test]
        fn no_text_makes_parsing_panic(text in ".{0,40}") {
            let _ = text.parse::<JsonPath>();
        }
    }
}
