//! What the doctor finds about a test's part of the broker.

use std::time::Duration;

use rehop::Topology;
use rehop::settings::Declare;
use rehop_testing::eventually;
use serde_json::Value;

use super::process::Finished;
use crate::support::Fixture;

/// Longer than usual: the broker counts, and looks at policies, every 5 seconds.
pub(crate) const COUNTED: Duration = Duration::from_secs(180);

/// Whether a finding is the one with this id, about an object whose name contains this.
fn is((check, object): &(String, String), (id, name): &(&str, &str)) -> bool {
    check == id && object.contains(name)
}

impl Fixture {
    /// Declares everything but the work queue, which somebody else has declared.
    pub(crate) async fn declare_the_rest(&self) {
        let mut settings = self.settings.clone();
        settings.queue_mut(&self.queue).declare = Declare::Existing;
        Topology::of(&settings).unwrap().declare(&settings).await.unwrap();
    }

    pub(crate) async fn doctor(&self, more: &[&str]) -> Finished {
        let arguments = [&["doctor", "--queue", &self.queue, "--json"], more].concat();
        self.tool(&arguments).finished().await
    }

    /// The ids of what the doctor finds about objects of this fixture, with the objects.
    pub(crate) async fn findings(&self, more: &[&str]) -> Vec<(String, String)> {
        self.examined(more).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, or why the broker could not be examined.
    async fn examined(&self, more: &[&str]) -> Result<Vec<(String, String)>, String> {
        let finished = self.doctor(more).await;
        let report: Value =
            serde_json::from_str(&finished.out).map_err(|_| finished.err.clone())?;
        let found = report["findings"].as_array().unwrap();
        assert_eq!(finished.code(), if found.is_empty() { 0 } else { 3 }, "{}", finished.out);
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
        Ok(found.iter().map(|finding| (text(finding, "check"), text(finding, "object"))).collect())
    }

    /// Waits until the doctor finds nothing but the missing consumer.
    pub(crate) async fn is_fine(&self, more: &[&str]) {
        self.is_found(more, &[]).await;
    }

    /// Waits until the doctor finds all of these, each an id and a part of the object's name, and
    /// nothing else but the missing consumer.
    pub(crate) async fn is_found(&self, more: &[&str], expected: &[(&str, &str)]) {
        self.is_found_with(more, expected, &[]).await;
    }

    /// The same, where what was planted may also have these consequences.
    pub(crate) async fn is_found_with(
        &self,
        more: &[&str],
        expected: &[(&str, &str)],
        consequences: &[(&str, &str)],
    ) {
        eventually(COUNTED, "the doctor finds what was planted, and nothing else", async || {
            let found = self.examined(more).await?;
            if let Some(missing) =
                expected.iter().find(|expected| !found.iter().any(|found| is(found, expected)))
            {
                return Err(format!("{missing:?} is not among {found:?}"));
            }
            let may_be = |found: &(String, String)| {
                found.0 == "no-consumer"
                    || expected.iter().chain(consequences).any(|named| is(found, named))
            };
            match found.iter().find(|found| !may_be(found)) {
                None => Ok(true),
                Some(surplus) => Err(format!("{surplus:?} was not planted")),
            }
        })
        .await
        .unwrap();
    }
}
