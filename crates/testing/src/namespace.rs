use rand::Rng as _;

/// Names that no other test uses, short and readable.
///
/// `Namespace::new("orders")` is something like `t-orders-k3f9x2`, and its queue `in` is
/// `t-orders-k3f9x2.in`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A new namespace for a test. Characters other than letters, digits and dashes become dashes,
    /// and 24 characters are kept.
    #[must_use]
    pub fn new(test: &str) -> Self {
        let readable: String = test
            .chars()
            .take(24)
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        Self { name: format!("t-{}-{}", readable.trim_matches('-'), random_suffix()) }
    }

    /// The namespace itself.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A queue's name in this namespace.
    #[must_use]
    pub fn queue(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// An exchange's name in this namespace.
    #[must_use]
    pub fn exchange(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }
}

/// Six characters, enough to keep two runs on one broker apart.
pub(super) fn random_suffix() -> String {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut random = rand::rng();
    (0..6).map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::Namespace;

    #[test]
    fn a_namespace_is_readable_and_unlike_any_other() {
        let one = Namespace::new("Orders are handled!");
        let other = Namespace::new("Orders are handled!");
        assert!(one.name().starts_with("t-orders-are-handled-"), "{}", one.name());
        assert_ne!(one, other);
        assert_eq!(one.queue("in"), format!("{}.in", one.name()));
    }
}
