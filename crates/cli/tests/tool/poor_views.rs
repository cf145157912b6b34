//! The commands that change something, or read messages, with a management API that says little:
//! they say what they do not see, and delete no wait queue that is not known to be empty and
//! unused.

use rehop::Failure;
use rehop_testing::{Broker, Management, Publish, eventually};
use serde_json::json;

use super::broker_api::BrokerApi;
use super::examined::COUNTED;
use super::folder::Folder;
use super::process::Finished;
use crate::support::{Fixture, Running, SOON, millis};

const PASSWORD: &str = "hunter2";
/// The id of the parked message's chain.
pub(crate) const CHAIN: &str = "order-7";
/// The delay of a wait queue that a running service uses, and the tool's settings do not.
const IN_USE: &str = "700ms";
/// The warning of a command that reads messages and cannot see policies.
const BLIND: &str = "cannot see whether a policy makes looking at queue";
/// The delay of a wait queue, in milliseconds, in which messages stay for as long as a test takes.
const HOUR: u64 = 3_600_000;
/// A sample of all quorum queues, with their policies and consumers, every four minutes. These
/// policies say how often it is taken; the interval alone ages what is told of nodes, connections
/// and classic queues (3.10, 4.0 and 4.3).
const OLD_NUMBERS: [&str; 4] = [
    "collect_statistics_interval = 300000",
    "management.sample_retention_policies.global.minute = 5",
    "management.sample_retention_policies.basic.hour = 240",
    "management.sample_retention_policies.detailed.10 = 5",
];

/// What the tool learns of the broker, and from where.
pub(crate) struct View<'a> {
    pub(crate) url: &'a str,
    /// Who has it.
    pub(crate) whose: String,
    /// Why the policies are not seen, if they are not.
    pub(crate) policies_unseen: Option<&'a str>,
    /// Why no wait queue is deleted. Without it, the unused ones are.
    pub(crate) kept_because: Option<&'a str>,
    /// Whether the prune fails because of that, instead of reporting the queue as kept.
    pub(crate) is_refused: bool,
}

/// A service whose messages wait in a queue that the tool's settings do not have, and a message
/// that it has parked.
pub(crate) struct Ground {
    pub(crate) fixture: Fixture,
    pub(crate) running: Running,
    folder: Folder,
}

impl Ground {
    /// With further wait queues of these delays, in milliseconds, which nothing uses.
    pub(crate) async fn with_unused(mut fixture: Fixture, unused: &[u64]) -> Self {
        for delay in unused {
            fixture.settings.retry.delays = millis([*delay]);
            fixture.declare().await;
        }
        fixture.settings.retry.delays = millis([700]);
        let running = fixture.serve_always(Err(Failure::transient("no"))).await;
        let message = fixture.to_queue().message_id(CHAIN).body("as it came");
        fixture.client.publish(message).await.unwrap();
        fixture.has_depth(&fixture.parked(), 1).await;
        fixture.settings.retry.delays = millis([100]);
        fixture.declare().await;
        let folder = Folder::of(&fixture);
        // Declares the queue of what is discarded, so that the broker knows all queues from now on.
        for command in [&["discard", "--queue", &fixture.queue][..], &["restore"]] {
            let command = [&["parked"], command, &["--apply", "--all"]].concat();
            let moved = fixture.tool(&command).finished().await;
            assert_eq!(moved.code(), 0, "{}", moved.err);
        }
        std::fs::write(folder.0.join("mended"), "mended").unwrap();
        Self { fixture, running, folder }
    }

    pub(crate) fn tier(&self, delay: u64) -> String {
        format!("{}.wait.{delay}", self.fixture.namespace.name())
    }

    /// Runs a command, which ends with this status and says all of this.
    async fn ends(
        &self,
        view: &View<'_>,
        command: &[&str],
        (code, says): (i32, &[&str]),
    ) -> Finished {
        let arguments = [command, &["--management", view.url]].concat();
        let finished = self.fixture.tool(&arguments).finished().await;
        let said = format!("{}{}", finished.out, finished.err);
        let what = format!("{}, {command:?}: {said}", view.whose);
        assert_eq!(finished.code(), code, "{what}");
        assert!(!said.contains("panicked") && !said.contains(PASSWORD), "{what}");
        // The finding of an API that cannot be used says to look at what names it.
        let advice = said.replace("check broker.management_url", "");
        assert!(!advice.contains("broker.management_url"), "it is named already: {what}");
        for part in says {
            assert!(said.contains(part), "{part:?} is missing: {what}");
        }
        finished
    }

    /// The same for a command of `parked`, which warns once if the view does not show policies.
    async fn looks(&self, view: &View<'_>, command: &[&str], expected: (i32, &[&str])) {
        let finished = self.ends(view, &[&["parked"], command].concat(), expected).await;
        let warned: Vec<_> = finished.err.lines().filter(|line| line.contains(BLIND)).collect();
        let is_expected = match view.policies_unseen {
            None => warned.is_empty(),
            Some(because) => matches!(warned[..], [line] if line.contains(because)),
        };
        assert!(is_expected, "{}, {command:?}: {}", view.whose, finished.err);
    }

    /// Each command of `parked` does its work.
    pub(crate) async fn parked_works(&self, view: &View<'_>) {
        let queue = ["--queue", self.fixture.queue.as_str()];
        let of_queue = |command: &[&'static str]| [command, &queue].concat();
        let mended = self.folder.0.join("mended");
        let edit = ["--body", mended.to_str().unwrap(), "--apply", "--follow", "60s"];
        let discarded = format!("{}.discarded", self.fixture.namespace.name());
        self.looks(view, &of_queue(&["show", CHAIN]), (0, &["as it came"])).await;
        self.looks(view, &of_queue(&["export"]), (0, &[CHAIN])).await;
        for command in ["replay", "discard"] {
            self.looks(view, &of_queue(&[command]), (0, &["Nothing was done"])).await;
        }
        self.fixture.has_depth(&self.fixture.parked(), 1).await;
        let apply = ["--apply", "--expect", "1"];
        self.looks(view, &[&of_queue(&["discard"])[..], &apply].concat(), (0, &[])).await;
        self.fixture.has_depth(&discarded, 1).await;
        self.looks(view, &["list", "--discarded"], (0, &["all 1 messages"])).await;
        self.looks(view, &[&["restore"], &apply[..]].concat(), (0, &[])).await;
        self.fixture.has_depth(&self.fixture.parked(), 1).await;
        self.looks(view, &[&of_queue(&["replay"])[..], &apply].concat(), (3, &[])).await;
        self.fixture.has_depth(&self.fixture.parked(), 1).await;
        let edit = [&of_queue(&["edit", CHAIN])[..], &edit].concat();
        self.looks(view, &edit, (3, &["it parked again"])).await;
        self.looks(view, &of_queue(&["show", CHAIN]), (0, &["mended"])).await;
        self.imports(view).await;
        self.looks(view, &of_queue(&["show", CHAIN]), (0, &["mended"])).await;
        self.parks_anew().await;
    }

    /// The one parked message is there as it was, for the next view.
    async fn parks_anew(&self) {
        let discarded = format!("{}.discarded", self.fixture.namespace.name());
        self.fixture.client.purge(&discarded).await.unwrap();
        self.fixture.client.purge(&self.fixture.parked()).await.unwrap();
        let message = self.fixture.to_queue().message_id(CHAIN).body("as it came");
        self.fixture.client.publish(message).await.unwrap();
        self.fixture.has_depth(&self.fixture.parked(), 1).await;
    }

    /// A new file of this name with the parked message, as an import takes it.
    pub(crate) async fn exports(&self, view: &View<'_>, name: &str) -> String {
        let file = self.folder.0.join(name).to_str().unwrap().to_owned();
        let queue = self.fixture.queue.as_str();
        let export = ["export", "--queue", queue, "--reveal", "--output", &file];
        self.looks(view, &export, (0, &["1 messages exported to"])).await;
        self.fixture.has_depth(&self.fixture.parked(), 1).await;
        file
    }

    /// What was exported comes back into the parked queue, once.
    async fn imports(&self, view: &View<'_>) {
        let (parked, file) = (self.fixture.parked(), self.exports(view, "exported").await);
        self.fixture.client.purge(&parked).await.unwrap();
        let import = ["import", "--queue", self.fixture.queue.as_str(), &file];
        let apply = [&import[..], &["--apply"]].concat();
        let would = format!("1 messages would be imported into {parked}. Nothing was done");
        self.looks(view, &import, (0, &[&would])).await;
        self.fixture.has_depth(&parked, 0).await;
        for imported in ["1 imported, 0 were already there", "0 imported, 1 were already there"] {
            self.looks(view, &apply, (0, &[imported])).await;
            self.fixture.has_depth(&parked, 1).await;
        }
        // An export writes new files only.
        std::fs::remove_file(&file).unwrap();
    }

    /// The commands of `topology` that say what to declare, or declare it.
    pub(crate) async fn topology_works(&self, view: &View<'_>) {
        let queue = ["--queue", self.fixture.queue.as_str()];
        let topology = |command: &[&'static str]| [&["topology"], command, &queue].concat();
        let tier = self.tier(100);
        self.ends(view, &topology(&["declare"]), (0, &["is ready"])).await;
        self.ends(view, &topology(&["plan"]), (0, &["declaring would change nothing"])).await;
        self.ends(view, &topology(&["export"]), (0, &[&tier])).await;
        self.ends(view, &topology(&["export", "--format", "policies"]), (0, &["pattern"])).await;
        let same = "the broker is as the settings ask for";
        let unseen = "not seen: the policies that apply to queues";
        let verify = topology(&["verify"]);
        match view.policies_unseen {
            // Nothing else of the API is seen either, so anything may differ.
            Some(because) if view.is_refused => {
                self.ends(view, &verify, (3, &["management-unusable", because])).await;
            }
            Some(_) => {
                self.ends(view, &verify, (0, &[same, unseen])).await;
            }
            None => {
                let verified = self.ends(view, &verify, (0, &[same])).await;
                assert!(!verified.out.contains(unseen), "{}: {}", view.whose, verified.out);
            }
        }
    }

    /// The list of all parked queues, which says what it does not see.
    pub(crate) async fn lists(&self, view: &View<'_>) {
        let parked = format!("{}: all 1 messages", self.fixture.parked());
        let list = ["parked", "list"];
        match view.policies_unseen {
            None => self.ends(view, &list, (0, &[&parked])).await,
            Some(because) => self.ends(view, &list, (3, &["not seen: ", because])).await,
        };
    }

    /// A prune keeps what is in use, and deletes the wait queue of this delay, which is not, only
    /// if the view shows that.
    pub(crate) async fn prunes(&self, view: &View<'_>, unused: u64) {
        let delay = format!("{unused}ms");
        let [in_use, unused] = [700, unused].map(|delay| self.tier(delay));
        let queue = ["--queue", self.fixture.queue.as_str()];
        let apply = ["--apply", "--delay", IN_USE, "--delay", &delay];
        let prune = [&["topology", "prune"], &queue[..], &apply].concat();
        for more in [&[][..], &["--even-if-used"]] {
            let command = [&prune[..], more].concat();
            let kept = format!("queue {in_use} is kept: ");
            match view.kept_because {
                Some(because) if view.is_refused => {
                    self.ends(view, &command, (1, &[because])).await.error(1);
                }
                Some(because) => {
                    self.ends(view, &command, (0, &[&kept, because])).await;
                }
                None if more.is_empty() => {
                    let deleted = format!("queue {unused} is deleted");
                    self.ends(view, &command, (0, &[&kept, &deleted])).await;
                }
                None => {
                    self.ends(view, &command, (0, &[&kept])).await;
                }
            }
        }
        self.fixture.has_depth(&in_use, 0).await;
        let is_there = self.fixture.client.depth(&unused).await.is_ok();
        assert_eq!(is_there, view.kept_because.is_some(), "{}: {unused}", view.whose);
    }
}

/// A user of the management API, with permissions in the virtual host or without.
struct User {
    management: Management,
    name: String,
    url: String,
}

impl User {
    async fn add(api: &BrokerApi, ground: &Ground, tag: &str, is_permitted: bool) -> Self {
        let management = Broker::shared().await.management().unwrap();
        let permitted = if is_permitted { "permitted" } else { "stranger" };
        let name = format!("{}-{tag}-{permitted}", ground.fixture.namespace.name());
        let tagged = json!({ "password": PASSWORD, "tags": tag });
        management.put(&format!("users/{name}"), &tagged).await.unwrap();
        if is_permitted {
            management.set_permissions(&name, [".*"; 3]).await.unwrap();
        }
        let host = api.url_without_credentials().trim_start_matches("http://");
        let url = format!("http://{name}:{PASSWORD}@{host}");
        Self { management, name, url }
    }

    async fn delete(self) {
        self.management.delete(&format!("users/{}", self.name)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_who_see_less_move_messages_and_declare_but_prune_only_what_they_see_is_unused() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("acts-as").await;
    let unused = [900, 1_000, 1_100];
    let ground = Ground::with_unused(fixture, &unused).await;
    let fixture = &ground.fixture;
    let tiers = [100, 700, 900, 1_000, 1_100].map(|delay| ground.tier(delay));
    let queues = [fixture.queue.clone(), fixture.parked(), fixture.stray()];
    let counted: Vec<_> = tiers.iter().chain(&queues).map(String::as_str).collect();
    api.has_counted(&counted).await;
    for (tag, is_permitted, because) in [
        ("", true, "give it the tag `management`"),
        ("management", false, "give the user permissions there"),
    ] {
        let user = User::add(&api, &ground, tag, is_permitted).await;
        let view = View {
            url: &user.url,
            whose: user.name.clone(),
            policies_unseen: Some(because),
            kept_because: Some(because),
            is_refused: true,
        };
        ground.prunes(&view, unused[0]).await;
        ground.topology_works(&view).await;
        ground.lists(&view).await;
        ground.parked_works(&view).await;
        user.delete().await;
    }
    for (tag, unused) in ["management", "policymaker", "monitoring"].into_iter().zip(unused) {
        let user = User::add(&api, &ground, tag, true).await;
        let view = View {
            url: &user.url,
            whose: user.name.clone(),
            policies_unseen: None,
            kept_because: None,
            is_refused: false,
        };
        ground.prunes(&view, unused).await;
        ground.topology_works(&view).await;
        ground.lists(&view).await;
        ground.parked_works(&view).await;
        user.delete().await;
    }
    ground.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_works_where_the_broker_counts_nothing_and_no_wait_queue_is_deleted() {
    let broker = Broker::builder().conf("management_agent.disable_metrics_collector = true");
    without_statistics("act-uncounted", broker.start().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_works_where_the_broker_shows_only_totals_and_no_wait_queue_is_deleted() {
    let broker = Broker::builder().conf("management.disable_stats = true");
    let broker = broker.conf("management.enable_queue_totals = true").start().await.unwrap();
    without_statistics("act-unshown", broker).await;
}

async fn without_statistics(test: &str, broker: Broker) {
    let ground = Ground::with_unused(Fixture::at(test, broker.amqp_url()).await, &[900]).await;
    let management = broker.management().unwrap();
    let told = management.queue(&ground.fixture.parked()).await.unwrap();
    // Only some versions show policies all the same.
    let is_untold = told["effective_policy_definition"].is_null();
    let view = View {
        url: broker.management_url().unwrap(),
        whose: format!("{test} ({})", broker.version()),
        policies_unseen: is_untold
            .then_some("the broker has not counted yet, or collects no statistics"),
        kept_because: Some(
            "the broker has not counted its messages and consumers yet, or collects no statistics",
        ),
        is_refused: false,
    };
    ground.prunes(&view, 900).await;
    ground.topology_works(&view).await;
    ground.lists(&view).await;
    ground.parked_works(&view).await;
    ground.running.stop().await;
}

impl Ground {
    /// Waits for a sample of each queue, in which the work queue has its consumer.
    async fn is_sampled(&self, management: &Management) {
        let (work, name) = (&self.fixture.queue, self.fixture.namespace.name());
        let tiers = [100, 700, 900, 1_000, HOUR].map(|delay| self.tier(delay));
        let resting = [self.fixture.parked(), self.fixture.stray(), format!("{name}.discarded")];
        eventually(2 * COUNTED, "a sample of each queue", async || {
            for queue in tiers.iter().chain(&resting).chain([work]) {
                let told = management.queue(queue).await.map_err(|error| error.to_string())?;
                let is_told = |key: &str| told.get(key).is_some_and(|value| !value.is_null());
                let keys = ["effective_policy_definition", "messages", "consumers"];
                let is_consumed = queue != work || told["consumer_details"][0].is_object();
                if !(is_consumed && keys.into_iter().all(is_told)) {
                    return Err(told.to_string());
                }
            }
            Ok(true)
        })
        .await
        .unwrap();
    }

    /// Waits until the work queue has so many consumers.
    async fn has_consumers(&self, count: u32) {
        let has = async || {
            let consumers = self.fixture.client.consumers(&self.fixture.queue).await;
            consumers.map(|consumers| consumers == count)
        };
        eventually(SOON, "the consumers of the work queue", has).await.unwrap();
    }

    /// A message comes into an unused wait queue after the sample, in which it was empty: nothing
    /// says that it still is, and it is kept, and bound again.
    async fn keeps_what_has_a_message_by_now(&self, management: &Management, view: &View<'_>) {
        let (queue, tier) = (self.fixture.queue.as_str(), self.tier(HOUR));
        let exchange = format!("{}.wait", self.fixture.namespace.name());
        for (body, depth) in [("before", 1), ("after", 2)] {
            let waits = Publish::to(&exchange, "").header("rehop-wait-for", HOUR).body(body);
            self.fixture.client.publish(waits).await.unwrap();
            self.fixture.has_depth(&tier, depth).await;
            let told = management.queue(&tier).await.unwrap();
            assert!(depth == 2 || told["messages"] == 0, "these numbers are not old: {told}");
            let prune = ["topology", "prune", "--queue", queue, "--delay", "1h"];
            // What it asks for is counted every five seconds.
            let counts = async || {
                let listed = self.ends(view, &prune, (0, &[&tier])).await;
                let is_empty = listed.out.contains(&format!("{tier}: it is empty"));
                if is_empty { Err(listed.out) } else { Ok(true) }
            };
            eventually(SOON, "prune counts what waits by now", counts).await.unwrap();
            // Of what the sample shows it says that there are messages, else that some came.
            let kept = format!("queue {tier} is kept: ");
            let apply = [&prune[..], &["--apply"]].concat();
            self.ends(view, &apply, (0, &[&kept, "messages"])).await;
            self.fixture.has_depth(&tier, depth).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_works_with_numbers_that_are_minutes_old_and_nothing_in_use_is_deleted() {
    let builder = OLD_NUMBERS.iter().fold(Broker::builder(), |builder, line| builder.conf(*line));
    let broker = builder.start().await.unwrap();
    let fixture = Fixture::at("act-aged", broker.amqp_url()).await;
    let mut ground = Ground::with_unused(fixture, &[900, 1_000, HOUR]).await;
    let management = broker.management().unwrap();
    let view = |kept_because| View {
        url: broker.management_url().unwrap(),
        whose: format!("numbers of minutes ago ({})", broker.version()),
        policies_unseen: None,
        kept_because,
        is_refused: false,
    };
    ground.is_sampled(&management).await;
    // Another service begins to use a wait queue, and only AMQP shows that it is there.
    ground.fixture.settings.retry.delays = millis([1_000]);
    let late = ground.fixture.serve_always(Err(Failure::transient("no"))).await;
    ground.has_consumers(2).await;
    ground.fixture.settings.retry.delays = millis([100]);
    ground.prunes(&view(Some("the management API does not show all consumers")), 1_000).await;
    late.stop().await;
    ground.has_consumers(1).await;
    ground.keeps_what_has_a_message_by_now(&management, &view(None)).await;
    // A message waits in the queue that the first service uses, and comes home.
    ground.fixture.publish("waits").await;
    ground.prunes(&view(None), 900).await;
    ground.fixture.has_depth(&ground.fixture.parked(), 2).await;
    ground.parks_anew().await;
    let doctor = ["doctor", "--queue", ground.fixture.queue.as_str()];
    let says = ["counted: by the management API", "collect_statistics_interval", "uses it"];
    ground.ends(&view(None), &doctor, (3, &says)).await;
    ground.topology_works(&view(None)).await;
    ground.lists(&view(None)).await;
    ground.parked_works(&view(None)).await;
    assert_eq!(ground.fixture.client.depth(&ground.fixture.stray()).await.unwrap(), 0);
    ground.running.stop().await;
}

/// As of a queue whose node does not answer the one that was asked.
#[tokio::test(flavor = "multi_thread")]
async fn no_wait_queue_is_deleted_while_the_consumers_of_one_work_queue_cannot_be_asked_for() {
    let Some(api) = BrokerApi::shared().await else { return };
    let ground = Ground::with_unused(Fixture::new("act-failing").await, &[900, 1_000]).await;
    api.has_counted(&[&ground.fixture.queue, &ground.tier(900), &ground.tier(1_000)]).await;
    let work = format!("/api/queues/%2F/{}", ground.fixture.queue);
    let failing = api.failing_at(move |path| path == work).await;
    let view = |url, kept_because| View {
        url,
        whose: url.to_owned(),
        policies_unseen: None,
        kept_because,
        is_refused: false,
    };
    let because = "the management API does not show all consumers";
    ground.prunes(&view(&failing.url, Some(because)), 900).await;
    // An API that does not answer which wait queues there are says nothing of them.
    let blind = api.failing_at(|path| path.contains("page=")).await;
    let blind = View { is_refused: true, ..view(&blind.url, Some("500 Internal Server Error")) };
    ground.prunes(&blind, 900).await;
    let whole = api.failing_at(|_| false).await;
    ground.prunes(&view(&whole.url, None), 900).await;
    ground.running.stop().await;
}
