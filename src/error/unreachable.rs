//! What to do about a broker that cannot be reached.

use super::Problem;

/// How the standard library's error begins, whatever the resolver adds.
const NO_ADDRESS: &str = "failed to lookup address information";

/// What to check, as a part of an error's text.
pub(super) fn advice(problem: &Problem) -> &'static str {
    if problem.to_string().starts_with(NO_ADDRESS) {
        "check the host in broker.url, and the name service of this machine"
    } else {
        "check that it is running, and check broker.url"
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_to_check_depends_on_whose_fault_it_is() {
        let advice_of = |error: io::Error| advice(&Problem::of_lapin(&lapin::Error::from(error)));
        let unknown = io::Error::other("failed to lookup address information: Name or service …");
        assert!(advice_of(unknown).contains("name service"));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(advice_of(refused), "check that it is running, and check broker.url");
        assert_eq!(
            advice(&"no".to_owned().into()),
            "check that it is running, and check broker.url"
        );
    }
}
