//! The topology as a graph, in Graphviz's language.

use std::fmt::Write;

use super::{Argument, Arguments, Role, Topology};

impl Topology {
    /// The topology as a graph; pipe it into `dot -Tsvg`.
    pub fn to_dot(&self) -> String {
        let mut dot =
            String::from("digraph topology {\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n");
        draw_exchanges(&mut dot, self);
        draw_queues(&mut dot, self);
        draw_bindings(&mut dot, self);
        dot.push_str("}\n");
        dot
    }
}

fn draw_exchanges(dot: &mut String, topology: &Topology) {
    for exchange in &topology.exchanges {
        line(
            dot,
            &format!(
                "{} [shape=ellipse, label={}]",
                node("exchange", &exchange.name),
                quote(&format!("{}\n{}", exchange.name, exchange.kind.as_str()))
            ),
        );
        edge(
            dot,
            ("exchange", &exchange.name),
            ("exchange", text(&exchange.arguments, "alternate-exchange")),
            "no route",
        );
    }
}

fn draw_queues(dot: &mut String, topology: &Topology) {
    for queue in &topology.queues {
        let colour = match queue.role {
            Role::Work => "lightblue",
            Role::Wait => "lightyellow",
            Role::Parked => "mistyrose",
            Role::Stray | Role::Discarded => "lightgrey",
        };
        line(
            dot,
            &format!(
                "{} [shape=box, style=filled, fillcolor={colour}, label={}]",
                node("queue", &queue.name),
                quote(&queue.name)
            ),
        );
        let why = match queue.arguments.get("x-message-ttl") {
            Some(ttl) => format!("after {ttl} ms"),
            None => "delivery limit".to_owned(),
        };
        edge(
            dot,
            ("queue", &queue.name),
            ("exchange", text(&queue.arguments, "x-dead-letter-exchange")),
            &why,
        );
    }
}

fn draw_bindings(dot: &mut String, topology: &Topology) {
    for binding in &topology.bindings {
        let matching = binding.arguments.iter().filter(|(name, _)| *name != "x-match");
        let label = matching.fold(binding.routing_key.clone(), |label, (name, value)| {
            format!("{label}{name}: {value}")
        });
        edge(dot, ("exchange", &binding.exchange), ("queue", Some(&binding.queue)), &label);
    }
    for binding in &topology.exchange_bindings {
        edge(
            dot,
            ("exchange", &binding.source),
            ("exchange", Some(&binding.destination)),
            "after x-delay ms",
        );
    }
}

fn text<'a>(arguments: &'a Arguments, name: &str) -> Option<&'a str> {
    match arguments.get(name)? {
        Argument::Text(text) => Some(text),
        Argument::Number(_) | Argument::Flag(_) => None,
    }
}

fn edge(dot: &mut String, from: (&str, &str), to: (&str, Option<&str>), label: &str) {
    if let Some(name) = to.1 {
        line(
            dot,
            &format!("{} -> {} [label={}]", node(from.0, from.1), node(to.0, name), quote(label)),
        );
    }
}

fn line(dot: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(dot, "  {text};");
}

/// The kind is part of a node's name, because an exchange and a queue may have the same name.
fn node(what: &str, name: &str) -> String {
    quote(&format!("{what} {name}"))
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
