//! What the doctor finds about a test's part of the broker.

use std::time::Duration;

use rehop::testing::eventually;
use serde_json::Value;

use super::process::Finished;
use crate::support::Fixture;

/// Longer than usual: the broker counts, and looks at policies, every 5 seconds.
pub(crate) const COUNTED: Duration = Duration::from_secs(60);

impl Fixture {
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
        let report: Value = serde_json::from_str(&finished.out).map_err(|_| finished.err.clone())?;
        let found = report["findings"].as_array().unwrap();
        assert_eq!(finished.code(), if found.is_empty() { 0 } else { 3 }, "{}", finished.out);
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
        Ok(found.iter().map(|finding| (text(finding, "check"), text(finding, "object"))).collect())
    }

    /// Waits until the doctor finds nothing but the missing consumer.
    pub(crate) async fn is_fine(&self, more: &[&str]) {
        eventually(COUNTED, "no complaint", async || {
            let found = self.findings(more).await;
            if found.iter().all(|(check, _)| check == "no-consumer") { Ok(true) } else { Err(format!("{found:?}")) }
        })
        .await
        .unwrap();
    }

    /// Waits until the doctor finds all of these, each an id and a part of the object's name.
    pub(crate) async fn is_found(&self, more: &[&str], expected: &[(&str, &str)]) {
        eventually(COUNTED, "the doctor finds what was planted", async || {
            let found = self.examined(more).await?;
            let is_found =
                |(id, name): &(&str, &str)| found.iter().any(|(check, object)| check == id && object.contains(name));
            match expected.iter().find(|expected| !is_found(expected)) {
                None => Ok(true),
                Some(missing) => Err(format!("{missing:?} is not among {found:?}")),
            }
        })
        .await
        .unwrap();
    }
}
