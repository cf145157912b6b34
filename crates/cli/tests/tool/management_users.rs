//! Users of the management API who may see less: each command that only reads works for them as far
//! as it can, and says what it did not see.

use rehop::Failure;
use rehop_testing::{Broker, Management};
use serde_json::json;

use super::broker_api::BrokerApi;
use crate::support::{Fixture, millis};

const PASSWORD: &str = "hunter2";

/// A user with this tag, and with permissions in the virtual host or without.
type User = (&'static str, bool);

/// A command, its exit status, and what it says, in each of several ways.
type Expected<'a> = (&'a [&'a str], i32, Vec<String>);

/// A service whose messages wait in a queue that the settings of the tool do not have, and a
/// message that it has parked.
struct Ground {
    fixture: Fixture,
    management: Management,
    /// The API's address, without credentials.
    host: String,
}

impl Ground {
    async fn says(&self, (tag, is_permitted): User, expected: &[Expected<'_>]) {
        let named = if is_permitted { "permitted" } else { "stranger" };
        let user = format!("{}-{tag}-{named}", self.fixture.namespace.name());
        let tagged = json!({ "password": PASSWORD, "tags": tag });
        self.management.put(&format!("users/{user}"), &tagged).await.unwrap();
        if is_permitted {
            self.management.set_permissions(&user, [".*"; 3]).await.unwrap();
        }
        let url = format!("http://{user}:{PASSWORD}@{}", self.host);
        for (command, code, parts) in expected {
            let of_queue = ["--queue", &self.fixture.queue];
            let of_queue = if command[0] == "parked" { &[][..] } else { &of_queue[..] };
            let arguments = [command, of_queue, &["--management", &url]].concat();
            let finished = self.fixture.tool(&arguments).finished().await;
            let said = format!("{}{}", finished.out, finished.err);
            let what = format!("{tag:?}, {named}, {command:?}: {said}");
            assert_eq!(finished.code(), *code, "{what}");
            assert!(!said.contains("panicked") && !said.contains(PASSWORD), "{what}");
            for part in parts {
                assert!(said.contains(part.as_str()), "{part:?} is missing: {what}");
            }
        }
        self.management.delete(&format!("users/{user}")).await.unwrap();
    }
}

/// All that reads, for one who gets no answer about the virtual host, for this reason.
fn blind<'a>(queue: &'a str, because: &str) -> Vec<Expected<'a>> {
    let says = |parts: &[&str]| parts.iter().copied().chain([because]).map(str::to_owned).collect();
    let harm = "cannot see whether a policy makes looking at queue";
    vec![
        (&["doctor"], 3, says(&["management-unusable"])),
        (&["topology", "show"], 0, vec![queue.to_owned()]),
        (&["topology", "verify"], 3, says(&["management-unusable"])),
        (&["topology", "plan"], 0, says(&["would change nothing, as far as seen", "not seen: "])),
        (&["topology", "prune"], 1, says(&["the broker's management API is needed"])),
        (&["parked", "list"], 3, says(&["not seen: parked queues of work queues"])),
        (&["parked", "list", "--stray"], 0, says(&["all 0 messages", harm])),
    ]
}

/// All that reads, for one who sees the virtual host, and of all else no more than this.
fn sighted<'a>(queue: &'a str, unseen: &[&str]) -> Vec<Expected<'a>> {
    let says = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
    let with = |parts: &[&str]| [says(parts), says(unseen)].concat();
    let in_use = "a running consumer with other settings uses it";
    vec![
        (&["doctor"], 3, with(&["a running consumer uses it, with other settings"])),
        (&["topology", "show"], 0, says(&[queue])),
        (&["topology", "verify"], 0, with(&["the broker is as the settings ask for"])),
        (&["topology", "plan"], 0, with(&["declaring would change nothing"])),
        (&["topology", "prune"], 0, says(&[in_use, "nothing can be deleted now"])),
        (&["parked", "list"], 0, says(&[&format!("{queue}.parked: all 1 messages")])),
        (&["parked", "list", "--stray"], 0, says(&["all 0 messages"])),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_management_user_may_not_see_is_said_to_be_unseen_by_each_command_that_reads() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("seen-by").await;
    fixture.settings.retry.delays = millis([700]);
    let running = fixture.serve_always(Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    fixture.has_depth(&fixture.parked(), 1).await;
    fixture.settings.retry.delays = millis([100]);
    fixture.declare().await;
    let [work, parked, stray] = [fixture.queue.clone(), fixture.parked(), fixture.stray()];
    let tiers = [100, 700].map(|tier| format!("{}.wait.{tier}", fixture.namespace.name()));
    api.has_counted(&[&work, &parked, &stray, &tiers[0], &tiers[1]]).await;
    let management = Broker::shared().await.management().unwrap();
    let host = api.url_without_credentials().trim_start_matches("http://").to_owned();
    let ground = Ground { fixture, management, host };
    ground.says(("", true), &blind(&work, "give it the tag `management`")).await;
    ground.says(("management", false), &blind(&work, "give the user permissions there")).await;
    let no_nodes = ["not seen: nodes, their versions and alarms", "give it the tag `monitoring`"];
    for tag in ["management", "policymaker"] {
        ground.says((tag, true), &sighted(&work, &no_nodes)).await;
    }
    ground.says(("monitoring", true), &sighted(&work, &[])).await;
    running.stop().await;
}
