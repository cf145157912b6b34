//! The messages of other clients come through rehop, and come back the same.
//!
//! Each client publishes one message, with every property and every type of header that it writes,
//! to an exchange with two queues. rehop consumes from one: the message is requeued, waits, is
//! requeued again, parked and replayed. Nothing but the broker touches the other queue. Then the
//! client gets the message from both, and has to decode the same; a look at the bytes on the wire
//! finds the same properties, headers and body, too. Of Celery, a real worker runs the task from
//! both queues.
//!
//! Arguments select clients by name. `tests/scripts/clients` prepares what they need; what is
//! missing is not tried, and a line says so. The table is printed as the clients are tried, and the
//! exit code is 1 if anything is wrong.

#![allow(clippy::print_stdout, reason = "the table is read on standard output")]
#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]
#![allow(
    clippy::disallowed_methods,
    reason = "no connection here opens many channels, and no subscription is dropped before it is answered"
)]

mod comparison;
mod container;
mod journey;
mod program;
#[allow(dead_code, reason = "the library's tests use all of it")]
#[path = "../support/mod.rs"]
mod support;
mod wire;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

use futures_util::FutureExt as _;
use journey::Sent;
use program::{CLIENTS, Client, Program};
use rehop_testing::Broker;
use support::not_tried;

fn main() -> ExitCode {
    let names: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let known: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        println!("there is no client {unknown}; expected some of: {}", known.join(" "));
        return ExitCode::FAILURE;
    }
    let selected = CLIENTS
        .iter()
        .filter(|client| names.is_empty() || names.iter().any(|name| name == client.name));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if runtime.block_on(run(selected)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(clients: impl Iterator<Item = &'static Client>) -> bool {
    let (mut tried, mut failed) = (0, false);
    let broker = Broker::shared().await;
    println!("RabbitMQ {}", broker.version());
    print_row("client", "version", ["properties", "headers", "types"], "s", "result");
    for client in clients {
        let begun = Instant::now();
        let row = |version: &str, sent: Option<&Sent>, result: &str| {
            let seconds = format!("{:.1}", begun.elapsed().as_secs_f64());
            let sent = sent
                .map(|it| [it.properties.to_string(), it.headers.to_string(), it.types.clone()]);
            let sent = sent
                .as_ref()
                .map_or(["-"; 3], |[properties, headers, types]| [properties, headers, types]);
            print_row(client.name, version, sent, &seconds, result);
        };
        let program = match Program::of(client).await {
            Ok(program) => program,
            Err(why) => {
                row("-", None, "not tried");
                not_tried(&format!("messages of {}, because {why}", client.name));
                continue;
            }
        };
        tried += 1;
        match AssertUnwindSafe(journey::travel(client, &program)).catch_unwind().await {
            Ok((sent, differences)) if differences.is_empty() => {
                row(&program.version, Some(&sent), "comes back the same");
            }
            Ok((sent, differences)) => {
                failed = true;
                row(&program.version, Some(&sent), "FAILED");
                differences.iter().for_each(|difference| println!("    {difference}"));
            }
            // The panic's own message is above.
            Err(_) => {
                failed = true;
                row(&program.version, None, "FAILED");
            }
        }
    }
    if tried == 0 {
        println!("no client was tried");
    }
    tried > 0 && !failed
}

fn print_row(
    client: &str,
    version: &str,
    [properties, headers, types]: [&str; 3],
    seconds: &str,
    result: &str,
) {
    println!(
        "{client:<14} {version:<20} {properties:>10} {headers:>7} {types:<18} {seconds:>5}  {result}"
    );
}
