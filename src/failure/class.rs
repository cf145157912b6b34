//! The class of an error that was given no name: its type, as people write it.

use std::borrow::Cow;

/// The class of errors of this type, or `plain` if the type says nothing about the error.
pub(super) fn of_type<E>(plain: &'static str) -> Cow<'static, str> {
    match std::any::type_name::<E>() {
        "&str" | "alloc::string::String" | "anyhow::Error" | "eyre::Report" => Cow::Borrowed(plain),
        name if name.starts_with("alloc::boxed::Box<dyn") || name.starts_with("alloc::borrow::Cow<") => {
            Cow::Borrowed(plain)
        }
        name => short(name),
    }
}

/// The last part of a type's path, which stays when code is moved: `ParseIntError`. Many types are called `Error`, so these keep the module or the
/// crate that is named with them: `io::Error`. Pointers and type parameters are left out.
pub(crate) fn short(path: &str) -> Cow<'_, str> {
    let pointer =
        |path| ["alloc::boxed::Box<", "alloc::sync::Arc<"].iter().find_map(|pointer| str::strip_prefix(path, pointer));
    let target = std::iter::successors(Some(path), |path| pointer(*path)).last().unwrap_or(path);
    let end = target.find(['<', '>']).unwrap_or(target.len());
    let mut parts = target[..end].rsplit("::");
    let name = parts.next().unwrap_or_default();
    if name != "Error" {
        return Cow::Borrowed(name);
    }
    // Libraries define the type in a private module of this name, and export it from the one above.
    match parts.find(|module| !matches!(*module, "error" | "errors")) {
        Some(module) => {
            let short = format!("{module}::{name}");
            if short == path { Cow::Borrowed(path) } else { Cow::Owned(short) }
        }
        None => Cow::Borrowed(name),
    }
}

/// Whether a class looks like the name of a type, and not like one that was given by hand.
pub(crate) fn is_of_type(class: &str) -> bool {
    class.contains("::") || class.starts_with(|c: char| c.is_ascii_uppercase())
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
            ("alloc::boxed::Box<billing::Error>", "billing::Error"),
            ("alloc::sync::Arc<alloc::boxed::Box<billing::Declined>>", "Declined"),
            ("tokio::sync::mpsc::error::SendError<alloc::vec::Vec<u8>>", "SendError"),
            ("alloc::boxed::Box<tokio::sync::mpsc::error::SendError<u8>>", "SendError"),
            ("", ""),
        ] {
            assert_eq!(short(path), class, "{path}");
            assert_eq!(short(class), class, "a short name stays");
        }
    }

    #[test]
    fn names_of_types_are_told_from_names_given_by_hand() {
        assert!(is_of_type("ParseIntError") && is_of_type("io::Error"));
        assert!(!is_of_type("card_declined") && !is_of_type(""));
    }
}
