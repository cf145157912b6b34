use std::fmt;
use std::io;
use std::sync::Arc;

use super::*;

/// A library's error with a source.
#[derive(Debug)]
struct Declined(io::Error);

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("declined")
    }
}

impl Error for Declined {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

fn declined() -> Declined {
    Declined(io::Error::other("no funds"))
}

/// What a handler returns that passes this error on by `?`.
fn failed<E: Into<Box<dyn Error + Send + Sync>> + 'static>(error: E) -> Failure {
    let handler = || -> Result<(), Failure> { Err(error)? };
    handler().unwrap_err()
}

fn classify() -> NameClass {
    Arc::new(|error| {
        let declined = error.is::<Declined>().then_some("declined");
        declined.or_else(|| error.is::<io::Error>().then_some("io"))
    })
}

#[test]
fn every_kind_of_error_is_taken_with_the_texts_of_its_sources() {
    let boxed: Box<dyn Error + Send + Sync> = Box::new(declined());
    for (failure, class) in [
        (failed(declined()), "Declined"),
        (failed(boxed), "error"),
        (failed(anyhow::Error::from(declined())), "error"),
        (failed(eyre::Report::from(declined())), "error"),
    ] {
        assert_eq!((failure.class(), failure.message()), (class, "declined: no funds"));
        assert_eq!(failure.kind(), Kind::Unclassified);
    }
    assert_eq!(failed("late").message(), "late");
    let in_context = failed(anyhow::Error::from(declined()).context("order 7"));
    assert_eq!(in_context.message(), "order 7: declined: no funds");
}

#[cfg(all(feature = "anyhow", feature = "eyre"))]
#[test]
fn the_error_inside_stays_within_reach_of_a_downcast() {
    let boxed: Box<dyn Error + Send + Sync> = Box::new(declined());
    for failure in [
        failed(declined()),
        failed(boxed),
        failed(anyhow::Error::from(declined())),
        failed(eyre::Report::from(declined())),
        Failure::permanent(declined()),
    ] {
        assert!(failure.source().unwrap().is::<Declined>(), "{failure:?}");
        assert!(
            failure.clone().source().unwrap().source().unwrap().is::<io::Error>(),
            "{failure:?}"
        );
    }
    assert!(Failure::timeout(Duration::from_secs(1)).source().is_none());
}

#[cfg(all(feature = "anyhow", feature = "eyre"))]
#[test]
fn a_class_is_found_for_the_outermost_error_that_has_one() {
    let class = |failure: Failure| failure.classified(&classify()).class().to_owned();
    assert_eq!(class(failed(declined())), "declined");
    assert_eq!(class(failed(anyhow::Error::from(declined()))), "declined");
    assert_eq!(class(failed(anyhow::Error::from(declined()).context("order 7"))), "declined");
    assert_eq!(class(failed(eyre::Report::from(io::Error::other("x")))), "io");
    assert_eq!(class(Failure::transient(io::Error::other("x"))), "io");
}

#[test]
fn a_class_that_was_named_or_that_nothing_finds_stays() {
    let class = |failure: Failure| failure.classified(&classify()).class().to_owned();
    assert_eq!(class(failed(declined()).with_class("card_declined")), "card_declined");
    assert_eq!(class(failed(fmt::Error)), "fmt::Error");
    assert_eq!(class(Failure::permanent("no")), "permanent");
    assert_eq!(class(Failure::timeout(Duration::from_secs(1))), "timeout");
}
