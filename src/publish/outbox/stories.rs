//! What the outbox does about each thing that a broker can do, one at a time.

use std::time::{Duration, Instant};

use super::{
    Action, CopyId, LONGEST_CONFIRM_TIMEOUT, LaneId, Outbox, RECOVERED_AFTER, REPAIR_EVERY, Report, STEADY_AFTER,
    TRIALS, USUAL_ANSWER_TIME,
};
use crate::broker::lane::cause::{Cause, Trouble};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

struct Story {
    outbox: Outbox,
    now: Instant,
    is_blocked: bool,
    reports: Vec<Report>,
    /// What is to be done, and was asked for before the test does.
    ahead: Vec<Action>,
}

impl Story {
    /// A connection on which the lane of exchange `x`, which is lane 0, is open.
    fn begin() -> Self {
        let mut story = Self {
            outbox: Outbox::new(ANSWER_TIMEOUT, ["x"]),
            now: Instant::now(),
            is_blocked: false,
            reports: Vec::new(),
            ahead: Vec::new(),
        };
        assert_eq!(story.actions(), [Action::Connect]);
        assert_eq!(story.connect(), X);
        story
    }

    /// Opens every lane that is wanted on a new connection. Returns that of exchange `x`.
    fn connect(&mut self) -> LaneId {
        self.outbox.connected(self.now);
        let actions = self.actions();
        let [Action::Repair, Action::OpenLane(lane), ..] = actions[..] else { panic!("{actions:?}") };
        for action in actions {
            if let Action::OpenLane(lane) = action {
                self.outbox.lane_opened(lane);
            }
        }
        self.outbox.repaired();
        for action in self.actions() {
            match action {
                Action::OpenLane(lane) => self.outbox.lane_opened(lane),
                action => self.ahead.push(action),
            }
        }
        lane
    }

    fn opened(&mut self, lane: LaneId) -> Vec<Action> {
        self.outbox.lane_opened(lane);
        self.actions()
    }

    fn confirm(&mut self, id: u64) -> Vec<Action> {
        self.outbox.confirmed(CopyId(id), self.now);
        self.actions()
    }

    /// Submits a copy, opens the lane that it needs, and returns that lane once the copy is sent.
    fn send_to(&mut self, id: u64, exchange: &str) -> LaneId {
        self.outbox.submit(CopyId(id), exchange);
        let mut actions = self.actions();
        if let [Action::OpenLane(lane)] = actions[..] {
            actions = self.opened(lane);
        }
        let [Action::Send { lane, id: of, again: false }] = actions[..] else { panic!("{actions:?}") };
        assert_eq!(of, CopyId(id));
        lane
    }

    fn actions(&mut self) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.ahead);
        while let Some(action) = self.outbox.next(self.now, self.is_blocked, || 1.0) {
            match action {
                Action::Report(report) => self.reports.push(report),
                action => actions.push(action),
            }
        }
        actions
    }

    fn after(&mut self, pause: Duration) -> Vec<Action> {
        self.now += pause;
        self.actions()
    }

    /// Sends copies to exchange `x`, whose lane is open.
    fn send(&mut self, ids: impl IntoIterator<Item = u64>) {
        ids.into_iter().for_each(|id| self.outbox.submit(CopyId(id), "x"));
        self.actions();
    }

    fn closed(&mut self, lane: LaneId, code: u16, text: &str) -> Vec<Action> {
        self.outbox.lane_closed(lane, &Cause { code: Some(code), text: text.to_owned() }, self.now);
        self.actions()
    }

    /// Waits until the outbox does something.
    fn next_actions(&mut self) -> Vec<Action> {
        loop {
            self.now = self.now.max(self.outbox.wake_at().expect("something is to be done"));
            let actions = self.actions();
            if !actions.is_empty() {
                return actions;
            }
        }
    }

    /// Loses the connection, and waits until the outbox wants another one. Returns for how many milliseconds.
    fn disconnect(&mut self, text: &str) -> u128 {
        let since = self.now;
        self.outbox.connection_lost(&Cause::of(text), since);
        assert_eq!(self.actions(), []);
        assert_eq!(self.next_actions(), [Action::Connect]);
        (self.now - since).as_millis()
    }

    /// Sends a copy to exchange `x`, whose lane is then closed over it. Returns the lane on which the copy is tried alone.
    fn alone(&mut self, id: u64) -> LaneId {
        self.send([id]);
        let actions = self.closed(X, 406, "no");
        let [Action::OpenLane(next), Action::OpenLane(lane)] = actions[..] else { panic!("{actions:?}") };
        assert_eq!(self.opened(next), []);
        assert_eq!(self.opened(lane), [sent(lane, id, true)]);
        lane
    }

    /// Waits until the outbox sends a copy again, and opens each lane that it wants meanwhile.
    fn next_send(&mut self) -> (LaneId, CopyId) {
        loop {
            let actions = self.actions();
            if actions.is_empty() {
                self.now = self.now.max(self.outbox.wake_at().expect("something is to be done"));
            }
            for action in &actions {
                match *action {
                    Action::OpenLane(lane) => self.outbox.lane_opened(lane),
                    Action::Send { lane, id, again: true } if actions.len() == 1 => return (lane, id),
                    _ => panic!("{actions:?}"),
                }
            }
        }
    }
}

/// The first lane of exchange `x`.
const X: LaneId = LaneId(0);
const FORBIDDEN: &str = "ACCESS_REFUSED - access to exchange 'x' in vhost '/' refused for user 'u'";

fn sent(lane: LaneId, id: u64, again: bool) -> Action {
    Action::Send { lane, id: CopyId(id), again }
}

fn frame_error() -> Cause {
    Cause { code: Some(501), text: "FRAME_ERROR".to_owned() }
}

fn confirmed(id: u64) -> Action {
    Action::Confirmed(CopyId(id))
}

#[test]
fn copies_go_out_at_once_on_the_lane_of_their_exchange_and_their_confirms_come_back() {
    let mut story = Story::begin();
    story.outbox.submit(CopyId(1), "x");
    story.outbox.submit(CopyId(2), "y");
    story.outbox.submit(CopyId(3), "x");
    let actions = story.actions();
    let [Action::OpenLane(lane), ..] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(actions[1..], [1, 3].map(|id| sent(X, id, false)));
    assert_eq!(story.opened(lane), [sent(lane, 2, false)]);
    assert_eq!([2, 1, 3].map(|id| story.confirm(id)), [2, 1, 3].map(|id| [confirmed(id)]));
}

#[test]
fn a_nacked_copy_is_tried_alone_after_a_pause_that_doubles_and_the_others_go_on() {
    let mut story = Story::begin();
    story.send(1..=2);
    story.outbox.nacked(X, CopyId(1));
    assert_eq!(story.confirm(2), [confirmed(2)]);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert_eq!(story.actions(), []);
        let since = story.now;
        let (lane, id) = story.next_send();
        assert_eq!(id, CopyId(1));
        pauses.push((story.now - since).as_millis());
        story.outbox.nacked(lane, id);
        assert_eq!(story.actions(), [Action::CloseLane(lane)]);
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    let (lane, _) = story.next_send();
    assert!(story.confirm(1).starts_with(&[Action::CloseLane(lane)]));
    assert_eq!(story.reports.len(), 1, "once for all tries: {:?}", story.reports);
    story.after(Duration::from_secs(10));
    assert_eq!(story.reports.last(), Some(&Report::Recovered { exchange: "x".to_owned() }));
}

/// 3.10 goes on refusing on the old one if the limit of the queue is removed.
#[test]
fn after_a_full_queue_has_room_again_the_lane_of_its_exchange_is_replaced_once_nothing_is_under_way_on_it() {
    let mut story = Story::begin();
    story.send(1..=3);
    story.outbox.nacked(X, CopyId(1));
    story.outbox.nacked(X, CopyId(2));
    let first = story.next_actions();
    let [Action::OpenLane(one), Action::OpenLane(two)] = first[..] else { panic!("{first:?}") };
    story.opened(one);
    story.opened(two);
    assert_eq!(story.confirm(1), [Action::CloseLane(one), confirmed(1)], "copy 3 is under way");
    assert_eq!(story.confirm(3), [confirmed(3)]);
    let actions = story.confirm(2);
    let [Action::CloseLane(_), Action::CloseLane(X), Action::Confirmed(_), Action::OpenLane(next)] = actions[..] else {
        panic!("{actions:?}")
    };
    story.opened(next);
    assert_eq!(story.send_to(4, "x"), next);
}

#[test]
fn a_copy_that_is_slow_to_be_confirmed_is_sent_again_after_one_close_of_its_exchange_and_not_after_the_next() {
    let mut story = Story::begin();
    story.send([1]);
    story.after(USUAL_ANSWER_TIME);
    story.send([2]);
    story.closed(X, 403, FORBIDDEN);
    let (slow, id) = story.next_send();
    assert_eq!(id, CopyId(1));
    let (quick, id) = story.next_send();
    assert_eq!((id, story.confirm(2)), (CopyId(2), vec![Action::CloseLane(quick), confirmed(2)]));
    let of_x = story.send_to(3, "x");
    assert_eq!(story.closed(of_x, 403, FORBIDDEN), []);
    assert_eq!(story.next_send().1, CopyId(3));
    assert_eq!(story.confirm(1), [Action::CloseLane(slow), confirmed(1)]);
}

#[test]
fn a_returned_copy_is_tried_alone_once_the_topology_is_established_again() {
    let mut story = Story::begin();
    story.after(Duration::from_secs(10));
    story.send([1]);
    story.outbox.returned(X, CopyId(1));
    assert_eq!(story.actions(), [Action::Repair]);
    story.outbox.submit(CopyId(2), "x");
    assert_eq!(story.after(Duration::from_secs(1)), [], "an exchange without its bindings sends everything astray");
    story.outbox.repaired();
    let actions = story.actions();
    let [Action::Send { id: CopyId(2), .. }, Action::OpenLane(lane)] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(story.opened(lane), [sent(lane, 1, true)]);
    story.outbox.returned(lane, CopyId(1));
    assert_eq!(story.actions(), [Action::CloseLane(lane)], "the next repair comes after a pause");
}

#[test]
fn a_lane_that_is_closed_over_its_exchange_holds_its_copies_back_and_one_of_them_finds_out_when_that_is_over() {
    let mut story = Story::begin();
    story.send(1..=3);
    let other = story.send_to(4, "y");
    assert_eq!(story.closed(X, 403, FORBIDDEN), []);
    assert!(matches!(&story.reports[..], [Report::Trouble { trouble: Trouble::Forbidden, .. }]));
    assert_eq!(story.confirm(4), [confirmed(4)]);
    assert_eq!(story.send_to(5, "y"), other, "no other exchange is concerned");
    story.outbox.submit(CopyId(6), "x");
    let (lane, first) = story.next_send();
    assert_eq!((first, story.actions()), (CopyId(1), vec![]), "one finds out");
    assert_eq!(story.closed(lane, 403, FORBIDDEN), []);
    let (lane, first) = story.next_send();
    assert_eq!((first, story.actions()), (CopyId(1), vec![]));
    let of_x = story.outbox.exchanges[0].lane.unwrap();
    let others = [sent(of_x, 2, true), sent(of_x, 3, true), sent(of_x, 6, false)];
    assert_eq!(story.confirm(1), [&[Action::CloseLane(lane), confirmed(1)], &others[..]].concat());
}

#[test]
fn after_a_close_that_blames_no_exchange_each_copy_is_tried_alone_at_once() {
    let mut story = Story::begin();
    story.send(1..=3);
    let actions = story.closed(X, 406, "PRECONDITION_FAILED - invalid expiration");
    assert!(actions.iter().all(|action| matches!(action, Action::OpenLane(_))), "{actions:?}");
    assert_eq!(actions.len(), 4, "one is the next lane of the exchange: {actions:?}");
    assert!(matches!(story.reports[..], [Report::Doubt { unconfirmed: 3, .. }]));
}

#[test]
fn a_copy_that_closes_three_lanes_alone_is_given_up() {
    let mut story = Story::begin();
    let mut lane = story.alone(1);
    for _ in 0..2 {
        assert_eq!(story.closed(lane, 406, "no"), []);
        (lane, _) = story.next_send();
    }
    assert_eq!(story.closed(lane, 406, "no"), [Action::Unpublishable(CopyId(1), "no".to_owned())]);
    assert_eq!(story.after(Duration::from_secs(60)), []);
}

#[test]
fn what_was_under_way_on_a_lost_connection_is_sent_again_in_order() {
    let mut story = Story::begin();
    story.send(1..=3);
    story.confirm(2);
    story.outbox.connection_lost(&Cause::of("reset"), story.now);
    assert_eq!(story.actions(), []);
    story.outbox.submit(CopyId(4), "x");
    assert_eq!(story.after(Duration::from_millis(100)), [Action::Connect]);
    let lane = story.connect();
    assert_eq!(story.actions(), [sent(lane, 1, true), sent(lane, 3, true), sent(lane, 4, false)]);
}

#[test]
fn a_copy_that_closes_the_connection_is_tried_only_while_nothing_else_is_under_way() {
    let mut story = Story::begin();
    let cause = Cause { code: Some(501), text: "FRAME_ERROR".to_owned() };
    story.send([1]);
    for number in 0..3 {
        story.outbox.connection_lost(&cause, story.now);
        assert_eq!(story.actions(), []);
        assert_eq!(story.after(Duration::from_secs(10)), [Action::Connect]);
        story.connect();
        assert!(matches!(story.actions()[..], [Action::Send { id: CopyId(1), again: true, .. }]), "try {number}");
        story.outbox.submit(CopyId(2 + number), "x");
        assert_eq!(story.actions(), [], "nothing is sent beside it");
    }
    story.outbox.connection_lost(&cause, story.now);
    assert_eq!(story.actions(), [Action::Unpublishable(CopyId(1), "FRAME_ERROR".to_owned())]);
}

#[test]
fn a_suspect_waits_until_what_is_under_way_is_confirmed_and_the_others_have_their_turn_after_it() {
    let mut story = Story::begin();
    story.send(1..=2);
    story.outbox.connection_lost(&Cause { code: Some(501), text: "FRAME_ERROR".to_owned() }, story.now);
    assert_eq!(story.actions(), []);
    assert_eq!(story.after(Duration::from_secs(10)), [Action::Connect]);
    let of_x = story.connect();
    let actions = story.actions();
    let [Action::Send { lane, id: CopyId(1), .. }] = actions[..] else { panic!("{actions:?}") };
    story.outbox.submit(CopyId(3), "x");
    assert_eq!(story.confirm(1), [Action::CloseLane(lane), confirmed(1), sent(of_x, 3, false)]);
    assert_eq!(story.after(Duration::from_millis(100)), [], "the other suspect waits for copy 3");
    story.outbox.submit(CopyId(4), "x");
    assert_eq!(story.actions(), []);
    story.outbox.confirmed(CopyId(3), story.now);
    assert!(matches!(story.actions()[..], [Action::Confirmed(CopyId(3)), Action::OpenLane(_)]));
}

#[test]
fn an_overdue_confirm_is_waited_for_as_long_as_the_connection_answers() {
    let mut story = Story::begin();
    story.send([1]);
    let sent_at = story.now;
    assert_eq!(story.after(ANSWER_TIMEOUT), [Action::Probe]);
    story.outbox.probed();
    assert_eq!(story.after(ANSWER_TIMEOUT), [], "its confirm timeout has doubled");
    assert_eq!(story.after(ANSWER_TIMEOUT), [Action::Probe]);
    loop {
        story.outbox.probed();
        story.now = story.outbox.wake_at().unwrap();
        match story.actions()[..] {
            [Action::Probe] | [] => {}
            [Action::OpenLane(lane)] => {
                story.outbox.lane_opened(lane);
                assert_eq!(story.actions(), [sent(lane, 1, true)]);
                break;
            }
            ref other => panic!("{other:?}"),
        }
    }
    assert!(story.now - sent_at >= LONGEST_CONFIRM_TIMEOUT);
    // The first one's confirm is as good.
    story.outbox.confirmed(CopyId(1), story.now);
    assert!(story.actions().contains(&confirmed(1)));
}

#[test]
fn a_connection_that_does_not_answer_is_given_up() {
    let mut story = Story::begin();
    story.send([1]);
    assert_eq!(story.after(ANSWER_TIMEOUT), [Action::Probe]);
    assert_eq!(story.after(ANSWER_TIMEOUT), []);
    assert_eq!(story.after(Duration::from_millis(100)), [Action::Connect]);
    // Nor one whose channel is never opened.
    story.outbox.connected(story.now);
    assert!(matches!(story.actions()[..], [Action::Repair, Action::OpenLane(_)]));
    story.outbox.repaired();
    assert_eq!(story.after(ANSWER_TIMEOUT), []);
    assert_eq!(story.after(Duration::from_secs(10)), [Action::Connect]);
}

#[test]
fn nothing_is_overdue_while_the_connection_is_blocked() {
    let mut story = Story::begin();
    story.send([1]);
    story.is_blocked = true;
    for _ in 0..100 {
        assert_eq!(story.after(ANSWER_TIMEOUT), []);
    }
    story.is_blocked = false;
    assert_eq!(story.after(ANSWER_TIMEOUT), [Action::Probe]);
}

#[test]
fn nothing_is_sent_while_the_connection_is_blocked_and_what_is_given_up_meanwhile_is_never_sent() {
    let mut story = Story::begin();
    story.is_blocked = true;
    for id in 1..=3 {
        story.outbox.submit(CopyId(id), "x");
    }
    assert_eq!(story.after(ANSWER_TIMEOUT), []);
    story.outbox.withdraw(CopyId(2), story.now);
    story.is_blocked = false;
    assert_eq!(story.actions(), [1, 3].map(|id| sent(X, id, false)));
}

#[test]
fn a_copy_that_is_given_up_vanishes() {
    let mut story = Story::begin();
    let lane = story.alone(4);
    let of_x = story.send_to(1, "x");
    story.send(2..=3);
    story.outbox.nacked(of_x, CopyId(2));
    for id in 1..=4 {
        story.outbox.withdraw(CopyId(id), story.now);
    }
    assert_eq!(story.actions(), [Action::CloseLane(lane)]);
    story.outbox.confirmed(CopyId(3), story.now);
    assert_eq!(story.after(Duration::from_secs(60)), []);
}

#[test]
fn a_bounded_number_of_copies_is_tried_at_once_and_slow_ones_do_not_count() {
    let mut story = Story::begin();
    story.send(0..40);
    let lanes = story.closed(X, 406, "no").split_off(1);
    assert_eq!(lanes.len(), TRIALS);
    for lane in lanes {
        let Action::OpenLane(lane) = lane else { panic!("{lane:?}") };
        story.outbox.lane_opened(lane);
    }
    assert_eq!(story.actions().len(), TRIALS, "they are sent, and not confirmed");
    assert_eq!(story.after(USUAL_ANSWER_TIME).len(), TRIALS, "others are tried");
}

#[test]
fn a_suspect_is_tried_although_the_confirm_of_another_copy_is_late() {
    let mut story = Story::begin();
    story.send([1]);
    story.after(USUAL_ANSWER_TIME);
    story.send(2..=3);
    story.outbox.connection_lost(&frame_error(), story.now);
    story.after(Duration::from_secs(10));
    let of_x = story.connect();
    // What was under way for long did not break the connection, so only copies 2 and 3 are suspect.
    let actions = story.actions();
    let [Action::Send { lane, id: CopyId(2), .. }] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(story.confirm(2), [Action::CloseLane(lane), confirmed(2), sent(of_x, 1, true)]);
    assert_eq!(story.after(Duration::from_millis(100)), [], "copy 1 was sent a moment ago");
    assert_eq!(story.outbox.wake_at(), Some(story.now + USUAL_ANSWER_TIME));
    let actions = story.after(USUAL_ANSWER_TIME);
    let [Action::OpenLane(lane)] = actions[..] else { panic!("{actions:?}") };
    story.outbox.lane_opened(lane);
    assert_eq!(story.actions(), [sent(lane, 3, true)]);
    // It breaks the connection, and the late one is not blamed for that: it never has to wait for a lane of its own.
    for _ in 0..2 {
        story.outbox.connection_lost(&frame_error(), story.now);
        assert_eq!(story.actions(), []);
        story.after(Duration::from_secs(10));
        story.connect();
        let actions = story.actions();
        let [Action::Send { id: CopyId(3), .. }] = actions[..] else { panic!("{actions:?}") };
    }
    story.outbox.connection_lost(&frame_error(), story.now);
    assert_eq!(story.actions(), [Action::Unpublishable(CopyId(3), "FRAME_ERROR".to_owned())]);
}

#[test]
fn while_the_connection_is_blocked_no_time_clears_what_is_under_way() {
    let mut story = Story::begin();
    story.send(1..=2);
    story.outbox.connection_lost(&frame_error(), story.now);
    story.after(Duration::from_secs(10));
    story.connect();
    story.actions();
    story.confirm(1);
    story.send_to(3, "x");
    story.after(Duration::from_millis(100));
    story.is_blocked = true;
    assert_eq!(story.after(2 * USUAL_ANSWER_TIME), []);
    story.is_blocked = false;
    assert!(matches!(story.actions()[..], [Action::OpenLane(_)]), "the other suspect");
}

#[test]
fn a_confirm_of_what_was_sent_before_an_exchange_was_closed_does_not_open_it_again() {
    let mut story = Story::begin();
    let lane = story.alone(1);
    let of_x = story.send_to(2, "x");
    assert_eq!(story.closed(of_x, 403, FORBIDDEN), []);
    assert_eq!(story.confirm(1), [Action::CloseLane(lane), confirmed(1)]);
    story.outbox.submit(CopyId(3), "x");
    assert_eq!(story.actions(), [], "copy 3 is held");
    assert_eq!(story.next_send().1, CopyId(2));
    assert!(matches!(story.confirm(2)[2..], [Action::Send { id: CopyId(3), .. }]), "copy 2 was sent after the close");
}

#[test]
fn a_confirm_of_the_copy_that_finds_out_proves_nothing_if_the_exchange_was_closed_meanwhile() {
    let mut story = Story::begin();
    let lane = story.alone(1);
    let of_x = story.send_to(2, "x");
    story.send([3]);
    story.closed(of_x, 403, FORBIDDEN);
    assert_eq!(story.next_send().1, CopyId(2));
    assert_eq!(story.closed(lane, 403, FORBIDDEN), []);
    assert!(story.confirm(2).contains(&confirmed(2)));
    assert_eq!(story.after(Duration::from_millis(199)), []);
    assert_eq!(story.next_send().1, CopyId(1), "another finds out, after a pause");
    assert_eq!(story.actions(), []);
}

#[test]
fn what_is_refused_while_the_pause_of_its_exchange_runs_rests_as_long() {
    let mut story = Story::begin();
    let lane = story.alone(1);
    let of_x = story.send_to(2, "x");
    story.closed(of_x, 403, FORBIDDEN);
    assert_eq!(story.after(Duration::from_millis(60)), []);
    assert_eq!(story.closed(lane, 403, FORBIDDEN), []);
    assert_eq!(story.after(Duration::from_millis(60)), []);
    assert_eq!(story.next_send().1, CopyId(1));
}

#[test]
fn copies_to_other_exchanges_go_on_while_one_is_repaired() {
    let mut story = Story::begin();
    story.after(Duration::from_secs(10));
    story.send([1]);
    story.outbox.returned(X, CopyId(1));
    assert_eq!(story.actions(), [Action::Repair]);
    story.outbox.submit(CopyId(2), "x");
    story.send_to(3, "y");
    story.outbox.repaired();
    assert_eq!(story.actions(), [sent(X, 2, false)]);
}

#[test]
fn a_copy_that_is_returned_during_a_repair_is_kept_and_asks_for_another_repair() {
    let mut story = Story::begin();
    story.after(Duration::from_secs(10));
    story.send(1..=2);
    story.outbox.returned(X, CopyId(1));
    assert_eq!(story.actions(), [Action::Repair]);
    story.outbox.returned(X, CopyId(2));
    assert_eq!(story.actions(), []);
    assert_eq!(story.after(Duration::from_secs(3)), [], "both wait for the repair");
    story.outbox.repaired();
    let lanes = story.actions();
    assert_eq!(lanes.len(), 2, "each is tried, once: {lanes:?}");
    for action in lanes {
        let Action::OpenLane(lane) = action else { panic!("{action:?}") };
        story.outbox.lane_opened(lane);
    }
    assert_eq!(story.actions().len(), 2);
    for id in 1..=2 {
        story.outbox.confirmed(CopyId(id), story.now);
    }
    story.actions();
    assert_eq!(story.after(Duration::from_secs(2)), [Action::Repair]);
    // Now it is this exchange again that waits.
    story.outbox.submit(CopyId(3), "x");
    assert_eq!(story.actions(), []);
    story.outbox.repaired();
    assert_eq!(story.actions(), [sent(X, 3, false)]);
}

#[test]
fn a_confirm_that_comes_when_its_connection_was_given_up_opens_the_exchange() {
    let mut story = Story::begin();
    story.send([1]);
    story.closed(X, 403, FORBIDDEN);
    assert_eq!(story.next_send().1, CopyId(1));
    story.outbox.connection_lost(&Cause::of("the connection ended"), story.now);
    // It was on its way before the end.
    assert!(story.confirm(1).contains(&confirmed(1)));
    assert_eq!(story.after(Duration::from_secs(10)), [Action::Connect]);
    story.connect();
    let lane = story.send_to(2, "x");
    assert_eq!(story.send_to(3, "x"), lane, "nothing is held back");
}

#[test]
fn a_suspect_that_is_refused_is_none_any_more_and_holds_nothing_up() {
    let mut story = Story::begin();
    story.send([1, 2]);
    story.outbox.connection_lost(&frame_error(), story.now);
    assert_eq!(story.actions(), []);
    assert_eq!(story.after(Duration::from_secs(10)), [Action::Connect]);
    story.connect();
    let actions = story.actions();
    let [Action::Send { lane, id: suspect, .. }] = actions[..] else { panic!("{actions:?}") };
    story.outbox.nacked(lane, suspect);
    let actions = story.actions();
    assert!(actions.contains(&Action::CloseLane(lane)), "{actions:?}");
    let before = story.now;
    let (_, other) = story.next_send();
    assert_ne!(other, suspect);
    assert!(story.now < before + USUAL_ANSWER_TIME, "the other one is tried soon");
}

#[test]
fn a_connection_is_made_after_a_pause_that_doubles_until_one_was_steady() {
    let mut story = Story::begin();
    let mut pauses = vec![story.disconnect("no"), story.disconnect("no")];
    for lasted in [STEADY_AFTER - Duration::from_nanos(1), STEADY_AFTER] {
        story.connect();
        story.after(lasted);
        pauses.push(story.disconnect("no"));
    }
    assert_eq!(pauses, [100, 200, 400, 100]);
}

#[test]
fn each_reason_for_which_there_is_no_connection_is_reported_once() {
    let mut story = Story::begin();
    for text in ["reset", "refused", "refused", "refused"] {
        story.disconnect(text);
    }
    story.connect();
    story.disconnect("refused");
    let reports = ["reset", "refused", "refused"];
    assert_eq!(story.reports, reports.map(|text| Report::Disconnected { text: text.to_owned(), unconfirmed: 0 }));
}

#[test]
fn a_lane_with_nothing_under_way_is_opened_after_a_pause_that_doubles_until_a_copy_is_confirmed_on_it() {
    let mut story = Story::begin();
    let mut lane = X;
    let mut pauses = Vec::new();
    for number in 0..4 {
        match number {
            2 => {
                story.disconnect("no");
                lane = story.connect();
            }
            3 => {
                let alone = story.send_to(1, "x");
                assert_eq!(story.confirm(1), [Action::CloseLane(alone), confirmed(1)]);
            }
            _ => {}
        }
        let since = story.now;
        assert_eq!(story.closed(lane, 541, "INTERNAL_ERROR"), []);
        let actions = story.next_actions();
        let [Action::OpenLane(next)] = actions[..] else { panic!("{actions:?}") };
        story.outbox.lane_opened(next);
        lane = next;
        pauses.push((story.now - since).as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 100]);
}

#[test]
fn a_lane_that_is_closed_before_its_copy_was_sent_says_nothing_about_the_copy_or_its_exchange() {
    let mut story = Story::begin();
    story.send([1]);
    let actions = story.closed(X, 406, "no");
    let [Action::OpenLane(of_x), Action::OpenLane(lane)] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(story.opened(of_x), []);
    assert_eq!(story.closed(lane, 403, FORBIDDEN), []);
    assert!(matches!(story.reports[..], [Report::Doubt { .. }]), "{:?}", story.reports);
    story.send_to(2, "x");
    assert_eq!(story.next_send().1, CopyId(1));
}

#[test]
fn a_suspect_whose_confirm_is_late_holds_nothing_up_and_is_not_blamed_alone_for_the_next_loss() {
    let mut story = Story::begin();
    story.send(1..=2);
    story.outbox.connection_lost(&frame_error(), story.now);
    story.after(Duration::from_secs(10));
    story.connect();
    let actions = story.actions();
    assert!(matches!(actions[..], [Action::Send { id: CopyId(1), .. }]), "{actions:?}");
    assert_eq!(story.after(USUAL_ANSWER_TIME), []);
    story.send_to(3, "x");
    assert_eq!(story.confirm(3), [confirmed(3)]);
    assert_eq!(story.next_send().1, CopyId(2));
    // Both suspects have been under way for so long that either may be why the connection is lost.
    story.after(2 * USUAL_ANSWER_TIME);
    story.outbox.connection_lost(&frame_error(), story.now);
    story.actions();
    assert!(!story.reports.iter().any(|report| matches!(report, Report::Trouble { .. })), "{:?}", story.reports);
}

#[test]
fn a_suspect_whose_lane_is_never_opened_ends_the_connection() {
    let (mut story, _) = opening_a_lane_for_a_suspect();
    assert_eq!(story.next_actions(), [Action::Connect]);
}

#[test]
fn a_copy_is_sent_again_after_twice_as_long_each_time_that_its_confirm_does_not_come() {
    let mut story = Story::begin();
    story.send([1]);
    let mut pauses = Vec::new();
    let mut since = story.now;
    while pauses.len() < 3 {
        story.outbox.probed();
        if let Some(Action::OpenLane(lane)) = story.next_actions().last() {
            pauses.push((story.now - since).as_secs() / LONGEST_CONFIRM_TIMEOUT.as_secs());
            since = story.now;
            story.outbox.lane_opened(*lane);
            assert_eq!(story.actions(), [sent(*lane, 1, true)]);
        }
    }
    assert_eq!(pauses, [1, 2, 4]);
}

#[test]
fn a_copy_that_is_given_up_during_a_repair_takes_no_other_with_it() {
    let mut story = Story::begin();
    story.after(REPAIR_EVERY);
    story.send([1]);
    story.outbox.returned(X, CopyId(1));
    assert_eq!(story.actions(), [Action::Repair]);
    story.send(2..=3);
    story.outbox.withdraw(CopyId(1), story.now);
    story.outbox.withdraw(CopyId(2), story.now);
    story.outbox.repaired();
    assert_eq!(story.actions(), [sent(X, 3, false)]);
}

#[test]
fn an_exchange_has_recovered_when_no_copy_was_in_trouble_for_a_while() {
    let mut story = Story::begin();
    story.send(1..=2);
    let recovered = |story: &Story| story.reports.iter().any(|report| matches!(report, Report::Recovered { .. }));
    story.outbox.nacked(X, CopyId(1));
    assert_eq!(story.next_send().1, CopyId(1));
    story.outbox.confirmed(CopyId(1), story.now);
    story.outbox.nacked(X, CopyId(2));
    story.actions();
    assert_eq!(story.next_send().1, CopyId(2));
    story.after(RECOVERED_AFTER);
    assert!(!recovered(&story), "copy 2 is in trouble");
    story.outbox.confirmed(CopyId(2), story.now);
    story.actions();
    story.after(RECOVERED_AFTER - Duration::from_nanos(1));
    assert!(!recovered(&story));
    story.after(Duration::from_nanos(1));
    assert!(recovered(&story));
}

#[test]
fn one_copy_finds_out_whether_an_exchange_takes_any_after_a_pause_that_doubles() {
    let mut story = Story::begin();
    story.send(1..=3);
    assert_eq!(story.closed(X, 403, FORBIDDEN), []);
    let tries = [(); 4].map(|()| {
        let since = story.now;
        let (lane, id) = story.next_send();
        assert_eq!(story.closed(lane, 403, FORBIDDEN), []);
        (id.0, (story.now - since).as_millis())
    });
    assert_eq!(tries, [(1, 100), (1, 200), (1, 400), (1, 800)]);
}

#[test]
fn no_copy_waits_for_one_that_was_given_up_or_has_no_answer_for_long() {
    for is_given_up in [true, false] {
        let mut story = Story::begin();
        story.send(1..=3);
        story.closed(X, 403, FORBIDDEN);
        let (lane, first) = story.next_send();
        assert_eq!(first, CopyId(1));
        if is_given_up {
            story.outbox.withdraw(first, story.now);
            assert_eq!(story.outbox.next(story.now, false, || 1.0), Some(Action::CloseLane(lane)));
        } else {
            assert_eq!(story.after(USUAL_ANSWER_TIME - Duration::from_nanos(1)), []);
            story.now += Duration::from_nanos(1);
        }
        let actions = story.actions();
        let [Action::OpenLane(lane)] = actions[..] else { panic!("{actions:?}") };
        assert_eq!(story.opened(lane), [sent(lane, 2, true)]);
        assert_eq!(story.after(USUAL_ANSWER_TIME / 2), [], "one at a time, however slow the broker is");
    }
}

#[test]
fn no_copy_waits_for_a_suspect_whose_exchange_is_closed_meanwhile() {
    let mut story = Story::begin();
    let of_y = story.send_to(1, "y");
    story.after(USUAL_ANSWER_TIME);
    story.send(2..=3);
    story.outbox.connection_lost(&frame_error(), story.now);
    story.after(Duration::from_secs(10));
    let of_x = story.connect();
    story.actions();
    story.confirm(2);
    assert_ne!(of_x, of_y);
    let actions = story.next_actions();
    let [Action::OpenLane(lane)] = actions[..] else { panic!("{actions:?}") };
    // Late news of the lane of the exchange.
    assert_eq!(story.closed(of_x, 403, FORBIDDEN), []);
    story.outbox.submit(CopyId(4), "y");
    let actions = story.opened(lane);
    assert!(
        matches!(actions[..], [Action::CloseLane(of), Action::Send { id: CopyId(4), .. }] if of == lane),
        "{actions:?}"
    );
}

#[test]
fn while_one_copy_finds_out_the_confirm_of_what_was_sent_before_lets_no_other_go() {
    let mut story = Story::begin();
    story.send(1..=3);
    story.closed(X, 403, FORBIDDEN);
    assert_eq!(story.next_send().1, CopyId(1));
    assert_eq!(story.confirm(2), [confirmed(2)]);
    assert_eq!(story.after(USUAL_ANSWER_TIME / 2), [], "copy 1 still finds out");
}

#[test]
fn a_blocked_connection_may_take_any_time_to_open_a_lane() {
    let mut story = Story::begin();
    story.send([1]);
    let actions = story.closed(X, 406, "no");
    let [Action::OpenLane(_), Action::OpenLane(lane)] = actions[..] else { panic!("{actions:?}") };
    story.is_blocked = true;
    for _ in 0..10 {
        assert_eq!(story.after(ANSWER_TIMEOUT), []);
    }
    story.outbox.lane_opened(lane);
    story.is_blocked = false;
    assert_eq!(story.actions(), [sent(lane, 1, true)]);
}

#[test]
fn there_is_one_repair_at_a_time_however_long_it_takes() {
    let mut story = Story::begin();
    story.after(REPAIR_EVERY);
    story.send(1..=2);
    story.outbox.returned(X, CopyId(1));
    assert_eq!(story.actions(), [Action::Repair]);
    story.outbox.returned(X, CopyId(2));
    assert_eq!(story.after(2 * REPAIR_EVERY), []);
    story.outbox.repaired();
    assert!(story.actions().contains(&Action::Repair));
}

fn opening_a_lane_for_a_suspect() -> (Story, LaneId) {
    let mut story = Story::begin();
    story.send(1..=2);
    story.outbox.connection_lost(&frame_error(), story.now);
    story.after(Duration::from_secs(10));
    story.connect();
    story.actions();
    story.outbox.confirmed(CopyId(1), story.now);
    story.actions();
    let actions = story.next_actions();
    let [Action::OpenLane(lane)] = actions[..] else { panic!("{actions:?}") };
    (story, lane)
}

#[test]
fn a_suspect_whose_lane_takes_too_long_to_open_is_not_sent_on_it() {
    let (mut story, lane) = opening_a_lane_for_a_suspect();
    story.is_blocked = true;
    assert_eq!(story.after(USUAL_ANSWER_TIME + ANSWER_TIMEOUT), []);
    story.is_blocked = false;
    story.outbox.lane_opened(lane);
    assert_eq!(story.actions().first(), Some(&Action::CloseLane(lane)));
}

#[test]
fn a_lane_that_opens_for_a_suspect_during_an_alarm_is_closed_if_the_alarm_lasts() {
    let (mut story, lane) = opening_a_lane_for_a_suspect();
    story.is_blocked = true;
    story.outbox.lane_opened(lane);
    assert_eq!(story.actions(), []);
    assert_eq!(story.after(USUAL_ANSWER_TIME + ANSWER_TIMEOUT), [Action::CloseLane(lane)]);
}
