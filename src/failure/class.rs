//! The class of an error that was given no name: its type, as people write it.

use std::borrow::Cow;

/// The class of errors of this type, or `plain` if the type says nothing about the error.
pub(super) fn of_type<E>(plain: &'static str) -> Cow<'static, str> {
    of_path(std::any::type_name::<E>(), plain)
}

fn of_path(path: &'static str, plain: &'static str) -> Cow<'static, str> {
    match target(path) {
        "&str" | "alloc::string::String" | "anyhow::Error" | "eyre::Report" => Cow::Borrowed(plain),
        target if target.starts_with("dyn ") || target.starts_with("alloc::borrow::Cow<") => {
            Cow::Borrowed(plain)
        }
        target => match short(target) {
            class if class.is_empty() => Cow::Borrowed(plain),
            class => class,
        },
    }
}

/// What a pointer points to.
fn target(path: &str) -> &str {
    const POINTERS: [&str; 2] = ["alloc::boxed::Box<", "alloc::sync::Arc<"];
    match POINTERS.iter().find_map(|pointer| path.strip_prefix(pointer)) {
        Some(inside) => target(inside.strip_suffix('>').unwrap_or(inside)),
        None => path,
    }
}

/// The last part of a type's path: `ParseIntError`. Moving code keeps it, except for types called
/// `Error`: they are many, so they have the module or crate that defines them, `io::Error`. Type
/// parameters are left out.
pub(crate) fn short(path: &str) -> Cow<'_, str> {
    let plain = without_parameters(path);
    let mut parts = plain.trim_start_matches('&').rsplit("::");
    let name = parts.next().unwrap_or_default();
    // Libraries define the type in a private module of such a name, and export it from the one
    // above. A function may have a type of its own.
    let is_named = |module: &&str| {
        !module.is_empty() && !matches!(*module, "error" | "errors") && !module.starts_with('{')
    };
    let short = match parts.find(is_named) {
        Some(module) if name == "Error" => format!("{module}::{name}"),
        _ => name.to_owned(),
    };
    if short == path { Cow::Borrowed(path) } else { Cow::Owned(short) }
}

fn without_parameters(path: &str) -> String {
    let mut depth = 0_u32;
    let outside = path.chars().filter(|c| match c {
        '<' => {
            depth += 1;
            false
        }
        '>' => {
            depth = depth.saturating_sub(1);
            false
        }
        _ => depth == 0,
    });
    outside.collect()
}

/// Whether a class looks like the name of a type, and not like one that was given by hand.
pub(crate) fn is_of_type(class: &str) -> bool {
    without_parameters(class)
        .rsplit("::")
        .next()
        .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_types_name_with_the_module_that_is_written_with_it() {
        for (path, class) in [
            ("core::num::error::ParseIntError", "ParseIntError"),
            ("std::io::error::Error", "io::Error"),
            ("core::fmt::Error", "fmt::Error"),
            ("serde_json::error::Error", "serde_json::Error"),
            ("billing::charge::Error", "charge::Error"),
            ("billing::Error", "billing::Error"),
            ("Error", "Error"),
            ("&billing::Error", "billing::Error"),
            ("tokio::sync::mpsc::error::SendError<alloc::vec::Vec<u8>>", "SendError"),
            ("billing::charge::{{closure}}::Error", "charge::Error"),
            ("<billing::Charge as rehop::Handler<u8>>::handle::Declined", "Declined"),
            ("billing::Charge<u8>::handle::Declined", "Declined"),
            ("", ""),
        ] {
            assert_eq!(short(path), class, "{path}");
            assert_eq!(short(class), class, "a short name stays");
        }
    }

    #[test]
    fn a_pointer_has_the_class_of_what_it_points_to_and_an_erased_error_has_none() {
        for (path, class) in [
            ("alloc::boxed::Box<billing::Error>", "billing::Error"),
            ("alloc::sync::Arc<alloc::boxed::Box<billing::Declined>>", "Declined"),
            ("alloc::boxed::Box<tokio::sync::mpsc::error::SendError<u8>>", "SendError"),
            ("alloc::boxed::Box<dyn core::error::Error + core::marker::Send>", "plain"),
            (
                "alloc::sync::Arc<dyn core::error::Error + core::marker::Send + core::marker::Sync>",
                "plain",
            ),
            ("alloc::borrow::Cow<str>", "plain"),
            ("anyhow::Error", "plain"),
        ] {
            assert_eq!(of_path(path, "plain"), class, "{path}");
        }
    }

    #[test]
    fn names_of_types_are_told_from_names_given_by_hand() {
        assert!(is_of_type("ParseIntError") && is_of_type("io::Error"));
        assert!(!is_of_type("card_declined") && !is_of_type("stripe::declined") && !is_of_type(""));
    }
}
