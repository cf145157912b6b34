//! An idempotent handler: an inbox table records each message in the transaction of its effect, so
//! a duplicate changes nothing.
//!
//! The database is the handler's state. A message can come twice: if a crash or a lost connection
//! prevents its ack, and if its publisher sent it twice.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use rehop::{Failure, Message, Publish, Publisher, Settings, Topology, with_state};
use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    id: u64,
    amount: i64,
}

const TABLES: &str =
    "CREATE TABLE inbox (message_id TEXT PRIMARY KEY); CREATE TABLE account (balance INTEGER);
                      INSERT INTO account VALUES (100);";

async fn charge(order: Message<Order>, pool: SqlitePool) -> Result<(), Failure> {
    let Some(id) = order.message_id() else {
        return Err(Failure::permanent(
            "without a message id, a duplicate could not be recognised",
        ));
    };
    let mut transaction = pool.begin().await?;
    let inbox = sqlx::query("INSERT OR IGNORE INTO inbox VALUES (?)")
        .bind(id)
        .execute(&mut *transaction)
        .await?;
    if inbox.rows_affected() == 0 {
        println!("order {} was charged before", order.body.id);
        return Ok(());
    }
    let charge = sqlx::query_scalar("UPDATE account SET balance = balance - ? RETURNING balance")
        .bind(order.body.amount);
    let balance: i64 = charge.fetch_one(&mut *transaction).await?;
    transaction.commit().await?; // both changes, or neither
    println!("order {} is charged; the balance is {balance}", order.body.id);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    // A database in memory belongs to its connection, so there is one, and it is never replaced.
    let options = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    let pool = options.connect("sqlite::memory:").await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;
    let mut settings = Settings::load()?;
    settings.namespace = "inbox".to_owned();
    settings.queue_mut("inbox.orders");

    Topology::of(&settings)?.declare(&settings).await?;
    let publisher = Publisher::connect(&settings).await?;
    let message = Publish::to_queue("inbox.orders").json(&Order { id: 7, amount: 12 })?;
    for _ in 0..2 {
        publisher.publish(message.clone()).await?; // both have the same id
    }

    let summary = rehop::Service::new(&settings)
        .consumer("inbox.orders", with_state(pool, charge))
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}");
    Ok(())
}
