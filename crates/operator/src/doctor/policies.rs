//! For which queues of others the exported policies do not fit.

use super::checks::own_dead_lettering;
use super::subject::Subject;
use crate::management::Api;
use rehop::settings::Declare;
use rehop::{Error, Settings};

/// The work queues that somebody else has declared with dead-lettering of their own, with what
/// would become of their dead letters under the policy that `rehop topology export --format
/// policies` prints: the broker takes each key for itself, an argument before a policy. Asks the
/// management API alone; `None` if the settings name none.
///
/// # Errors
///
/// When the settings are wrong, or the management API cannot be used.
pub async fn unfit_for_policies(settings: &Settings) -> Result<Option<Vec<String>>, Error> {
    let unusable = |problem: String| Error::Management { problem: problem.into() };
    let subject = Subject::of(settings)?;
    let Some(api) = Api::of(settings) else { return Ok(None) };
    let (api, park) = (api.map_err(unusable)?, subject.names.park());
    let mut unfit = Vec::new();
    for config in subject.configs.iter().filter(|config| config.declare == Declare::Existing) {
        let details = api.queue(&config.queue).await;
        let details = details.map_err(|it| unusable(it.of("the arguments of existing queues")))?;
        let own = details.and_then(|details| own_dead_lettering(config, &details, &park));
        unfit.extend(own.map(|own| format!("queue {:?}: {own}", config.queue)));
    }
    Ok(Some(unfit))
}
