//! Variables that look like settings and are not: Kubernetes sets some in each pod for every
//! Service of its namespace.

/// Whether this is a variable that Kubernetes sets for a Service named `rehop` or `rehop-…`,
/// without the prefix `REHOP_`: `PORT`, `SERVICE_HOST`, `PORT_5672_TCP_ADDR`,
/// `RELAY_SERVICE_PORT_HTTP`.
pub(super) fn is_service_link(name: &str) -> bool {
    // Two underscores separate the levels of a key, and a Service hardly ever has two hyphens in a
    // row in its name.
    if name.contains("__") {
        return false;
    }
    let name = format!("_{}", name.to_ascii_uppercase());
    ["_PORT", "_SERVICE_HOST"].iter().any(|end| name.ends_with(end))
        || name.contains("_SERVICE_PORT_")
        || is_of_one_port(&name)
}

/// `…_PORT_<number>_<protocol>`, alone or with `_PROTO`, `_PORT` or `_ADDR` behind it.
fn is_of_one_port(name: &str) -> bool {
    let stem =
        ["_PROTO", "_PORT", "_ADDR"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let port = ["_TCP", "_UDP", "_SCTP"].iter().find_map(|protocol| stem.strip_suffix(protocol));
    port.and_then(|port| port.rsplit_once("_PORT_"))
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::is_service_link;

    #[test]
    fn what_kubernetes_sets_for_a_service_is_told_from_mistyped_settings() {
        for name in [
            "PORT",
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_HTTP",
            "PORT_5672_TCP",
            "PORT_5672_TCP_PROTO",
            "PORT_5672_UDP_PORT",
            "PORT_5672_SCTP_ADDR",
            "RELAY_SERVICE_HOST",
            "RELAY_PORT_80_TCP_ADDR",
            "port_5672_tcp_addr",
        ] {
            assert!(is_service_link(name), "{name}");
        }
        for name in [
            "NAMSPACE",
            "BROKER__PORT",
            "PORTS",
            "PORT_X_TCP",
            "SERVICE",
            "BROKER_URL",
            "PORT_70000_TCP",
            "TCP",
        ] {
            assert!(!is_service_link(name), "{name}");
        }
    }
}
