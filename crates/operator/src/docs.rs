//! Pages that go with the API reference.

/// Where links of the pages lead in this reference. Of two definitions of a link the first counts.
/// The second is at the end of the page and names a file, for those who read the page as a file.
macro_rules! links {
    () => {
        concat!(
            "[parked module]: crate::parked\n",
            "[scripting]: crate::docs::scripting\n",
            "[telemetry]: rehop::telemetry\n",
            "\n\n",
        )
    };
}

#[doc = links!()]
#[doc = include_str!("docs/parked.md")]
pub mod parked {}
#[doc = include_str!("docs/scripting.md")]
pub mod scripting {}
