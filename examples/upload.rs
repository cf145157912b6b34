//! A handler that takes long and can be stopped at any time: it goes on in another process with what
//! is left to do.
//!
//! A handler that does not listen is dropped when the grace time is over, and its message starts
//! again.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rehop::{Failure, Message, Publish, Publisher, Settings, Topology, with_state};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct File {
    name: String,
    parts: u32,
}

/// How many parts of the file are uploaded. A real service asks its storage.
type Storage = Arc<AtomicU32>;

async fn upload(file: Message<File>, storage: Storage) -> Result<(), Failure> {
    let File { name, parts } = &file.body;
    let mut stopping = std::pin::pin!(file.stopping());
    while storage.load(Ordering::Relaxed) < *parts {
        tokio::select! {
            // A handler may also begin what it can finish within `file.time_left()`.
            () = &mut stopping => {
                println!("{name} is left for later, {:?} before it would be dropped", file.time_left());
                // The part under way is uploaded again. A defer costs no attempt.
                return Err(Failure::defer(Duration::from_secs(10)));
            }
            () = upload_part() => {
                let uploaded = storage.fetch_add(1, Ordering::Relaxed) + 1;
                println!("uploaded part {uploaded} of {name}");
            }
        }
    }
    Ok(())
}

async fn upload_part() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let mut settings = Settings::load()?;
    settings.namespace = "upload".to_owned();
    settings.queue_mut("upload.files");

    Topology::of(&settings)?.declare(&settings).await?;
    let publisher = Publisher::connect(&settings).await?;
    let film = File { name: "film".to_owned(), parts: 1_000 };
    publisher.publish(Publish::to_queue("upload.files").json(&film)?).await?;

    let summary = rehop::Service::new(&settings)
        .consumer("upload.files", with_state(Storage::default(), upload))
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}");
    Ok(())
}
