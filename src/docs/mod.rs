//! Pages that go with the API reference.

/// Where the pages' links lead in this reference. Of two definitions of a link the first counts.
/// The second is at the end of the page and names a file, for those who read the page as a file.
macro_rules! links {
    () => {
        concat!(
            "[architecture]: crate::docs::architecture\n",
            "[changelog]: crate::docs::changelog\n",
            "[comparison]: crate::docs::comparison\n",
            "[cookbook]: crate::docs::cookbook\n",
            "[decisions]: crate::docs::decisions\n",
            "[faq]: crate::docs::faq\n",
            "[frame]: crate::docs::runbooks#a-message-that-ends-every-connection\n",
            "[front page]: crate\n",
            "[guarantees]: crate::docs::guarantees\n",
            "[headers]: crate::docs::headers\n",
            "[kinds]: crate::docs::migration#kinds-of-existing-queues\n",
            "[limits]: crate::docs::sizing#the-brokers-limits\n",
            "[migration]: crate::docs::migration\n",
            "[names]: crate::docs::decisions#names-that-speak\n",
            "[order]: crate::docs::waiting#order\n",
            "[own wait queues]: crate::docs::waiting#whose-wait-queues\n",
            "[permissions]: crate::docs::topology#least-permissions\n",
            "[policies]: crate::docs::migration#a-quorum-queue-that-is-declared-elsewhere\n",
            "[priority]: crate::docs::waiting#tiers-and-the-ladder\n",
            "[producers]: crate::docs::producers\n",
            "[proof]: crate::docs::proof\n",
            "[queue for native]: crate::docs::waiting#a-queue-for-native-or-for-order\n",
            "[runbooks]: crate::docs::runbooks\n",
            "[settings]: crate::docs::settings\n",
            "[sizing]: crate::docs::sizing\n",
            "[telemetry]: crate::telemetry\n",
            "[testing]: crate::docs::testing\n",
            "[too large]: crate::docs::headers#headers-that-fill-a-frame\n",
            "[topology]: crate::docs::topology\n",
            "[tried clients]: crate::docs::producers#clients-that-were-tried\n",
            "[tutorial]: crate::docs::tutorial\n",
            "[unread]: crate::docs::telemetry#logs-must-not-hold-up-handlers\n",
            "[versions]: crate::docs::versions\n",
            "[waiting]: crate::docs::waiting\n",
            "[words]: crate#words\n",
            "[`with_state`]: crate::with_state\n",
            "[`Classify`]: crate::Classify\n",
            "[`Decode`]: crate::Decode\n",
            "[`Service::classify`]: crate::Service::classify\n",
            "[`Service::on_failure`]: crate::Service::on_failure\n",
            "[`Consumer::decode`]: crate::Consumer::decode\n",
            "[`Publisher`]: crate::Publisher\n",
            "[`Publish::deadline`]: crate::Publish::deadline\n",
            "[reference]: crate::telemetry\n",
            "[chain in a trace]: crate::telemetry#a-chain-in-a-trace\n",
            "[`Service::handle`]: crate::Service::handle\n",
            "[`Service::status`]: crate::Service::status\n",
            "[`Settings::from_figment`]: crate::Settings::from_figment\n",
            "[`Settings::new`]: crate::Settings::new\n",
            "[`ServiceHandle::resume`]: crate::ServiceHandle::resume\n",
            "[`message`]: crate::testing::message()\n",
            "[`outcome`]: crate::testing::MessageBuilder::outcome\n",
        )
    };
}

#[doc = links!()]
#[doc = include_str!("tutorial.md")]
pub mod tutorial {}

#[doc = links!()]
#[doc = include_str!("cookbook.md")]
pub mod cookbook {}

#[doc = links!()]
#[doc = include_str!("faq.md")]
pub mod faq {}

#[doc = links!()]
#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = links!()]
#[doc = include_str!("decisions.md")]
pub mod decisions {}

#[doc = links!()]
#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = links!()]
#[doc = include_str!("comparison.md")]
pub mod comparison {}

#[doc = links!()]
#[doc = include_str!("sizing.md")]
pub mod sizing {}

#[doc = links!()]
#[doc = include_str!("versions.md")]
pub mod versions {}

#[doc = links!()]
#[doc = include_str!("settings.md")]
pub mod settings {}

#[doc = links!()]
#[doc = include_str!("waiting.md")]
pub mod waiting {}

#[doc = links!()]
#[doc = include_str!("topology.md")]
pub mod topology {}

#[doc = links!()]
#[doc = include_str!("headers.md")]
pub mod headers {}

#[doc = links!()]
#[doc = include_str!("producers.md")]
pub mod producers {}

#[doc = links!()]
#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = links!()]
#[doc = include_str!("runbooks.md")]
pub mod runbooks {}

#[doc = links!()]
#[doc = include_str!("testing.md")]
pub mod testing {}

// Its program needs the feature.
#[cfg(feature = "otlp")]
#[doc = links!()]
#[doc = include_str!("telemetry.md")]
pub mod telemetry {}

#[doc = links!()]
#[doc = include_str!("proof.md")]
pub mod proof {}

#[doc = links!()]
#[doc = include_str!("changelog.md")]
pub mod changelog {}
