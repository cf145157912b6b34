//! Output as a page shows it: with masks for what differs from run to run. Pure.

/// The lines of an output that any run prints alike. Ages and the ids of runs are masked, and the
/// columns of a table are as wide as what is in them, so a space between two columns stands for any
/// number of them.
pub(super) fn masked<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    lines.into_iter().map(|line| cells(line).map(mask).collect::<Vec<_>>().join(" | ")).collect()
}

/// What the service prints, by order: two orders are handled at the same time, so only the lines of
/// one have a sequence. A comment is the page's own.
pub(super) fn by_order<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut lines: Vec<_> =
        lines.into_iter().map(|line| line.split(" #").next().unwrap_or(line).trim_end()).collect();
    lines.sort_by_key(|line| line.split([' ', ',']).nth(1));
    lines
}

/// At least two spaces are between two columns.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty())
}

fn mask(cell: &str) -> String {
    if cell.split(' ').all(is_age) {
        return "AGE".to_owned();
    }
    let word = |word: &str| match word.strip_suffix(':').unwrap_or(word) {
        id if is_run(id) => word.replace(id, "RUN"),
        _ => word.to_owned(),
    };
    cell.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Such as 1s.
fn is_age(word: &str) -> bool {
    let number = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
    ["ms", "s", "m"].contains(&&word[number.len()..]) && number.parse::<u32>().is_ok()
}

fn is_run(word: &str) -> bool {
    word.len() == 12 && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[test]
fn ages_runs_and_widths_are_masked_and_nothing_else() {
    let same = |one: &str, other: &str| assert_eq!(masked([one]), masked([other]));
    same("1  no route  1m 2s  7s   orders", "1      no route  1s  950ms  orders");
    same("replay 63453e683751: it was handled", "replay 0123456789ab: it was handled");
    let different = |one: &str, other: &str| assert_ne!(masked([one]), masked([other]));
    different("2  1s", "1  1s");
    different("REASON  CLASS", "REASON CLASS");
    different("orders  order-7", "orders  order-8");
    different("replay 63453e683751: it was handled", "replay 63453e68375: it was handled");
}

#[test]
fn lines_of_one_order_keep_their_sequence() {
    let printed =
        ["order 8, attempt 1", "order 7, attempt 1", "order 8 ends", "order 7 ends   # soon"];
    assert_eq!(
        by_order(printed),
        ["order 7, attempt 1", "order 7 ends", "order 8, attempt 1", "order 8 ends"]
    );
}
