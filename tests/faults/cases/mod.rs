//! The faults.

mod access;
mod broker;
mod cluster;
mod handler;
mod hostile;
mod kill;
mod limits;
mod network;
mod poison;
mod shutdown;
mod soak;
mod topology;
mod upgrade;

use crate::runner::{Case, Needs, case};

pub(crate) use soak::lasts as soak_lasts;

pub(crate) fn all() -> Vec<Case> {
    use Needs::{Broker, Cluster, Corner};
    vec![
        case(Corner, "the process is killed before a handler has seen the messages", kill::before_the_handler),
        case(Corner, "the process is killed in the handler", kill::in_the_handler),
        case(Corner, "the process is killed after the handler and before the ack", kill::after_the_handler),
        case(
            Corner,
            "the process is killed after the copy is published and before its confirm",
            kill::before_the_confirm,
        ),
        case(Corner, "the process is killed between the confirm and the ack", kill::between_confirm_and_ack),
        case(Corner, "the process is killed after the ack", kill::after_the_ack),
        case(Corner, "processes are killed at random moments under load", kill::at_random),
        case(Corner, "a message that kills its process parks itself and no innocent, with one instance", |ground| {
            poison::alone(ground, 1)
        }),
        case(Corner, "a message that kills its process parks itself and no innocent, with three instances", |ground| {
            poison::alone(ground, 3)
        }),
        case(
            Corner,
            "a message that kills its process parks itself and no innocent, with slow handlers",
            poison::among_slow_ones,
        ),
        case(Corner, "three messages that kill their process park themselves and no innocent", poison::three),
        case(Corner, "a handler that panics takes no neighbour with it", handler::panics),
        case(Corner, "a handler that hangs for ever takes no neighbour with it", handler::hangs),
        case(Corner, "a handler that blocks its thread takes no neighbour with it", handler::blocks),
        case(Corner, "a handler that takes much memory takes no neighbour with it", handler::allocates),
        case(Corner, "the connections are cut again and again", network::cut),
        case(Corner, "the connections are reset again and again", network::reset),
        case(Corner, "the connections are slow", network::slow),
        case(Corner, "the network is silent for a time", network::half_open),
        case(Corner, "the connections are half-open for ever, and new ones work", network::silent_for_ever),
        case(Corner, "the broker refuses new connections for a time", network::refused),
        case(Corner, "only the consuming connection breaks, again and again", network::only_consuming),
        case(Corner, "only the publishing connection breaks, again and again", network::only_publishing),
        case(Corner, "no ack arrives any more", network::no_acks),
        case(Corner, "no confirm arrives any more", network::no_confirms),
        case(Corner, "the work queue is deleted while messages wait", topology::work_queue),
        case(Corner, "the work queue is deleted while no service runs", topology::work_queue_while_away),
        case(Corner, "a wait queue is deleted", topology::wait_queue),
        case(Corner, "the wait exchange is deleted", topology::wait_exchange),
        case(Corner, "the return exchange is deleted while messages wait", topology::return_exchange).long_only(),
        case(Corner, "the park exchange is deleted", topology::park_exchange),
        case(Corner, "the parked queue is deleted", topology::parked_queue),
        case(Corner, "the binding that brings messages home is deleted", topology::binding_home),
        case(Corner, "the wait queue and the stray queue are deleted", topology::stray_queue),
        case(Corner, "a wait queue is full and refuses", limits::full_wait_queue),
        case(Corner, "the parked queue is full and refuses", limits::full_parked_queue),
        case(Corner, "the service stops with a thousand deliveries in flight", shutdown::with_a_thousand_in_flight),
        case(Corner, "the service is told to stop twice", shutdown::twice),
        case(Corner, "the service stops while its handlers hang", shutdown::past_the_grace_time),
        case(Corner, "the service stops while the broker is away", shutdown::while_the_broker_is_away),
        case(Corner, "the service stops while the network is silent", shutdown::while_the_network_is_silent),
        case(Corner, "a newer version of the service has other delays", upgrade::other_delays),
        case(Broker, "the broker is restarted under load", broker::restarts),
        case(Broker, "the broker dies under load", broker::dies).long_only(),
        case(Broker, "the broker is frozen for a moment", broker::stops_for_a_moment).long_only(),
        case(Broker, "the broker is frozen for long", broker::stops_for_long).long_only(),
        case(Broker, "a memory alarm is raised and cleared", limits::memory),
        case(Broker, "a disk alarm is raised and cleared", limits::disk).long_only(),
        case(Broker, "messages are not acked in time", limits::ack_timeout).long_only(),
        case(Corner, "queues have names of 255 bytes, with spaces, and beyond ASCII", hostile::names),
        case(Corner, "routing keys are empty and 255 bytes long", hostile::routing_keys),
        case(Corner, "every type of AMQP field comes back unchanged", hostile::fields),
        case(Corner, "headers fill a frame", hostile::large_headers),
        case(Corner, "the user has the least permissions", access::least_permissions),
        case(Corner, "the user has one permission too few", access::too_few_permissions),
        case(Broker, "the broker is reached by TLS, and a wrong authority is refused", access::tls),
        case(Broker, "the broker asks for a certificate of the client", access::mutual_tls),
        case(Broker, "the service runs on through cut connections, flat in memory and files", soak::flat).long_only(),
        case(Cluster, "the leaders of the work, wait and parked queue are killed in turn", cluster::leaders)
            .long_only(),
        case(Cluster, "a node is cut off from the others", cluster::cut_off).long_only(),
        case(Cluster, "the only node of an existing queue is down when the service starts", cluster::home_node)
            .long_only(),
        case(Cluster, "the majority is lost and regained", cluster::majority).long_only(),
    ]
}
