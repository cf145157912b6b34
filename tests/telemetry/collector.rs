//! OTLP receivers inside the test process.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rehop_testing::{Port, eventually};

use crate::support::SOON;

/// Everything that arrived over the wire.
#[derive(Default)]
pub(crate) struct Arrived {
    pub(crate) spans: Vec<Span>,
    /// The metrics of each export, the newest last.
    pub(crate) metrics: Vec<Vec<Metric>>,
    pub(crate) logs: Vec<LogRecord>,
    pub(crate) resources: Vec<Vec<KeyValue>>,
    /// The requested paths, and the value of the header `x-test`.
    pub(crate) requests: BTreeSet<(String, String)>,
    /// The status that every request is refused with, if any. What is refused has not arrived.
    pub(crate) refuses: Option<u16>,
}

impl Arrived {
    fn traces(&mut self, request: ExportTraceServiceRequest) {
        for resource in request.resource_spans {
            self.spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            self.resources.push(resource.resource.unwrap_or_default().attributes);
        }
    }
}

/// A receiver over HTTP. It has its own threads, so it is independent of each test's runtime.
pub(crate) struct Collector {
    /// Claimed, so that nobody takes it while the receiver is down.
    port: Port,
    arrived: Arc<Mutex<Arrived>>,
    running: Mutex<Option<Running>>,
}

struct Running {
    stop: Arc<Mutex<bool>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    acceptor: JoinHandle<()>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let collector = Self {
            port: Port::claim().unwrap(),
            arrived: Arc::default(),
            running: Mutex::default(),
        };
        collector.start_again();
        collector
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    pub(crate) fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap()
    }

    /// Listens at the same address as before.
    pub(crate) fn start_again(&self) {
        let listener = TcpListener::bind(self.port.address()).unwrap();
        let (stop, connections) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (stopped, open, arrived) = (stop.clone(), connections.clone(), self.arrived.clone());
        let acceptor = std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if *stopped.lock().unwrap() {
                    return;
                }
                open.lock().unwrap().push(connection.try_clone().unwrap());
                let arrived = arrived.clone();
                std::thread::spawn(move || serve(&connection, &arrived));
            }
        });
        *self.running.lock().unwrap() = Some(Running { stop, connections, acceptor });
    }

    /// Cuts every connection and stops listening.
    pub(crate) fn kill(&self) {
        let Some(running) = self.running.lock().unwrap().take() else { return };
        *running.stop.lock().unwrap() = true;
        // Wakes the acceptor.
        drop(TcpStream::connect(self.port.address()));
        running.acceptor.join().unwrap();
        for connection in running.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// One connection, request after request, until it ends.
fn serve(connection: &TcpStream, arrived: &Mutex<Arrived>) {
    let mut reader = BufReader::new(connection);
    let mut writer = connection;
    while let Some((path, header, body)) = request(&mut reader) {
        let mut arrived = arrived.lock().unwrap();
        if let Some(status) = arrived.refuses {
            drop(arrived);
            let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
            if writer.write_all(answer.as_bytes()).is_err() {
                return;
            }
            continue;
        }
        match path.as_str() {
            "/v1/traces" => {
                arrived.traces(ExportTraceServiceRequest::decode(body.as_slice()).unwrap());
            }
            "/v1/metrics" => {
                for resource in
                    ExportMetricsServiceRequest::decode(body.as_slice()).unwrap().resource_metrics
                {
                    arrived.metrics.push(
                        resource
                            .scope_metrics
                            .into_iter()
                            .flat_map(|scope| scope.metrics)
                            .collect(),
                    );
                    arrived.resources.push(resource.resource.unwrap_or_default().attributes);
                }
            }
            "/v1/logs" => {
                for resource in
                    ExportLogsServiceRequest::decode(body.as_slice()).unwrap().resource_logs
                {
                    arrived.logs.extend(
                        resource.scope_logs.into_iter().flat_map(|scope| scope.log_records),
                    );
                }
            }
            _ => {}
        }
        arrived.requests.insert((path, header));
        drop(arrived);
        if writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

fn request(reader: &mut impl BufRead) -> Option<(String, String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut header) = (0, String::new());
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "x-test" => value.clone_into(&mut header),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, header, body))
}

/// A receiver over gRPC, for traces only. It ends with its runtime.
pub(crate) struct GrpcCollector {
    port: Port,
    arrived: Arc<Mutex<Arrived>>,
}

impl GrpcCollector {
    pub(crate) async fn start() -> Self {
        let (port, arrived) = (Port::claim().unwrap(), Arc::default());
        let address = port.address();
        let traces = TraceServiceServer::new(Traces(Arc::clone(&arrived)));
        tokio::spawn(tonic::transport::Server::builder().add_service(traces).serve(address));
        eventually(SOON, "the receiver listens", async || TcpStream::connect(address).is_ok())
            .await
            .unwrap();
        Self { port, arrived }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    pub(crate) fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap()
    }
}

struct Traces(Arc<Mutex<Arrived>>);

#[tonic::async_trait]
impl TraceService for Traces {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.lock().unwrap().traces(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// An attribute's value, as text.
pub(crate) fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value =
        attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()?;
    Some(match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(value) => value.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}
