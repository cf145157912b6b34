//! A folder of one test, which goes with it.

use std::path::PathBuf;

use rehop_testing::Namespace;

use crate::support::Fixture;

pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn of(fixture: &Fixture) -> Self {
        Self::new(&fixture.namespace)
    }

    pub(crate) fn new(namespace: &Namespace) -> Self {
        let folder = std::env::temp_dir().join(namespace.name());
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
