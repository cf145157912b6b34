//! What operators do not see of messages.

use serde::{Deserialize, Serialize};

/// What operators do not see of messages, unless they ask for it. It holds for exports, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MaskSettings {
    /// The names of headers whose values are masked. Case does not matter, and `*` is any text.
    /// Default: `authorization`, `proxy-authorization`, `cookie`, `set-cookie`, `*token*`,
    /// `*secret*`, `*password*`, `*api-key*`.
    pub headers: Vec<String>,
    /// Paths of values that are masked in bodies that are JSON, such as `customer.card`. `*` is any
    /// one field or element, `**` any number of them. Default: `**.password`, `**.secret`,
    /// `**.token`.
    pub json: Vec<String>,
}

impl Default for MaskSettings {
    fn default() -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            headers: owned(&[
                "authorization",
                "proxy-authorization",
                "cookie",
                "set-cookie",
                "*token*",
                "*secret*",
                "*password*",
                "*api-key*",
            ]),
            json: owned(&["**.password", "**.secret", "**.token"]),
        }
    }
}
