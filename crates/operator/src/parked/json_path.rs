//! Paths into a JSON document: `customer.address[0].zip`, `items.*.price`, `**.password`. Pure.

use std::str::FromStr;

use serde_json::Value;

/// A path into a JSON document. `*` is any one field or element, and `**` any number of them. A
/// name with other characters is written in brackets and quotes: `["first name"]`.
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
            (step, rest) = step_of(rest)
                .ok_or_else(|| format!("{text:?} is not a path such as customer.items[0].id"))?;
            steps.push(step);
        }
        if steps.is_empty() {
            return Err("a path must not be empty".to_owned());
        }
        Ok(Self::new(steps))
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

/// Where a value is in the one that contains it.
#[derive(Clone, Copy)]
enum PathElement<'a> {
    Field(&'a str),
    Element(usize),
}

/// All ways through a document are followed at once. With several `**` there can be too many to
/// follow one by one.
///
/// `reached` says of each step whether it may come next, and of the end whether the path leads to
/// this value.
impl JsonPath {
    fn new(mut steps: Vec<Step>) -> Self {
        steps.dedup_by(|step, before| matches!((step, before), (Step::Deep, Step::Deep)));
        Self(steps)
    }

    /// Whether a value that the path leads to passes the test.
    pub(crate) fn any(&self, document: &Value, test: &dyn Fn(&Value) -> bool) -> bool {
        self.any_from(&self.start(), document, test)
    }

    /// Replaces every value that the path leads to.
    pub(crate) fn replace(&self, document: &mut Value, with: &Value) {
        self.replace_from(&self.start(), document, with);
    }

    fn any_from(&self, reached: &[bool], value: &Value, test: &dyn Fn(&Value) -> bool) -> bool {
        if self.is_end(reached) && test(value) {
            return true;
        }
        let any = |element: PathElement<'_>, inner: &Value| {
            self.inside(reached, element)
                .is_some_and(|reached| self.any_from(&reached, inner, test))
        };
        match value {
            Value::Object(fields) => {
                fields.iter().any(|(name, inner)| any(PathElement::Field(name), inner))
            }
            Value::Array(items) => items
                .iter()
                .enumerate()
                .any(|(index, inner)| any(PathElement::Element(index), inner)),
            _ => false,
        }
    }

    fn replace_from(&self, reached: &[bool], value: &mut Value, with: &Value) {
        if self.is_end(reached) {
            *value = with.clone();
            return;
        }
        let replace = |element: PathElement<'_>, inner: &mut Value| {
            if let Some(reached) = self.inside(reached, element) {
                self.replace_from(&reached, inner, with);
            }
        };
        match value {
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(name, inner)| replace(PathElement::Field(name), inner))
            }
            Value::Array(items) => {
                items
                    .iter_mut()
                    .enumerate()
                    .for_each(|(index, inner)| replace(PathElement::Element(index), inner));
            }
            _ => {}
        }
    }

    fn start(&self) -> Vec<bool> {
        let mut reached = vec![false; self.0.len() + 1];
        self.reach(&mut reached, 0);
        reached
    }

    /// `**` may also stand for nothing, and no other `**` follows it.
    fn reach(&self, reached: &mut [bool], step: usize) {
        reached[step] = true;
        if self.0.get(step) == Some(&Step::Deep) {
            reached[step + 1] = true;
        }
    }

    fn is_end(&self, reached: &[bool]) -> bool {
        reached[self.0.len()]
    }

    /// What is reached at a value inside; `None` if nothing is.
    fn inside(&self, reached: &[bool], element: PathElement<'_>) -> Option<Vec<bool>> {
        let mut inner = vec![false; reached.len()];
        for (number, step) in self.0.iter().enumerate().filter(|(number, _)| reached[*number]) {
            match (step, element) {
                (Step::Deep, _) => self.reach(&mut inner, number),
                (Step::Any, _) => self.reach(&mut inner, number + 1),
                (Step::Field(wanted), PathElement::Field(name)) if wanted == name => {
                    self.reach(&mut inner, number + 1)
                }
                (Step::Index(wanted), PathElement::Element(index)) if *wanted == index => {
                    self.reach(&mut inner, number + 1)
                }
                (Step::Field(_) | Step::Index(_), _) => {}
            }
        }
        inner.contains(&true).then_some(inner)
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
        let document = json!({"customer": {"name": "Ada", "tags": ["a", "b"]}, "first name": 1, "items": [{"p": 1}, {"p": 2}]});
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
        check("customer.*", json!("Ada"), true);
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
        let check = |path: &str, replaced: serde_json::Value| {
            let mut document = json!({"list": [1, 2], "table": {"a": 1, "b": 2}});
            path.parse::<JsonPath>().unwrap().replace(&mut document, &json!(0));
            assert_eq!(document, replaced, "{path}");
        };
        check("list[1]", json!({"list": [1, 0], "table": {"a": 1, "b": 2}}));
        check("list[2]", json!({"list": [1, 2], "table": {"a": 1, "b": 2}}));
        check("list[*]", json!({"list": [0, 0], "table": {"a": 1, "b": 2}}));
        check("table.*", json!({"list": [1, 2], "table": {"a": 0, "b": 0}}));
    }

    /// There are nearly a trillion ways to place the eight `**`.
    #[test]
    fn a_path_with_many_wildcards_is_followed_quickly_through_a_deep_document() {
        let mut document = (0..120).fold(json!(0), |inner, _| json!({ "a": inner }));
        let path: JsonPath = "**.a.**.a.**.a.**.a.**.a.**.a.**.a.**.b".parse().unwrap();
        assert!(!path.any(&document, &|_| true));
        let before = document.clone();
        path.replace(&mut document, &json!("***"));
        assert_eq!(document, before);
        let adjacent: JsonPath = "**.**.**.**.**.**.**.**".parse().unwrap();
        assert_eq!(adjacent, "**".parse::<JsonPath>().unwrap());
        assert!(adjacent.any(&document, &|value| *value == json!(0)));
    }

    /// What a path means, step by step.
    fn naive_any(steps: &[Step], value: &Value, test: &dyn Fn(&Value) -> bool) -> bool {
        let Some((step, rest)) = steps.split_first() else { return test(value) };
        match (step, value) {
            (Step::Field(name), Value::Object(fields)) => {
                fields.get(name).is_some_and(|inner| naive_any(rest, inner, test))
            }
            (Step::Index(index), Value::Array(items)) => {
                items.get(*index).is_some_and(|inner| naive_any(rest, inner, test))
            }
            (Step::Any, Value::Object(fields)) => {
                fields.values().any(|inner| naive_any(rest, inner, test))
            }
            (Step::Any, Value::Array(items)) => {
                items.iter().any(|inner| naive_any(rest, inner, test))
            }
            (Step::Deep, value) => {
                naive_any(rest, value, test)
                    || match value {
                        Value::Object(fields) => {
                            fields.values().any(|inner| naive_any(steps, inner, test))
                        }
                        Value::Array(items) => {
                            items.iter().any(|inner| naive_any(steps, inner, test))
                        }
                        _ => false,
                    }
            }
            _ => false,
        }
    }

    fn naive_replace(steps: &[Step], value: &mut Value, with: &Value) {
        let Some((step, rest)) = steps.split_first() else {
            *value = with.clone();
            return;
        };
        match (step, value) {
            (Step::Field(name), Value::Object(fields)) => {
                if let Some(inner) = fields.get_mut(name) {
                    naive_replace(rest, inner, with);
                }
            }
            (Step::Index(index), Value::Array(items)) => {
                if let Some(inner) = items.get_mut(*index) {
                    naive_replace(rest, inner, with);
                }
            }
            (Step::Any, Value::Object(fields)) => {
                fields.values_mut().for_each(|inner| naive_replace(rest, inner, with))
            }
            (Step::Any, Value::Array(items)) => {
                items.iter_mut().for_each(|inner| naive_replace(rest, inner, with))
            }
            (Step::Deep, value) => {
                match value {
                    Value::Object(fields) => {
                        fields.values_mut().for_each(|inner| naive_replace(steps, inner, with));
                    }
                    Value::Array(items) => {
                        items.iter_mut().for_each(|inner| naive_replace(steps, inner, with))
                    }
                    _ => {}
                }
                naive_replace(rest, value, with);
            }
            _ => {}
        }
    }

    fn documents() -> impl Strategy<Value = Value> {
        (0..3u8).prop_map(Value::from).prop_recursive(5, 32, 3, |inner| {
            let fields = prop::collection::btree_map("[ab]", inner.clone(), 0..3);
            prop_oneof![
                prop::collection::vec(inner, 0..3).prop_map(Value::Array),
                fields.prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let field = |name: &str| Step::Field(name.to_owned());
        let step = vec![
            field("a"),
            field("b"),
            Step::Index(0),
            Step::Index(1),
            Step::Any,
            Step::Deep,
            Step::Deep,
        ];
        prop::collection::vec(prop::sample::select(step), 1..6)
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

        #[test]
        fn a_path_leads_where_its_steps_lead_one_by_one(mut document in documents(), steps in steps()) {
            let path = JsonPath::new(steps.clone());
            for leaf in (0..3u8).map(Value::from) {
                let is_leaf = |value: &Value| *value == leaf;
                prop_assert_eq!(path.any(&document, &is_leaf), naive_any(&steps, &document, &is_leaf));
            }
            let mut expected = document.clone();
            naive_replace(&steps, &mut expected, &json!("***"));
            path.replace(&mut document, &json!("***"));
            prop_assert_eq!(document, expected);
        }
    }
}
