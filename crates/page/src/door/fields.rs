//! The fields of an address or a form. Pure.

/// The fields of an address or a form, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl Fields {
    /// The field's value without spaces around it; `None` if it is missing or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// The field's value as it was sent.
    pub(crate) fn exact(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_field_is_a_missing_one() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields = Fields(vec![field("a", " 1 "), field("b", "  "), field("a", "2")]);
        assert_eq!((fields.get("a"), fields.get("b"), fields.get("c")), (Some("1"), None, None));
        assert_eq!(
            (fields.exact("a"), fields.exact("b"), fields.exact("c")),
            (Some(" 1 "), Some("  "), None)
        );
    }
}
