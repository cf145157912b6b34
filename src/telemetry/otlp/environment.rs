//! The standard `OTEL_*` variables that neither the SDK nor the exporters read themselves.

use std::fmt;
use std::time::Duration;

use super::InitError;

/// See [`Environment::span_delay`].
const SPAN_DELAY: Duration = Duration::from_secs(1);

/// The signals that are exported. Each may have its own endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a signal is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Grpc,
}

/// Reads variables through a function, so that tests do not need their own process.
pub(super) struct Environment<F>(pub(super) F);

impl Environment<fn(&str) -> Option<String>> {
    pub(super) fn of_the_process() -> Self {
        Self(|name| std::env::var(name).ok())
    }
}

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    /// The specification treats an empty variable as unset.
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The value and the name of this signal's variable, else of the one for all signals.
    fn of_signal(&self, signal: Signal, what: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.as_str().to_uppercase());
        let common = format!("OTEL_EXPORTER_OTLP_{what}");
        [own, common].into_iter().find_map(|name| Some((self.get(&name)?, name)))
    }

    pub(super) fn disabled(&self) -> bool {
        self.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Whether the signal is exported. Any value except `otlp` and `none` is an error, because the
    /// signal would silently be missing where it is expected.
    pub(super) fn exported(&self, signal: Signal) -> Result<bool, InitError> {
        let name = format!("OTEL_{}_EXPORTER", signal.as_str().to_uppercase());
        match self.get(&name) {
            None => Ok(true),
            Some(value) if value.eq_ignore_ascii_case("otlp") => Ok(true),
            Some(value) if value.eq_ignore_ascii_case("none") => Ok(false),
            Some(value) => Err(InitError::Variable { name, value, expected: "otlp or none" }),
        }
    }

    pub(super) fn protocol(&self, signal: Signal) -> Result<Protocol, InitError> {
        match self.of_signal(signal, "PROTOCOL") {
            None => Ok(Protocol::Http),
            Some((value, _)) if value.eq_ignore_ascii_case("http/protobuf") => Ok(Protocol::Http),
            Some((value, _)) if value.eq_ignore_ascii_case("grpc") => Ok(Protocol::Grpc),
            Some((value, name)) => {
                Err(InitError::Variable { name, value, expected: "http/protobuf or grpc" })
            }
        }
    }

    /// The endpoint that the exporter will choose. It is needed for messages and to decide on TLS.
    pub(super) fn endpoint(
        &self,
        signal: Signal,
        protocol: Protocol,
        given: Option<&str>,
    ) -> String {
        let default = match protocol {
            Protocol::Http => "http://localhost:4318",
            Protocol::Grpc => "http://localhost:4317",
        };
        match given {
            Some(endpoint) => endpoint.to_owned(),
            None => self
                .of_signal(signal, "ENDPOINT")
                .map_or_else(|| default.to_owned(), |(value, _)| value),
        }
    }

    /// How long ended spans wait for their export. The SDK's default is five seconds, and what it
    /// holds dies with the process, together with what tells of other messages. `None`: the SDK
    /// reads its variable.
    pub(super) fn span_delay(&self) -> Option<Duration> {
        self.get("OTEL_BSP_SCHEDULE_DELAY").is_none().then_some(SPAN_DELAY)
    }

    /// How long one export may take. The specification has it in milliseconds.
    pub(super) fn timeout(&self, signal: Signal) -> Result<Duration, InitError> {
        let Some((value, name)) = self.of_signal(signal, "TIMEOUT") else {
            return Ok(Duration::from_secs(10));
        };
        match value.parse() {
            Ok(millis) => Ok(Duration::from_millis(millis)),
            Err(_) => Err(InitError::Variable {
                name,
                value,
                expected: "a number of milliseconds, such as 10000",
            }),
        }
    }

    /// The file with the certificate authorities for the collector's certificate, and the variable
    /// that names it.
    pub(super) fn certificate(&self, signal: Signal) -> Option<(String, String)> {
        self.of_signal(signal, "CERTIFICATE")
    }

    /// The files with the client certificate and its key. One without the other is an error,
    /// because the client would silently have no identity.
    pub(super) fn client_certificate(
        &self,
        signal: Signal,
    ) -> Result<Option<[(String, String); 2]>, InitError> {
        let lacks = |(value, name), expected| Err(InitError::Variable { name, value, expected });
        match (self.of_signal(signal, "CLIENT_CERTIFICATE"), self.of_signal(signal, "CLIENT_KEY")) {
            (Some(certificate), Some(key)) => Ok(Some([certificate, key])),
            (Some(certificate), None) => {
                lacks(certificate, "set together with OTEL_EXPORTER_OTLP_CLIENT_KEY")
            }
            (None, Some(key)) => {
                lacks(key, "set together with OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")
            }
            (None, None) => Ok(None),
        }
    }

    /// Whether the operator has named the service. If not, the program's name for it is used.
    pub(super) fn names_service(&self) -> bool {
        self.get("OTEL_SERVICE_NAME").is_some() || self.has_resource_attribute("service.name")
    }

    pub(super) fn has_resource_attribute(&self, key: &str) -> bool {
        let attributes = self.get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        attributes
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .any(|(name, _)| name.trim() == key)
    }

    /// The propagators for the requests that handlers make. Messages always carry W3C trace context
    /// and baggage.
    pub(super) fn propagators(&self) -> Vec<String> {
        let names =
            self.get("OTEL_PROPAGATORS").unwrap_or_else(|| "tracecontext,baggage".to_owned());
        names.split(',').map(|name| name.trim().to_ascii_lowercase()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &'static [(&str, &str)]) -> Environment<impl Fn(&str) -> Option<String>> {
        Environment(move |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_variables_signals_go_over_http_to_this_machine() {
        let environment = with(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "")]);
        assert!(!environment.disabled() && environment.exported(Signal::Logs).unwrap());
        assert_eq!(environment.protocol(Signal::Traces).unwrap(), Protocol::Http);
        assert_eq!(
            environment.endpoint(Signal::Traces, Protocol::Http, None),
            "http://localhost:4318"
        );
        assert_eq!(environment.timeout(Signal::Traces).unwrap(), Duration::from_secs(10));
        assert_eq!(environment.propagators(), ["tracecontext", "baggage"]);
        assert!(!environment.names_service());
    }

    #[test]
    fn a_signals_own_variable_overrides_the_one_for_all_signals() {
        let environment = with(&[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "HTTP/protobuf"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs:2"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "700"),
            ("OTEL_METRICS_EXPORTER", "none"),
        ]);
        assert_eq!(environment.protocol(Signal::Traces).unwrap(), Protocol::Grpc);
        assert_eq!(environment.protocol(Signal::Metrics).unwrap(), Protocol::Http);
        assert_eq!(environment.endpoint(Signal::Traces, Protocol::Grpc, None), "http://all:1");
        assert_eq!(environment.endpoint(Signal::Logs, Protocol::Grpc, None), "http://logs:2");
        assert_eq!(environment.timeout(Signal::Logs).unwrap(), Duration::from_millis(700));
        assert!(
            environment.exported(Signal::Traces).unwrap()
                && !environment.exported(Signal::Metrics).unwrap()
        );
    }

    #[test]
    fn an_unsupported_value_is_an_error_that_names_its_variable() {
        let environment = with(&[
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_LOGS_EXPORTER", "console"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b, service.name = shop"),
        ]);
        let error = environment.protocol(Signal::Traces).unwrap_err().to_string();
        assert!(
            error.contains("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") && error.contains("http/json"),
            "{error}"
        );
        let error = environment.exported(Signal::Logs).unwrap_err().to_string();
        assert!(error.contains("OTEL_LOGS_EXPORTER") && error.contains("otlp or none"), "{error}");
        assert!(environment.names_service() && !environment.has_resource_attribute("b"));
    }

    #[test]
    fn spans_wait_for_a_second_unless_the_sdks_variable_says_otherwise() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(with(&[("OTEL_BSP_SCHEDULE_DELAY", "")]).span_delay(), second);
        assert_eq!(with(&[("OTEL_BSP_SCHEDULE_DELAY", "200")]).span_delay(), None);
    }

    #[test]
    fn a_timeout_is_a_number_of_milliseconds() {
        let environment = with(&[
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "30s"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", " 700 "),
            ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "-1"),
        ]);
        assert_eq!(environment.timeout(Signal::Metrics).unwrap(), Duration::from_millis(700));
        for (signal, value, name) in [
            (Signal::Traces, "30s", "OTEL_EXPORTER_OTLP_TIMEOUT"),
            (Signal::Logs, "-1", "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT"),
        ] {
            let error = environment.timeout(signal).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("{name} is {value:?}, but must be a number of milliseconds, such as 10000")
            );
        }
        let empty = with(&[("OTEL_EXPORTER_OTLP_TIMEOUT", " ")]);
        assert_eq!(empty.timeout(Signal::Traces).unwrap(), Duration::from_secs(10));
    }

    #[test]
    fn a_client_certificate_needs_its_key_and_a_key_its_certificate() {
        const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE";
        const KEY: &str = "OTEL_EXPORTER_OTLP_CLIENT_KEY";
        fn identity(
            variables: &'static [(&'static str, &'static str)],
        ) -> Result<Option<[(String, String); 2]>, InitError> {
            with(variables).client_certificate(Signal::Traces)
        }
        let both = [("a.pem", CERTIFICATE), ("a.key", KEY)]
            .map(|(file, name)| (file.to_owned(), name.to_owned()));
        assert_eq!(identity(&[(CERTIFICATE, "a.pem"), (KEY, "a.key")]).unwrap(), Some(both));
        assert_eq!(identity(&[(CERTIFICATE, ""), (KEY, " ")]).unwrap(), None);
        let error = identity(&[(CERTIFICATE, "a.pem"), (KEY, "")]).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{CERTIFICATE} is \"a.pem\", but must be set together with {KEY}")
        );
        let error = identity(&[(KEY, "a.key")]).unwrap_err().to_string();
        let certificate = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
        assert_eq!(
            error,
            format!("{KEY} is \"a.key\", but must be set together with {certificate}")
        );
    }
}
