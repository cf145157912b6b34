//! Which queues a command is about.

use rehop::Settings;

use super::options::Usage;

#[derive(Debug, clap::Args)]
pub(super) struct Queues {
    /// A work queue, whether in the settings or not; may be repeated. Default: all queues in the
    /// settings
    #[arg(long = "queue", id = "names", value_name = "QUEUE")]
    names: Vec<String>,
}

impl Queues {
    /// The settings, with exactly the queues that were asked for.
    pub(super) fn select(&self, settings: Settings) -> anyhow::Result<Settings> {
        let mut settings = self.and_listed(settings)?;
        if !self.names.is_empty() {
            settings.queues.retain(|queue| self.names.contains(&queue.queue));
        }
        Ok(settings)
    }

    /// Whether the settings list queues that were not asked for.
    pub(super) fn leave_out_some_of(&self, settings: &Settings) -> bool {
        !self.names.is_empty()
            && settings.queues.iter().any(|queue| !self.names.contains(&queue.queue))
    }

    /// The settings, with the queues that they list and those that were asked for.
    pub(super) fn and_listed(&self, mut settings: Settings) -> anyhow::Result<Settings> {
        if self.names.is_empty() && settings.queues.is_empty() {
            let problem = "the settings list no queue: name one with --queue, or list queues under [[queues]]";
            return Err(Usage(problem.to_owned()).into());
        }
        for name in &self.names {
            settings.queue_mut(name);
        }
        Ok(settings)
    }
}
