//! The faults.

mod access;
mod accounts;
mod broker;
mod clock;
mod cluster;
mod handler;
mod hostile;
mod kill;
mod limits;
mod network;
mod order;
mod parked;
mod poison;
mod quotas;
mod repeated_looks;
mod rolling;
mod several;
mod shutdown;
mod soak;
mod stalls;
mod steps;
mod strategies;
mod topology;
mod upgrade;
mod versions;
mod waits;

use rehop::settings::WaitStrategy::{DelayedExchange, Ladder, Native, Tiers};

use crate::runner::Case;
use crate::runner::Needs::{Broker, Corner, Docker, Machine};
use crate::runner::case;

pub(crate) use soak::lasts as soak_lasts;

/// In the order in which the table shows them.
pub(crate) fn all() -> Vec<Case> {
    [
        kills(),
        poison_and_handlers(),
        connections_and_clocks(),
        deleted_and_full_queues(),
        stops(),
        looks(),
        killed_operators(),
        operators_in_trouble(),
        several_queues_and_order(),
        broker_failures(),
        quotas(),
        alarms_and_timeouts(),
        names_headers_and_access(),
        clusters_and_amounts(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn kills() -> Vec<Case> {
    vec![
        case(Corner, "the ledger notices each way in which an account can be wrong", accounts::are_checked),
        case(Corner, "the process is killed before a handler has seen the messages", kill::before_the_handler),
        case(Corner, "the process is killed in the handler", kill::in_the_handler),
        case(Corner, "the process is killed after the handler and before the ack", kill::after_the_handler),
        case(Corner, "the process is killed after the copy is published and before its confirm", |ground| {
            kill::before_the_confirm(ground, Tiers)
        }),
        case(
            Corner,
            "the process is killed after a copy for the ladder is published and before its confirm",
            |ground| kill::before_the_confirm(ground, Ladder),
        )
        .long_only(),
        case(Corner, "the process is killed between the confirm and the ack", |ground| {
            kill::between_confirm_and_ack(ground, Tiers)
        }),
        case(Corner, "the process is killed between the confirm of a copy for the ladder and the ack", |ground| {
            kill::between_confirm_and_ack(ground, Ladder)
        })
        .long_only(),
        case(
            Corner,
            "the process is killed after a copy for a delayed exchange is published and before its confirm",
            |ground| kill::before_the_confirm(ground, DelayedExchange),
        )
        .long_only(),
        case(
            Corner,
            "the process is killed between the confirm of a copy for a delayed exchange and the ack",
            |ground| kill::between_confirm_and_ack(ground, DelayedExchange),
        )
        .long_only(),
        case(Corner, "the process is killed after the ack", kill::after_the_ack),
        case(Corner, "the process is killed at each step that changes something", steps::in_fair_weather),
        case(
            Corner,
            "the process is killed at each step while the parked queue is full",
            steps::while_the_parked_queue_is_full,
        )
        .long_only(),
        case(Corner, "the process is killed at each step while confirms come late", steps::while_confirms_are_late)
            .long_only(),
        case(Corner, "processes are killed at random moments under load", kill::at_random),
    ]
}

fn poison_and_handlers() -> Vec<Case> {
    vec![
        case(
            Corner,
            "a message that kills its process parks itself and no innocent, with one instance",
            |ground| poison::alone(ground, 1),
        ),
        case(
            Corner,
            "a message that kills its process parks itself and no innocent, with three instances",
            |ground| poison::alone(ground, 3),
        )
        .long_only(),
        case(
            Corner,
            "a message that kills its process parks itself and no innocent, with slow handlers",
            poison::among_slow_ones,
        )
        .long_only(),
        case(
            Corner,
            "three messages that kill their process park themselves and no innocent",
            poison::three,
        )
        .long_only(),
        case(
            Corner,
            "messages that kill their process park themselves and no innocent, in a queue in which messages wait",
            poison::in_a_queue_that_delays,
        ),
        case(Corner, "a handler that panics takes no neighbour with it", handler::panics),
        case(Corner, "a handler that hangs forever takes no neighbour with it", handler::hangs)
            .long_only(),
        case(
            Corner,
            "a handler that blocks its thread takes no neighbour with it",
            handler::blocks,
        ),
        case(
            Corner,
            "a handler that takes much memory takes no neighbour with it",
            handler::allocates,
        ),
    ]
}

fn connections_and_clocks() -> Vec<Case> {
    vec![
        case(Corner, "the connections are cut again and again", network::cut),
        case(Corner, "the connections are reset again and again", network::reset).long_only(),
        case(Corner, "the connections are slow", network::slow).long_only(),
        case(Corner, "the network is silent for a time", network::half_open),
        case(
            Corner,
            "the connections are half-open forever, and new ones work",
            network::silent_forever,
        )
        .long_only(),
        case(Corner, "the broker refuses new connections for a time", network::refused).long_only(),
        case(
            Corner,
            "only the consuming connection breaks, again and again",
            network::only_consuming,
        )
        .long_only(),
        case(
            Corner,
            "only the publishing connection breaks, again and again",
            network::only_publishing,
        )
        .long_only(),
        case(Corner, "no ack arrives any more", network::no_acks),
        case(Corner, "no confirm arrives any more", network::no_confirms).long_only(),
        case(Corner, "confirms are late, and the connection is kept", network::late_confirms)
            .long_only(),
        case(Corner, "confirms come too late", network::confirms_that_come_too_late).long_only(),
        case(Corner, "messages return with forged times in their headers", waits::forged_times),
        case(
            Corner,
            "the clock of one process jumps an hour ahead and an hour behind while messages wait",
            clock::jumps,
        ),
        case(Corner, "the clock jumps while messages wait in their queue", |ground| {
            clock::jumps_while_the_broker_delays(ground, Native)
        })
        .long_only(),
        case(Corner, "the clock jumps while messages wait in a delayed exchange", |ground| {
            clock::jumps_while_the_broker_delays(ground, DelayedExchange)
        })
        .long_only(),
        case(
            Corner,
            "the machine of a process is suspended while messages wait, and wakes an hour later",
            clock::suspended,
        ),
        case(
            Corner,
            "the service is restarted again and again under a backlog",
            rolling::restarts_under_a_backlog,
        ),
        case(Corner, "the shipped defaults bear lost connections", rolling::shipped_defaults)
            .long_only(),
        case(Corner, "the production profile bears lost connections", rolling::production_profile)
            .long_only(),
    ]
}

fn deleted_and_full_queues() -> Vec<Case> {
    vec![
        case(Corner, "the work queue is deleted while messages wait", topology::work_queue),
        case(
            Corner,
            "the work queue is deleted while no service runs",
            topology::work_queue_while_away,
        ),
        case(Corner, "a wait queue is deleted", topology::wait_queue),
        case(Corner, "the wait exchange is deleted", topology::wait_exchange),
        case(
            Corner,
            "the return exchange is deleted while messages wait",
            topology::return_exchange,
        )
        .long_only(),
        case(Corner, "the park exchange is deleted", topology::park_exchange),
        case(Corner, "the parked queue is deleted", topology::parked_queue),
        case(
            Corner,
            "the binding that returns messages to the work queue is deleted",
            topology::return_binding,
        ),
        case(Corner, "the wait queue and the stray queue are deleted", topology::stray_queue),
        case(Corner, "a wait queue is full and refuses", limits::full_wait_queue),
        case(Corner, "the parked queue is full and refuses", limits::full_parked_queue),
    ]
}

fn stops() -> Vec<Case> {
    vec![
        case(
            Corner,
            "the service stops with a thousand deliveries in flight",
            shutdown::with_a_thousand_in_flight,
        ),
        case(Corner, "the service is told to stop twice", shutdown::twice),
        case(Corner, "the service stops while its handlers hang", shutdown::past_the_grace_time)
            .long_only(),
        case(
            Corner,
            "the service stops while the broker is away",
            shutdown::while_the_broker_is_away,
        ),
        case(
            Corner,
            "the service stops while it connects to silence",
            shutdown::while_it_connects_to_silence,
        ),
        case(
            Corner,
            "the service stops while the network is silent",
            shutdown::while_the_network_is_silent,
        )
        .long_only(),
        case(
            Corner,
            "the service stops while the parked queue is full",
            shutdown::while_the_parked_queue_is_full,
        ),
        case(
            Corner,
            "the parked queue is full, the consuming connection is lost, and there is room",
            stalls::full_and_cut,
        ),
        case(Corner, "the right to park is taken away and given back", stalls::one_right_taken),
    ]
}

fn looks() -> Vec<Case> {
    vec![
        case(
            Corner,
            "parked and stray messages are looked at forty times",
            repeated_looks::without_a_policy,
        ),
        case(
            Corner,
            "parked and stray messages are looked at forty times under a limit of two",
            repeated_looks::with_a_policy,
        )
        .long_only(),
        case(
            Corner,
            "parked and stray messages are listed again and again",
            repeated_looks::listed,
        ),
        case(
            Corner,
            "parked and stray messages are listed again and again under a limit of two",
            repeated_looks::listed_under_a_low_limit,
        )
        .long_only(),
        case(
            Corner,
            "parked messages are listed until a policy's limit, and the warning comes first",
            repeated_looks::listed_under_a_policy,
        ),
    ]
}

fn killed_operators() -> Vec<Case> {
    vec![
        case(Corner, "an operator is killed at each step of a replay", parked::kills::in_a_replay)
            .first(),
        case(
            Corner,
            "an operator is killed at each step of a discard",
            parked::kills::in_a_discard,
        )
        .first(),
        case(
            Corner,
            "an operator is killed at each step of a restore",
            parked::kills::in_a_restore,
        )
        .long_only(),
        case(Corner, "an operator is killed at each step of an edit", parked::edits::in_an_edit),
        case(
            Corner,
            "an operator is killed at each step of an import",
            parked::kills::in_an_import,
        )
        .long_only(),
        case(
            Corner,
            "operators are killed at random moments of a replay",
            parked::kills::at_random,
        ),
        case(
            Corner,
            "an operator is killed while a replay counts the messages that match",
            parked::between::while_it_counts,
        ),
        case(
            Corner,
            "an operator is killed while a replay waits for the verdict on its canary",
            parked::between::while_it_waits_for_a_verdict,
        ),
        case(
            Corner,
            "an operator is killed while a replay gives back messages that do not match",
            parked::between::while_it_gives_back,
        )
        .long_only(),
    ]
}

fn operators_in_trouble() -> Vec<Case> {
    vec![
        case(Corner, "two operators move the same parked messages", parked::trouble::two_operators),
        case(
            Corner,
            "a replay stops at its canary while the consumer still fails",
            parked::trouble::consumer_still_fails,
        ),
        case(
            Corner,
            "the work queue is full and refuses a replay",
            parked::trouble::work_queue_is_full,
        ),
        case(Corner, "messages park again during their replay", parked::trouble::parks_again),
        case(
            Corner,
            "the parked queue is deleted during a replay",
            parked::trouble::parked_queue_is_deleted,
        ),
        case(
            Corner,
            "copies are returned to an operator amidst a replay",
            parked::trouble::copies_are_returned,
        ),
        case(
            Corner,
            "a million messages of thousands of kinds and queues are listed in less than 100 MB",
            parked::amounts::a_million,
        )
        .long_only(),
        case(Broker, "the broker is restarted during a replay", parked::trouble::broker_restarts),
    ]
}

fn several_queues_and_order() -> Vec<Case> {
    vec![
        case(
            Corner,
            "poison in one queue leaves the slow messages of another alone",
            several::poison_in_one,
        )
        .long_only(),
        case(
            Corner,
            "one queue's parked queue is full, and the other queue works on",
            several::parked_queue_of_one_is_full,
        )
        .long_only(),
        case(
            Corner,
            "one of two queues is deleted, and the other works on",
            several::one_is_deleted,
        ),
        case(Corner, "a newer version of the service has other delays", upgrade::other_delays),
        case(Corner, "messages wait in their queue through kills and restarts", strategies::native),
        case(
            Corner,
            "the process is killed while messages wait in it",
            strategies::killed_while_holding,
        ),
        case(
            Corner,
            "messages with the same key stay in order through kills, lost connections and restarts",
            order::by_key,
        )
        .first(),
        case(
            Corner,
            "all messages of a queue stay in order through kills, lost connections and restarts",
            order::of_all,
        )
        .long_only(),
        case(
            Corner,
            "a message that kills its process parks itself and no innocent, in an ordered queue",
            order::poison,
        )
        .long_only(),
        case(
            Corner,
            "messages stay in order while deploys change the window of their queue",
            order::other_windows,
        )
        .long_only(),
    ]
}

fn broker_failures() -> Vec<Case> {
    vec![
        case(Broker, "the broker is restarted under load", broker::restarts),
        case(Broker, "the broker dies under load", broker::dies).long_only(),
        case(Broker, "the broker is frozen for a moment", broker::stops_for_a_moment).long_only(),
        case(Broker, "the broker is frozen for long", broker::stops_for_long).long_only(),
        case(Broker, "the process is killed at each step during an alarm", steps::during_an_alarm)
            .long_only(),
    ]
}

fn quotas() -> Vec<Case> {
    vec![
        case(
            Broker,
            "the broker allows no channel for looks while a service works",
            quotas::no_channel_for_looks,
        ),
        case(
            Broker,
            "the broker allows no channel for copies that a full queue refuses",
            quotas::no_channel_for_refused_copies,
        ),
        case(
            Broker,
            "user, virtual host and node may have no more connections when a service starts",
            quotas::no_connection_at_start,
        ),
        case(
            Broker,
            "a service loses its connections while its user may have no more",
            quotas::no_connection_any_more,
        ),
        case(Broker, "the user may have two connections", quotas::two_connections),
        case(
            Broker,
            "user and node may have no more channels when a service starts",
            quotas::no_channel_at_start,
        ),
        case(Broker, "a channel may have one consumer", quotas::one_consumer_for_each_channel),
        case(
            Broker,
            "a connection may have five channels",
            quotas::five_channels_for_each_connection,
        ),
        case(
            Broker,
            "virtual host and cluster may have no more queues when a service starts",
            quotas::no_queue_at_start,
        ),
        case(Broker, "the broker ends connections during their handshake", quotas::slow_handshake),
        case(
            Corner,
            "a process may open no more files and sockets for a time",
            quotas::no_file_descriptor,
        ),
        case(
            Corner,
            "a process that starts may open no more files and sockets for a time",
            quotas::no_file_descriptor_at_start,
        ),
        case(
            Broker,
            "a service has as many connections, channels, consumers and queues as is documented",
            quotas::as_many_as_documented,
        ),
    ]
}

fn alarms_and_timeouts() -> Vec<Case> {
    vec![
        case(Broker, "a memory alarm is raised and cleared", limits::memory),
        case(Broker, "a disk alarm is raised and cleared", limits::disk).long_only(),
        case(Broker, "the service stops while the broker is frozen", shutdown::while_the_broker_is_frozen),
        case(Broker, "the service stops during an alarm", shutdown::during_an_alarm).long_only(),
        case(Broker, "the consuming connection is lost during an alarm", stalls::an_alarm_and_cut).long_only(),
        case(Broker, "handlers are slower together than the ack timeout", stalls::slower_than_the_ack_timeout)
            .long_only(),
        case(Broker, "an alarm lasts longer than the ack timeout", stalls::an_alarm_longer_than_the_ack_timeout)
            .long_only(),
        case(
            Machine,
            "ten messages that kill their process park themselves and no innocent, on a busy machine",
            poison::ten_on_a_busy_machine,
        )
        .long_only(),
        case(Broker, "messages are not acked in time", limits::ack_timeout).long_only(),
        case(
            Broker,
            "messages wait in the process for longer than the broker allows",
            strategies::held_for_longer_than_the_broker_allows,
        )
        .long_only(),
    ]
}

fn names_headers_and_access() -> Vec<Case> {
    vec![
        case(
            Corner,
            "queues have names of 255 bytes, with spaces, and beyond ASCII",
            hostile::names,
        ),
        case(Corner, "routing keys are empty and 255 bytes long", hostile::routing_keys),
        case(Corner, "every type of AMQP field comes back unchanged", hostile::fields),
        case(Corner, "headers fill a frame", hostile::large_headers),
        case(Corner, "the user has the least permissions", access::least_permissions),
        case(Corner, "the user has one permission too few", access::too_few_permissions),
        case(
            Corner,
            "all permissions are taken away with the connections, and given back",
            access::all_permissions_taken,
        ),
        case(Broker, "the broker is reached by TLS, and a wrong authority is refused", access::tls),
        case(Broker, "the broker asks for a certificate of the client", access::mutual_tls),
    ]
}

fn clusters_and_amounts() -> Vec<Case> {
    vec![
        case(
            Broker,
            "the service runs on through cut connections, flat in memory and files",
            soak::flat,
        )
        .long_only(),
        case(
            Docker,
            "the leaders of the work, wait and parked queue are killed in turn",
            cluster::leaders,
        )
        .long_only(),
        case(
            Docker,
            "the leader of an ordered queue is killed again and again",
            order::leader_dies,
        )
        .long_only(),
        case(Docker, "a node is cut off from the others", cluster::cut_off).long_only(),
        case(
            Docker,
            "the only node of an existing queue is down when the service starts",
            cluster::home_node,
        )
        .long_only(),
        case(Docker, "the majority is lost and regained", cluster::majority).long_only(),
        case(
            Docker,
            "a member leaves the cluster for good and another one comes",
            cluster::another_member,
        )
        .long_only(),
        case(Docker, "the broker is upgraded with messages everywhere", versions::upgraded)
            .long_only(),
        case(Docker, "the broker refuses an upgrade, and goes back", versions::refused).long_only(),
        case(
            Machine,
            "a hundred thousand messages of thousands of kinds and queues are listed in less than a minute and 50 MB",
            parked::amounts::a_hundred_thousand,
        ),
        case(
            Machine,
            "parked messages of many megabytes are listed, discarded and replayed in bounded memory",
            parked::amounts::large_bodies,
        ),
        case(Broker, "thousands of messages come due together", waits::due_together)
            .large_if_long()
            .first(),
    ]
}
