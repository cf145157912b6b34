//! What was started from this page: progress, stop, and what became of the messages.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::stream;
use http::StatusCode;
use tokio::time::Instant;

use super::frame::Frame;
use super::live::LASTS;
use super::{Outcome, html};
use crate::allowed::Action;
use crate::door::{Fields, FormToken};
use crate::refusal::Refusal;
use crate::runs::{Phase, Run};
use crate::state::AppState;
use crate::visible;
use rehop_operator::format::count;
use rehop_operator::parked::{Edited, Fates, Group, ParkedError, Replayed, Tally};

/// The time between two updates of an open page.
const UPDATE_EVERY: Duration = Duration::from_millis(500);

#[derive(Template)]
#[template(path = "runs.html")]
struct All {
    frame: Frame,
    runs: Vec<(u64, String, String)>,
}

#[derive(Template)]
#[template(path = "run.html")]
struct One {
    frame: Frame,
    id: u64,
    why: String,
    from: String,
    state: String,
    is_over: bool,
    is_bad: bool,
    cells: Vec<(&'static str, &'static str, String)>,
    /// What parked again: how many, and with which error.
    again: Vec<(String, String)>,
    /// How many messages can be moved back.
    undo: Option<String>,
    /// Copies were under way when it failed.
    may_be_twice: bool,
    undone_by: Option<u64>,
}

pub(super) async fn all(
    State(state): State<Arc<AppState>>,
    Extension(token): Extension<FormToken>,
) -> Outcome {
    let of =
        |run: &Arc<Run>| (run.id, run.title.clone(), in_words(&run.phase.borrow(), run.undoes).0);
    let runs = state.runs.all().iter().map(of).collect();
    Ok(html(&All { frame: Frame::new(&state, &token, "Activity"), runs }))
}

pub(super) async fn one(
    State(state): State<Arc<AppState>>,
    Extension(token): Extension<FormToken>,
    Path(id): Path<u64>,
) -> Outcome {
    let run = find(&state, id)?;
    let phase = run.phase.borrow().clone();
    let (words, is_bad) = in_words(&phase, run.undoes);
    let again = match &phase {
        Phase::Replayed(replayed) => replayed.parked_again.iter().map(parked_again).collect(),
        _ => Vec::new(),
    };
    if phase.is_over() {
        state.readings.forget();
    }
    let undone_by = run.undone_by();
    let may_undo = undone_by.is_none() && state.allowed.contains(Action::Discard);
    let mut cells = cells(&phase);
    if let (Some(undoes), Phase::Restored(restored)) = (run.undoes, &phase) {
        let gone = undoes.saturating_sub(restored.tally.matched);
        cells.push(("gone", "No longer in the discarded queue", count(gone)));
    }
    Ok(html(&One {
        frame: Frame::new(&state, &token, run.title.clone()),
        id,
        why: run.why.clone(),
        from: run.from.clone(),
        state: words,
        is_over: phase.is_over(),
        is_bad,
        cells,
        again,
        undo: run.undoable().filter(|_| may_undo).map(|discarded| count(discarded.moved)),
        may_be_twice: matches!(phase, Phase::Failed { .. }),
        undone_by,
    }))
}

pub(super) async fn stop(State(state): State<Arc<AppState>>, Path(id): Path<u64>) -> Outcome {
    find(&state, id)?.stop();
    Ok(Redirect::to(&format!("/runs/{id}")).into_response())
}

/// Moves back what was discarded.
pub(super) async fn undo(
    State(state): State<Arc<AppState>>,
    Path(id): Path<u64>,
    Extension(fields): Extension<Fields>,
) -> Outcome {
    let run = find(&state, id)?;
    if !state.allowed.contains(Action::Discard) {
        return Err(Refusal::not_allowed(Action::Discard));
    }
    let bad = |text: &str| Refusal::new(StatusCode::BAD_REQUEST, text);
    let why = fields
        .get("why")
        .ok_or_else(|| bad("Say why, for the audit. Go back, and fill in the reason."))?;
    let begun = state.runs.undo(&run, state.discarded()?, why.to_owned());
    let begun =
        begun.ok_or_else(|| bad("It has discarded nothing, so there is nothing to undo."))?;
    Ok(Redirect::to(&format!("/runs/{}", begun.id)).into_response())
}

/// The values that change, and a reload at the end.
pub(super) async fn live(
    State(state): State<Arc<AppState>>,
    Path(id): Path<u64>,
) -> Result<Response, Refusal> {
    let run = find(&state, id)?;
    let until = Instant::now() + LASTS;
    let events = stream::unfold((run, false), move |(run, is_over)| async move {
        if is_over || Instant::now() > until {
            return None;
        }
        tokio::time::sleep(UPDATE_EVERY).await;
        let phase = run.phase.borrow().clone();
        let event = if phase.is_over() {
            Event::default().event("reload").data("done")
        } else {
            let mut texts: BTreeMap<&str, String> =
                cells(&phase).into_iter().map(|(id, _, text)| (id, text)).collect();
            texts.insert("state", in_words(&phase, run.undoes).0);
            Event::default().data(visible::texts(serde_json::json!(texts)).to_string())
        };
        Some((Ok::<_, Infallible>(event), (run, phase.is_over())))
    });
    Ok(Sse::new(events).into_response())
}

fn find(state: &AppState, id: u64) -> Result<Arc<Run>, Refusal> {
    state.runs.find(id).ok_or_else(|| {
        Refusal::not_found(
            "This page does not know of it. It remembers what was started since its own start.",
        )
    })
}

fn parked_again(group: &Group) -> (String, String) {
    (count(group.count), group.kind.error.clone().unwrap_or_else(|| "no error text".to_owned()))
}

const SOME_STAY: &str = "Some messages stay where they are; the numbers below say why.";

/// How it is, and whether that is bad. `undoes`: how many messages it is to bring back.
fn in_words(phase: &Phase, undoes: Option<u64>) -> (String, bool) {
    match phase {
        Phase::Starting => ("It begins.".to_owned(), false),
        Phase::Running(progress) if progress.is_paused => {
            ("It waits: the work queue is longer than it may be.".to_owned(), false)
        }
        Phase::Running(_) => ("It goes on.".to_owned(), false),
        Phase::Replayed(replayed) => match &replayed.stopped {
            Some(stop) => (format!("It stopped: {stop}."), true),
            None if replayed.is_success() => {
                ("It is done: every message was handled.".to_owned(), false)
            }
            None => (format!("It is done. {}", what_is_not_handled(replayed)), true),
        },
        Phase::Discarded(discarded) => match &discarded.stopped {
            Some(stop) => (format!("It stopped: {stop}."), true),
            None if discarded.tally.stayed() > 0 => (format!("It is done. {SOME_STAY}"), true),
            None => (
                "It is done. The messages are in the discarded queue for seven days.".to_owned(),
                false,
            ),
        },
        Phase::Restored(restored) => match &restored.stopped {
            Some(stop) => (format!("It stopped: {stop}."), true),
            None if restored.tally.stayed() > 0 => (format!("It is done. {SOME_STAY}"), true),
            None if undoes.is_some_and(|undoes| undoes > restored.tally.matched) => (
                "It is done. Some messages were no longer there to be brought back.".to_owned(),
                true,
            ),
            None => (
                "It is done. The messages are back where they were, at the end of their queue."
                    .to_owned(),
                false,
            ),
        },
        Phase::Edited(edited) => what_became_of(edited),
        Phase::Failed { error: ParkedError::Stopped, .. } => {
            ("It was stopped before it moved any message.".to_owned(), true)
        }
        Phase::Failed { error: error @ ParkedError::Incomplete { .. }, .. } => {
            (format!("It ended early: {error}."), true)
        }
        Phase::Failed { error, .. } => {
            (format!("It failed: {error}. What it has not moved is where it was."), true)
        }
    }
}

fn what_became_of(Edited { run, destination, fates, .. }: &Edited) -> (String, bool) {
    let words = match fates {
        Fates { handled: 1.., .. } => {
            return (
                format!("It is done: queue {destination} has handled the edited message."),
                false,
            );
        }
        Fates { parked_again: 1.., .. } => "The edited message has parked again.".to_owned(),
        Fates { discarded: 1.., .. } => {
            "The edited message was discarded, by its handler or by its policy.".to_owned()
        }
        Fates { waiting: 1.., .. } => {
            "The edited message has failed, and waits for another attempt.".to_owned()
        }
        _ => format!(
            "The edited message is sent to queue {destination}. What became of it is not known yet. If it crashes its consumer, the \
             broker parks it in the end; then the filter “Parked again by this replay” finds it, by {run}."
        ),
    };
    (words, true)
}

/// Why not every message that matched was handled, and what to do about those of which nothing is
/// known.
fn what_is_not_handled(Replayed { run, tally, fates, unknown, .. }: &Replayed) -> String {
    let unheard_of = format!(
        "Not every message's fate is known: some may still be in their queue, or their consumer does not report it. One that crashes its \
         consumer is parked by the broker in the end; then the filter “Parked again by this replay” finds it, by {run}."
    );
    let parts = [
        (fates.parked_again, "Some messages have parked again."),
        (fates.discarded, "Some messages were discarded by their handler."),
        (fates.waiting, "Some messages have failed, and wait for another attempt."),
        (*unknown, unheard_of.as_str()),
        (tally.stayed(), SOME_STAY),
    ];
    let some = parts.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(_, words)| words).collect::<Vec<_>>().join(" ")
}

/// The numbers: the id of their element, what they are, and their text.
fn cells(phase: &Phase) -> Vec<(&'static str, &'static str, String)> {
    let (tally, fates) = match phase {
        Phase::Starting | Phase::Failed { seen: None, .. } => return of_tally(&Tally::default()),
        Phase::Running(progress) | Phase::Failed { seen: Some(progress), .. } => {
            (&progress.tally, Some(&progress.fates))
        }
        Phase::Replayed(replayed) => (&replayed.tally, Some(&replayed.fates)),
        Phase::Discarded(discarded) => (&discarded.tally, None),
        Phase::Restored(restored) => (&restored.tally, None),
        Phase::Edited(edited) => return of_fates(&edited.fates).to_vec(),
    };
    let mut cells = of_tally(tally);
    // A discard has no fates.
    cells.extend(fates.filter(|fates| fates.sent > 0).into_iter().flat_map(of_fates));
    cells
}

fn of_tally(tally: &Tally) -> Vec<(&'static str, &'static str, String)> {
    let mut cells = vec![
        ("moved", "Sent, confirmed, and removed here", count(tally.moved)),
        ("matched", "Matching so far", count(tally.matched)),
    ];
    for (id, what, number) in [
        (
            "homeless",
            "Left here: they do not say which queue they belong to",
            tally.without_destination,
        ),
        (
            "missing",
            "Left here: their queue does not exist or cannot be served",
            tally.missing_destination,
        ),
        ("large", "Left here: too large for a copy, or not accepted", tally.too_large),
        ("unconfirmed", "Not confirmed; they may exist twice", tally.unconfirmed),
    ] {
        if number > 0 {
            cells.push((id, what, count(number)));
        }
    }
    cells
}

fn of_fates(fates: &Fates) -> [(&'static str, &'static str, String); 5] {
    [
        ("handled", "Handled", count(fates.handled)),
        ("again", "Parked again", count(fates.parked_again)),
        ("dropped", "Discarded by their handler", count(fates.discarded)),
        ("waiting", "Failed, and waiting for another attempt", count(fates.waiting)),
        ("unknown", "Fate unknown", count(fates.unknown())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(tally: Tally, fates: Fates) -> (String, bool) {
        let (run, unknown) = ("6fa15d2d04c8".to_owned(), fates.unknown());
        let mut replayed = Replayed::default();
        (replayed.run, replayed.tally, replayed.fates, replayed.unknown) =
            (run, tally, fates, unknown);
        in_words(&Phase::Replayed(replayed), None)
    }

    fn tally(matched: u64, moved: u64) -> Tally {
        let mut tally = Tally::default();
        (tally.matched, tally.moved, tally.missing_destination) = (matched, moved, matched - moved);
        tally
    }

    fn fates(sent: u64, handled: u64) -> Fates {
        let mut fates = Fates::default();
        (fates.sent, fates.handled) = (sent, handled);
        fates
    }

    #[test]
    fn a_fate_is_unknown_only_if_a_message_was_sent_and_nothing_was_heard_of_it() {
        let all = ("It is done: every message was handled.".to_owned(), false);
        assert_eq!(ended(tally(3, 3), fates(3, 3)), all);
        assert_eq!(ended(tally(3, 2), fates(2, 2)), (format!("It is done. {SOME_STAY}"), true));
        assert_eq!(ended(tally(3, 0), fates(0, 0)), (format!("It is done. {SOME_STAY}"), true));
        let (words, is_bad) = ended(tally(3, 3), fates(3, 2));
        assert!(
            is_bad && words.starts_with("It is done. Not every message's fate is known"),
            "{words}"
        );
        assert!(words.contains("6fa15d2d04c8") && !words.contains(SOME_STAY), "{words}");
        let (words, _) = ended(tally(3, 2), fates(2, 1));
        assert!(words.contains("fate is known") && words.ends_with(SOME_STAY), "{words}");
    }

    #[test]
    fn a_run_that_did_not_find_all_messages_does_not_say_that_it_is_done() {
        let error = ParkedError::Incomplete {
            queue: "orders.parked".to_owned(),
            looked_at: 380,
            wanted: 400,
        };
        let (words, is_bad) = in_words(&Phase::Failed { error, seen: None }, None);
        assert!(is_bad && words.starts_with("It ended early: only 380 of 400 messages"), "{words}");
        assert!(words.contains("Run it again"), "{words}");
    }

    #[test]
    fn an_edit_says_what_became_of_its_message() {
        let said = |[handled, parked_again, discarded, waiting]: [u64; 4]| {
            let mut edited = Edited::default();
            let fates = &mut edited.fates;
            (fates.sent, fates.handled, fates.parked_again) = (1, handled, parked_again);
            (fates.discarded, fates.waiting) = (discarded, waiting);
            in_words(&Phase::Edited(edited), None)
        };
        for (fates, words, is_bad) in [
            ([1, 0, 0, 0], "has handled", false),
            ([0, 1, 0, 0], "parked again", true),
            ([0, 0, 1, 0], "discarded", true),
            ([0, 0, 0, 1], "waits for another attempt", true),
            ([0; 4], "not known yet", true),
        ] {
            let said = said(fates);
            assert!(said.0.contains(words) && said.1 == is_bad, "{said:?}");
        }
    }

    #[test]
    fn every_fate_but_success_is_named() {
        let mut fates = fates(6, 3);
        (fates.parked_again, fates.discarded, fates.waiting) = (1, 1, 1);
        let said = "It is done. Some messages have parked again. Some messages were discarded by their handler. Some messages have failed, \
                    and wait for another attempt.";
        assert_eq!(ended(tally(6, 6), fates), (said.to_owned(), true));
    }
}
