//! JSON as a tree that a template can write without recursion. Pure.

use rehop_operator::format::counted;
use serde_json::Value;

/// How many values, and how many bytes of text in all, are shown.
const MAX_NODES: usize = 2_000;
const MAX_BYTES: usize = 64 * 1024;

/// A part of the tree, in the order in which it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// An object or an array begins.
    Open {
        name: String,
        about: String,
    },
    Close,
    Leaf {
        name: String,
        value: String,
    },
    /// The rest is not shown.
    Cut,
}

/// The tree of a document.
pub(super) fn tree(document: &Value) -> Vec<Node> {
    let mut tree = Tree { nodes: Vec::new(), bytes: 0, is_cut: false };
    tree.add("", document);
    tree.nodes
}

struct Tree {
    nodes: Vec<Node>,
    bytes: usize,
    is_cut: bool,
}

impl Tree {
    /// As deep as the document: serde_json reads 128 levels at most.
    fn add(&mut self, name: &str, value: &Value) {
        if self.is_cut {
            return;
        }
        let text = match value {
            Value::Object(_) | Value::Array(_) => String::new(),
            leaf => leaf.to_string(),
        };
        self.bytes += name.len() + text.len();
        if self.nodes.len() >= MAX_NODES || self.bytes > MAX_BYTES {
            self.is_cut = true;
            return self.nodes.push(Node::Cut);
        }
        let name = name.to_owned();
        match value {
            Value::Object(fields) => {
                self.nodes.push(Node::Open { name, about: counted(fields.len() as u64, "field") });
                for (name, value) in fields {
                    self.add(name, value);
                }
                self.nodes.push(Node::Close);
            }
            Value::Array(elements) => {
                self.nodes
                    .push(Node::Open { name, about: counted(elements.len() as u64, "element") });
                for (index, value) in elements.iter().enumerate() {
                    self.add(&index.to_string(), value);
                }
                self.nodes.push(Node::Close);
            }
            _ => self.nodes.push(Node::Leaf { name, value: text }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::inputs::inputs;

    #[test]
    fn a_document_is_written_in_order() {
        let leaf =
            |name: &str, value: &str| Node::Leaf { name: name.to_owned(), value: value.to_owned() };
        let open =
            |name: &str, about: &str| Node::Open { name: name.to_owned(), about: about.to_owned() };
        let nodes = tree(&json!({"id": 7, "items": ["a"]}));
        let items = [open("items", "1 element"), leaf("0", "\"a\""), Node::Close];
        assert_eq!(
            nodes,
            [&[open("", "2 fields"), leaf("id", "7")][..], &items, &[Node::Close]].concat()
        );
        assert_eq!(tree(&json!(null)), [leaf("", "null")]);
    }

    #[test]
    fn a_large_document_is_cut_and_everything_that_was_opened_is_closed() {
        for document in
            [json!(vec![json!({"a": [1]}); 5_000]), json!({"a": {"b": "x".repeat(70_000)}})]
        {
            let nodes = tree(&document);
            assert!(nodes.len() <= MAX_NODES + 200 && nodes.contains(&Node::Cut));
            assert_balanced(&nodes);
        }
    }

    fn assert_balanced(nodes: &[Node]) {
        let mut depth = 0;
        for node in nodes {
            match node {
                Node::Open { .. } => depth += 1,
                Node::Close => depth -= 1,
                Node::Leaf { .. } | Node::Cut => {}
            }
            assert!(depth >= 0);
        }
        assert_eq!(depth, 0);
    }

    proptest! {
        #![proptest_config(inputs(256))]

        #[test]
        fn any_document_is_balanced(text in "[\\[{\"a:1,}\\]]{0,40}") {
            if let Ok(document) = serde_json::from_str(&text) {
                assert_balanced(&tree(&document));
            }
        }
    }
}
