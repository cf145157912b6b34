//! What to do about a broker that cannot be reached.

use std::io;

use super::Problem;

/// What to check, as a part of an error's text.
pub(super) fn advice(problem: &Problem) -> &'static str {
    let causes = || std::iter::successors(problem.cause(), |error| (**error).source());
    let is_out_of_files = causes().any(|error| {
        error.downcast_ref::<io::Error>().is_some_and(is_out_of_files)
            || error.downcast_ref::<lapin::Error>().is_some_and(|error| match error.kind() {
                lapin::ErrorKind::IOError(error) => is_out_of_files(error),
                _ => false,
            })
    });
    if is_out_of_files {
        "this process has no file descriptor left for a connection: raise its limit, such as LimitNOFILE= of systemd or \
         ulimit -n"
    } else if problem.to_string().starts_with(NO_ADDRESS) {
        "check the host in broker.url, and the name service of this machine"
    } else {
        "check that it is running, and check broker.url"
    }
}

/// How Rust's library begins, whatever the resolver says.
const NO_ADDRESS: &str = "failed to lookup address information";

/// Whether the process, or its machine, has as many open files as it may have.
fn is_out_of_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_check_depends_on_whose_fault_it_is() {
        let advice_of = |error: io::Error| advice(&Problem::of_lapin(&lapin::Error::from(error)));
        let of_os = |number| advice_of(io::Error::from_raw_os_error(number));
        assert!(of_os(24).contains("LimitNOFILE=") && of_os(23).contains("ulimit -n"));
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
