//! What a run leaves untested.

/// Says in one line what a test leaves untested, and which test it is: the harness names each test's thread after it. The line goes past
/// the harness, which shows no output of a test that passes.
pub(crate) fn not_tried(what: &str) {
    let thread = std::thread::current();
    let line = format!("NOT TRIED: {what} ({})\n", thread.name().unwrap_or("a test"));
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
