//! Several queues in one service, each with a retry policy of its own.
//!
//! The policies are set in code here. Most services set them in their settings, under `[[queues]]`.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::time::Duration;

use rehop::{Consumer, Failure, Message, Publish, Publisher, RetryPolicy, Settings, Topology};

async fn charge(order: Message<String>) -> Result<(), Failure> {
    println!("charge, attempt {}", order.attempt());
    Err(Failure::transient(format!("{}: the bank is closed", order.body)))
}

async fn mail(order: Message<String>) -> Result<(), Failure> {
    println!("mail, attempt {}", order.attempt());
    Err(Failure::transient(format!("{}: the mail server is down", order.body)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let mut settings = Settings::load()?;
    settings.namespace = "policies".to_owned();

    // Money is worth three attempts, with a wait before each of the last two.
    let charges = RetryPolicy::builder().immediate(0).delays([100, 300].map(Duration::from_millis));
    settings.queue_mut("policies.charges").retry = charges.into();
    // Mail is worth two attempts, one right after the other.
    settings.queue_mut("policies.mails").retry =
        RetryPolicy::builder().immediate(1).delays([]).into();
    for queue in ["policies.charges", "policies.mails"] {
        println!("{queue}: at most {} attempts", settings.policy(queue)?.max_attempts());
    }

    Topology::of(&settings)?.declare(&settings).await?;
    let publisher = Publisher::connect(&settings).await?;
    for queue in ["policies.charges", "policies.mails"] {
        publisher.publish(Publish::to_queue(queue).json(&"order 7")?).await?;
    }

    let summary = rehop::Service::new(&settings)
        .consumer("policies.charges", charge)
        .with_consumer(
            Consumer::new("policies.mails", mail)
                .concurrency(2)
                .handler_timeout(Duration::from_secs(5)),
        )
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}");
    Ok(())
}
