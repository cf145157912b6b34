//! Who exports: the attributes of the SDK's resource.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use super::environment::Environment;

/// Describes this process to whoever reads its telemetry: [`init`](super::init) uses it, and a
/// service with a provider of its own passes it to `with_resource`. Besides what the SDK's
/// detectors find, it has:
///
/// | attribute | value |
/// |---|---|
/// | `service.name` | `service` |
/// | `service.version` | `version`, if there is one |
/// | `service.instance.id` | a new UUID on each call, so that two processes do not overwrite each other's metrics |
/// | `host.name` | the host's name. Without it, Jaeger takes each span for one of another host, and doubts their clocks (2.20) |
/// | `process.pid` | the process's number |
///
/// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` override each of them.
///
/// ```
/// let resource = rehop::telemetry::resource("orders", Some(env!("CARGO_PKG_VERSION")));
/// let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().with_resource(resource).build();
/// # drop(provider);
/// ```
#[must_use]
pub fn resource(service: &str, version: Option<&str>) -> Resource {
    of(&Environment::of_the_process(), service, version)
}

/// The operator's values override the program's.
pub(super) fn of<F: Fn(&str) -> Option<String>>(
    environment: &Environment<F>,
    service: &str,
    version: Option<&str>,
) -> Resource {
    let mut own = vec![
        KeyValue::new("service.instance.id", random_uuid()),
        KeyValue::new("host.name", gethostname::gethostname().to_string_lossy().into_owned()),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ];
    own.extend(version.map(|version| KeyValue::new("service.version", version.to_owned())));
    own.retain(|attribute| !environment.has_resource_attribute(attribute.key.as_str()));
    let mut builder = Resource::builder().with_attributes(own);
    if !environment.names_service() {
        builder = builder.with_service_name(service.to_owned());
    }
    builder.build()
}

/// A version 4 UUID, as the semantic conventions recommend for an instance.
fn random_uuid() -> String {
    let bits = rand::random::<u128>() & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use opentelemetry::Key;

    use super::{Environment, of, random_uuid};

    #[test]
    fn the_resource_says_who_exports_and_the_operators_attributes_win() {
        let unset = Environment(|_: &str| None);
        let resource = of(&unset, "orders", Some("1.2.3"));
        let value = |name: &'static str| {
            resource.get(&Key::from_static_str(name)).map(|value| value.to_string())
        };
        assert_eq!(value("service.name").as_deref(), Some("orders"));
        assert_eq!(value("service.version").as_deref(), Some("1.2.3"));
        assert_eq!(value("process.pid"), Some(std::process::id().to_string()));
        assert!(value("host.name").is_some_and(|name| !name.is_empty()));
        assert_eq!(of(&unset, "orders", None).get(&Key::from_static_str("service.version")), None);

        // The SDK reads the variable itself, from the process's environment, so here the attribute
        // is only left out.
        let set = Environment(|name: &str| {
            (name == "OTEL_RESOURCE_ATTRIBUTES")
                .then(|| "host.name=box1, service.version=9".to_owned())
        });
        let resource = of(&set, "orders", Some("1.2.3"));
        for name in ["host.name", "service.version"] {
            assert_eq!(resource.get(&Key::from_static_str(name)), None, "{name}");
        }
    }

    #[test]
    fn an_instance_id_is_a_uuid_of_version_4() {
        let id = random_uuid();
        assert!(
            id.len() == 36 && id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]),
            "{id}"
        );
    }
}
