//! A service under a supervisor that restarts it.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Config, Service};

struct Kill;

/// Restarts a service at once, however it ends.
pub(crate) struct Supervised {
    orders: mpsc::Sender<Kill>,
    task: JoinHandle<usize>,
}

impl Supervised {
    /// `log` names the file for each process.
    pub(crate) fn start(config: Config, log: impl Fn() -> PathBuf + Send + 'static) -> Self {
        let (orders, mut order) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let mut deaths = 0;
            loop {
                let mut service = Service::start(&config, &log());
                tokio::select! {
                    _ = service.ended(Duration::from_secs(24 * 3600)) => {}
                    order = order.recv() => match order {
                        // It may be dying by itself.
                        Some(Kill) if !service.is_running() => {}
                        Some(Kill) => service.kill().await,
                        None => {
                            service.stop().await;
                            return deaths;
                        }
                    },
                }
                deaths += 1;
                // Avoids a hot loop if the service cannot even start.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { orders, task }
    }

    /// Kills it with SIGKILL, and starts a new one.
    pub(crate) async fn kill(&self) {
        let _ = self.orders.send(Kill).await;
    }

    /// Stops it cleanly, and returns how often it died before.
    pub(crate) async fn stop(self) -> usize {
        drop(self.orders);
        self.task.await.unwrap()
    }
}
