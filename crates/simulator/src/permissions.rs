//! Who may do what with which queue or exchange.

use crate::error::{Exception, exchange_in_vhost, queue_in_vhost};
use crate::protocol::Version;

/// What a user may not do. Names are those of queues and exchanges; everything else is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// May not be declared or deleted.
    pub not_configure: Vec<String>,
    /// May not be published to, bound as a queue or as a destination.
    pub not_write: Vec<String>,
    /// May not be consumed, bound from.
    pub not_read: Vec<String>,
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Configure,
    Write,
    Read,
}

/// With what.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Resource<'a> {
    Queue(&'a str),
    Exchange(&'a str),
}

impl Permissions {
    /// Refuses what the user may not do.
    pub(crate) fn check(
        &self,
        version: Version,
        user: &str,
        access: Access,
        resource: Resource<'_>,
    ) -> Result<(), Exception> {
        if self.allows(access, resource.name()) {
            return Ok(());
        }
        // 3.10 does not say which permission is missing.
        let access = match (version, access) {
            (Version::V3_10, _) => "access",
            (_, Access::Configure) => "configure access",
            (_, Access::Write) => "write access",
            (_, Access::Read) => "read access",
        };
        let text = format!("{access} to {} refused for user '{user}'", resource.in_vhost());
        Err(Exception::access_refused(&text))
    }

    fn allows(&self, access: Access, name: &str) -> bool {
        let refused = match access {
            Access::Configure => &self.not_configure,
            Access::Write => &self.not_write,
            Access::Read => &self.not_read,
        };
        !refused.iter().any(|refused| refused == name)
    }
}

impl Resource<'_> {
    /// The default exchange has a name for this purpose.
    fn name(&self) -> &str {
        match self {
            Self::Exchange("") => "amq.default",
            Self::Queue(name) | Self::Exchange(name) => name,
        }
    }

    fn in_vhost(&self) -> String {
        match self {
            Self::Queue(_) => queue_in_vhost(self.name()),
            Self::Exchange(_) => exchange_in_vhost(self.name()),
        }
    }
}
