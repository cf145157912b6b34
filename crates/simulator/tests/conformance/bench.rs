//! The real broker of this test run.

use std::env;
use std::str::FromStr as _;

use lapin::uri::AMQPUri;
use rehop_simulator::Version;
use rehop_testing::Broker;

use crate::check::Bench;
use crate::real::Address;

/// The broker that all tests share, and the simulated version for it. `REHOP_CONFORMANCE_VERSION`
/// says which version the broker has to be, so that no broker can stand in for another one.
pub(crate) async fn bench() -> Bench {
    let broker = Broker::shared().await;
    if let Ok(asked) = env::var("REHOP_CONFORMANCE_VERSION") {
        let is_it = broker.version().starts_with(&format!("{asked}."));
        assert!(is_it, "the broker is {}, and {asked} was asked for", broker.version());
    }
    let version = match broker.version() {
        version if version.starts_with("3.10.") => Version::V3_10,
        version if version.starts_with("4.0.") => Version::V4_0,
        version if version.starts_with("4.3.") => Version::V4_3,
        other => panic!("the simulator knows 3.10, 4.0 and 4.3, and the broker is {other}"),
    };
    let uri = AMQPUri::from_str(broker.amqp_url()).unwrap();
    Bench { version, address: Address { uri, management: broker.management().unwrap() } }
}

/// A version as `make conformance VERSIONS=` takes it.
pub(crate) fn name(version: Version) -> &'static str {
    match version {
        Version::V3_10 => "3.10",
        Version::V4_0 => "4.0",
        Version::V4_3 => "4.3",
    }
}
