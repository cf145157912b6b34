//! Pages that go with the API reference.

// Of two definitions of a link the first counts. The second is at the end of the page and names a
// file, for those who read the page as a file.
#[doc = "[management_url]: rehop::settings::BrokerSettings::management_url\n\n"]
#[doc = include_str!("docs/page.md")]
pub mod page {}
