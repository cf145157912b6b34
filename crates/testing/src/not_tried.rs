use std::fs::File;
use std::io::Write as _;

/// Says in one line what a test leaves untested, and which test it is: the harness names each
/// test's thread after it.
///
/// The line goes past the harness, which shows no output of a test that passes, and also into the
/// file that `REHOP_TEST_NOT_TRIED` names, if it is set: so a run can count what it did not try.
///
/// ```
/// # fn docker_answers() -> bool { true }
/// if !docker_answers() {
///     return rehop_testing::not_tried("a cluster, because Docker does not answer");
/// }
/// ```
pub fn not_tried(what: &str) {
    let thread = std::thread::current();
    let line = format!("NOT TRIED: {what} ({})\n", thread.name().unwrap_or("a test"));
    // A closed standard error, or a file that cannot be written, must not make a test fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let file = std::env::var_os("REHOP_TEST_NOT_TRIED").filter(|path| !path.is_empty());
    let _ = file.map(|path| {
        File::options().create(true).append(true).open(path)?.write_all(line.as_bytes())
    });
}
