//! Tables of groups and messages, and the plan of what a command would do.

use rehop::Timestamp;
use rehop_operator::format;
use rehop_operator::parked::{Filter, Group, Listing, ParkedMessage, Planned, ReplayRequest};

use super::text;
use crate::output;

/// What a command does to the messages that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Send,
    Discard,
    Restore,
}

impl Verb {
    /// The operation, as a list plans it.
    pub(super) fn planned(self) -> Planned {
        match self {
            Self::Send => Planned::Replay,
            Self::Discard => Planned::Discard,
            Self::Restore => Planned::Restore,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Discard => "discard",
            Self::Restore => "restore",
        }
    }
}

pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

pub(super) fn groups_table(groups: &[Group], now: Timestamp) -> String {
    let mut table = output::table([
        "COUNT",
        "REASON",
        "CLASS",
        "LAST ERROR",
        "OLDEST",
        "NEWEST",
        "REPLAYED",
        "GOES TO",
        "FOR EXAMPLE",
    ]);
    for group in groups {
        let or_none = |text: &Option<String>| {
            text.as_deref().map_or_else(|| "-".to_owned(), |text| text::short(text, 80))
        };
        table.add_row([
            format::count(group.count),
            text::short(&group.kind.reason, 30),
            or_none(&group.kind.class),
            or_none(&group.kind.error),
            text::age(group.oldest, now),
            text::age(group.newest, now),
            format::count(group.replayed_before),
            or_none(&group.kind.destination),
            group.samples.first().map_or_else(|| "-".to_owned(), |chain| text::line(chain)),
        ]);
    }
    table.trim_fmt()
}

pub(super) fn rows_table(messages: &[ParkedMessage], now: Timestamp) -> String {
    let mut table = output::table([
        "#",
        "AGE",
        "CHAIN",
        "KEY",
        "GOES TO",
        "ATTEMPTS",
        "REPLAYS",
        "SIZE",
        "LAST ERROR",
    ]);
    for message in messages {
        table.add_row([
            format::count(message.position),
            text::age(message.parked_at, now),
            text::line(&message.chain),
            text::short(&message.routing_key, 60),
            message
                .destination
                .as_deref()
                .map_or_else(|| "-".to_owned(), |queue| text::short(queue, 60)),
            message.attempts.to_string(),
            message.replays.to_string(),
            format::size(message.size),
            text::short(message.error.as_deref().unwrap_or(&message.reason), 80),
        ]);
    }
    table.trim_fmt()
}

/// What would be done, and the command that does it.
///
/// `to` is where messages would go that do not say where they belong.
pub(super) fn plan(
    listing: &Listing,
    (verb, to): (Verb, Option<&str>),
    arguments: impl Iterator<Item = String>,
) -> String {
    let [matched, looked_at, depth] =
        [listing.matched, listing.looked_at, listing.depth].map(format::count);
    let queue = text::line(&listing.queue);
    let mut lines = vec![if listing.looked_at < listing.depth {
        format!("{matched} of the first {looked_at} messages in {queue} match; it has {depth}")
    } else {
        format!("{matched} of {depth} messages in {queue} match")
    }];
    if listing.matched == 0 {
        lines.push("Nothing would be done.".to_owned());
        return lines.join("\n");
    }
    lines.push(String::new());
    lines.push(groups_table(&listing.groups, now()));
    lines.push(String::new());
    lines.extend(destinations(listing, verb, to));
    if verb == Verb::Send && listing.matched > ReplayRequest::MOST_FATES {
        let most = format::count(ReplayRequest::MOST_FATES);
        lines.push(format!(
            "Only the first {most} would have their fate known: add --limit {}, and repeat the command",
            ReplayRequest::MOST_FATES
        ));
    }
    lines.push(format!("Nothing was done. To {} them:", verb.as_str()));
    lines.push(format!(
        "  {} --apply --expect {} --why '...'",
        command(arguments),
        listing.matched
    ));
    lines.join("\n")
}

/// How many messages would go where, and which would stay. A discard has one destination for all.
fn destinations(listing: &Listing, verb: Verb, to: Option<&str>) -> Vec<String> {
    let [go, missing, further, homeless] = match verb {
        Verb::Discard => return Vec::new(),
        Verb::Send => [
            "would go to queue",
            "cannot be sent: they belong to queue",
            "belong to further queues",
            "do not say where they belong, and would stay unless --to names a queue",
        ],
        Verb::Restore => [
            "would go back to queue",
            "cannot be restored: they were discarded from queue",
            "were discarded from further queues",
            "do not say where they were discarded from, and would stay",
        ],
    };
    let mut lines = Vec::new();
    for (queue, count) in &listing.destinations {
        lines.push(format!("{} {go} {}", format::count(*count), text::line(queue)));
    }
    for (queue, count) in &listing.missing_destinations {
        lines.push(format!(
            "{} {missing} {}, which does not exist or cannot be served",
            format::count(*count),
            text::line(queue)
        ));
    }
    if listing.other_destinations > 0 {
        let [count, most] =
            [listing.other_destinations, Listing::MOST_DESTINATIONS as u64].map(format::count);
        lines.push(format!("{count} {further}: a plan names and looks up {most} at most"));
    }
    if listing.without_destination > 0 {
        let count = format::count(listing.without_destination);
        lines.push(match to {
            Some(to) => format!(
                "{count} do not say where they belong, and would go to queue {}",
                text::line(to)
            ),
            None => format!("{count} {homeless}"),
        });
    }
    lines
}

/// The arguments with times in place of how long ago they were: what is done later is about the
/// messages of the plan.
pub(super) fn with_fixed_times(
    arguments: impl Iterator<Item = String>,
    filter: &Filter,
) -> impl Iterator<Item = String> {
    let since = filter.since.map(|at| ("--since", fixed(at)));
    let until = filter.until.map(|at| ("--until", fixed(at)));
    let times: Vec<_> = since.into_iter().chain(until).collect();
    let mut option = String::new();
    arguments.map(move |argument| {
        let time =
            |name: &str| times.iter().find(|(option, _)| *option == name).map(|(_, time)| time);
        let before = std::mem::replace(&mut option, argument.clone());
        match (time(&before), argument.split_once('=')) {
            (Some(time), _) => time.clone(),
            (None, Some((name, _))) => {
                time(name).map_or(argument.clone(), |time| format!("{name}={time}"))
            }
            (None, None) => argument,
        }
    })
}

fn fixed(at: Timestamp) -> String {
    humantime::format_rfc3339_millis(at.into()).to_string()
}

/// A command line, quoted for a shell. Settings of the broker and its URLs may hold a password, and
/// are left out.
pub(super) fn command(arguments: impl Iterator<Item = String>) -> String {
    let mut quoted = vec!["rehop".to_owned()];
    let mut option = String::new();
    for argument in arguments.skip(1) {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (argument.as_str(), None),
        };
        quoted.push(match value {
            Some(value) if is_secret(name, value) => format!("{name}='...'"),
            None if is_secret(&option, &argument) => "'...'".to_owned(),
            _ => quoted_for_a_shell(&argument),
        });
        option = if value.is_none() { argument } else { String::new() };
    }
    quoted.join(" ")
}

/// Whether the value of an option may hold a password.
fn is_secret(option: &str, value: &str) -> bool {
    match option {
        "--set" => {
            let key = value.split('=').next().unwrap_or_default().trim();
            key == "broker" || key.starts_with("broker.")
        }
        "--url" | "--management" => {
            let authority = value.split_once("://").map_or(value, |(_, authority)| authority);
            authority.contains('?')
                || authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
        }
        _ => false,
    }
}

fn quoted_for_a_shell(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", text::line(argument).replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use rehop::Timestamp;
    use rehop_operator::parked::Filter;

    use super::{command, with_fixed_times};

    fn shown(given: &[&str]) -> String {
        command(given.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn a_command_is_quoted_for_a_shell() {
        let given = ["/usr/bin/rehop", "parked", "--where", "body.a == \"it's\"", ""];
        assert_eq!(shown(&given), "rehop parked --where 'body.a == \"it'\\''s\"' ''");
    }

    #[test]
    fn a_planned_command_has_times_in_place_of_how_long_ago_they_were() {
        let mut filter = Filter::default();
        filter.since = Some(Timestamp::from_millis(1_700_000_000_007));
        filter.until = Some(Timestamp::from_millis(1_700_000_060_000));
        let given =
            ["rehop", "--class", "2h", "--since", "2h", "--until=1h", "--where", "body.since=2h"];
        let fixed =
            with_fixed_times(given.into_iter().map(str::to_owned), &filter).collect::<Vec<_>>();
        let expected = [
            "--since",
            "2023-11-14T22:13:20.007Z",
            "--until=2023-11-14T22:14:20.000Z",
            "--where",
            "body.since=2h",
        ];
        assert_eq!(fixed, [&["rehop", "--class", "2h"], &expected[..]].concat());
        assert!(
            with_fixed_times(["--since".to_owned()].into_iter(), &Filter::default())
                .eq(["--since"])
        );
    }

    #[test]
    fn a_command_shows_no_password() {
        let url = "amqp://u:hunter2@h";
        for secret in [
            &["--set", "broker.url=amqp://u:hunter2@h"][..],
            &["--set", " broker.password=hunter2"],
            &["--set=broker.password=hunter2"],
            &["--set= broker.password=hunter2"],
            &["--set", "broker={url=\"amqp://u:hunter2@h\"}"],
            &["--url", url],
            &["--url=amqp://u:hunter2@h"],
            &["--management", "http://u:hunter2@h"],
            &["--management=http://h?password=hunter2"],
        ] {
            let command = shown(&[&["rehop"], secret, &["parked", "list"]].concat());
            assert!(!command.contains("hunter2") && command.contains("'...'"), "{command}");
            assert!(command.ends_with(" parked list"), "{command}");
        }
        let harmless = [
            "rehop",
            "--url",
            "amqp://user@rabbit:5672/%2f",
            "--set",
            "retry.delays=[1s]",
            "--class=broker.url",
        ];
        assert_eq!(
            shown(&harmless),
            "rehop --url 'amqp://user@rabbit:5672/%2f' --set 'retry.delays=[1s]' --class=broker.url"
        );
    }
}
