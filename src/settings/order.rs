//! Which messages of a queue are kept in order.

use serde::{Deserialize, Serialize};

/// Which messages of a queue are handled one after the other, in the order of the queue: the
/// setting `consume.order`.
///
/// Order needs `retry.strategy = "in-process"`, because a message that waits anywhere else is
/// overtaken. In settings `"none"`, `"queue"`, `"routing-key"` or `{ header = "customer" }`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Order {
    /// None: messages are handled side by side, and others overtake one that waits.
    #[default]
    None,
    /// All messages: one is handled at a time, and those behind it wait while it does.
    Queue,
    /// Messages with the same routing key.
    RoutingKey,
    /// Messages with the same value of this header. Those without it, or with a value that is
    /// neither text nor a number nor a boolean, are one group.
    Header(String),
}

impl Order {
    /// Whether messages are kept in order at all: `false` only for [`None`](Self::None), the
    /// default.
    pub fn is_kept(&self) -> bool {
        *self != Self::None
    }
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn an_order_is_a_word_or_the_name_of_a_header() {
        for (json, order) in [
            (r#""none""#, Order::None),
            (r#""queue""#, Order::Queue),
            (r#""routing-key""#, Order::RoutingKey),
            (r#"{"header":"customer"}"#, Order::Header("customer".to_owned())),
        ] {
            assert_eq!(serde_json::from_str::<Order>(json).unwrap(), order);
            assert_eq!(serde_json::to_string(&order).unwrap(), json);
            assert_eq!(order.is_kept(), json != r#""none""#, "{json}");
        }
    }
}
