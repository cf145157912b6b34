//! One answer of the broker, within a time limit.

use std::future::Future;
use std::time::Duration;

use crate::error::Error;

/// One answer of the broker, or an error that says what it was for.
pub async fn answer<T>(
    what: &str,
    limit: Duration,
    operation: impl Future<Output = lapin::Result<T>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, operation).await {
        Ok(result) => result.map_err(|error| Error::of_operation(what, &error)),
        Err(_) => Err(Error::Timeout { what: what.to_owned(), limit }),
    }
}
