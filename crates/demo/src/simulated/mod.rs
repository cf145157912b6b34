//! The demo on a simulated broker in virtual time: the service that ships runs as a process of a
//! world, which kills it when an order asks for that, and starts it again.

mod client;
mod service;
mod spans;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rehop::Settings;
use rehop_worlds::{Process, World};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::crash::{Crash, Crashes};
use super::lock::lock;
use super::play::Play;
use super::progress::Progress;
use super::shop::Shop;
use super::traces::nanos;
use super::witness::Witness;
use super::{policy, script};
use client::SimulatedClient;
use spans::Recorder;

/// The same seed gives the same run.
const SEED: u64 = 1;
/// How long a process lives on, at most, after an order has killed it.
const STEP: Duration = Duration::from_millis(1);
/// How long a supervisor takes to start a process again.
const RESTART: Duration = Duration::from_millis(100);

pub(crate) async fn play(messages: u32, shown: bool) -> anyhow::Result<Witness> {
    let (ended, end) = oneshot::channel();
    // A world has a runtime of its own, and so needs a thread without one.
    std::thread::spawn(move || {
        let _ = ended.send(live(messages, shown));
    });
    end.await.context("the simulated demo has panicked")?
}

fn live(messages: u32, shown: bool) -> anyhow::Result<Witness> {
    let (recorder, mut world) = (Recorder::install(), World::new(SEED));
    let (orders, settings) = (script::orders(messages), policy::settings(policy::SIMULATED_URL));
    let (shop, crashes, stop) = (Shop::new(&orders), Crashes::default(), CancellationToken::new());
    let (killers, killing) = channel();
    let mut supervisor = Supervisor {
        service: Service { settings: settings.clone(), shop: shop.clone(), killers },
        killing,
        crashes: crashes.clone(),
        stop: stop.clone(),
        stopped: CancellationToken::new(),
    };
    let (witness, witnessed) = channel();
    let stopped = supervisor.stopped.clone().cancelled_owned();
    let demo = world.start(|_| async move {
        let playing = async {
            let client = SimulatedClient::connect(settings.broker.clone()).await?;
            let play = Play::new(orders, settings, client, shop, crashes)?;
            let consuming = async {
                stopped.await;
                Ok(())
            };
            play.run(consuming, stop, Progress::new(shown)).await
        };
        let _ = witness.send(playing.await);
    });
    supervisor.supervise(&mut world, demo, &recorder)?;
    let Ok(witness) = witnessed.try_recv() else {
        bail!("the demo's own process ended: {}", world.error(demo).unwrap_or("without a reason"));
    };
    Ok(Witness { spans: recorder.take_spans(), ..witness? })
}

/// What is needed to start the service.
struct Service {
    settings: Settings,
    shop: Arc<Shop>,
    /// Takes the numbers of orders that kill their process.
    killers: Sender<u32>,
}

impl Service {
    fn start(&self, world: &mut World) -> Process {
        let (settings, shop, killers) =
            (self.settings.clone(), self.shop.clone(), self.killers.clone());
        world.start(|stop| service::serve(settings, shop, killers, stop))
    }
}

/// Keeps the service running, as systemd or Kubernetes would.
struct Supervisor {
    service: Service,
    killing: Receiver<u32>,
    crashes: Crashes,
    /// The service is to stop.
    stop: CancellationToken,
    /// It has.
    stopped: CancellationToken,
}

impl Supervisor {
    /// Lets time pass until the demo's own process has ended.
    ///
    /// # Errors
    ///
    /// When the service ends without being told to: otherwise the demo would never end.
    fn supervise(
        &mut self,
        world: &mut World,
        demo: Process,
        recorder: &Recorder,
    ) -> anyhow::Result<()> {
        let mut service = self.service.start(world);
        while !world.has_ended(demo) {
            world.pass(STEP);
            if let Ok(order) = self.killing.try_recv() {
                // A process takes with it what it has not exported.
                recorder.forget_the_service();
                world.kill(service);
                lock(&self.crashes).push(Crash { at: nanos(world.date()), order });
                world.pass(RESTART);
                recorder.remember_all();
                service = self.service.start(world);
            } else if self.stop.is_cancelled() {
                world.stop(service);
                if world.has_ended(service) {
                    self.stopped.cancel();
                }
            } else if world.has_ended(service) {
                bail!(
                    "the service ended unexpectedly: {}",
                    world.error(service).unwrap_or("without an error")
                );
            }
        }
        Ok(())
    }
}
