//! A wall clock that a case can move: that of the processes which are started with it, and no
//! other.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::record::Millis;

pub(crate) const HOUR: Millis = 3_600_000;

/// Names the file that says by how many hours the clock of a process is moved.
const FILE: &str = "REHOP_TEST_FAULTS_CLOCK";

/// The wall clock of some processes. Clocks that only measure how much time passes are not moved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Clock {
    /// Takes the place of the C library's function that reads clocks.
    library: PathBuf,
    /// One signed byte. Of a longer number, a process could read one half before it is written, and
    /// the other half after.
    hours: PathBuf,
}

impl Clock {
    /// A clock that is right. The library is C, because only unsafe Rust could export such a
    /// function.
    pub(crate) async fn new(library: PathBuf, hours: PathBuf) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults/service/clock.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-o"]).arg(&library).arg(&source);
        let compiled = compiler
            .output()
            .await
            .unwrap_or_else(|error| panic!("this case needs the C compiler cc: {error}"));
        let said = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "cc compiles {}: {said}", source.display());
        let clock = Self { library, hours };
        clock.set(0);
        clock
    }

    /// Moves the clock to so many hours after the true time, also in processes that run.
    pub(crate) fn set(&self, hours: i8) {
        let file =
            File::options().create(true).truncate(false).write(true).open(&self.hours).unwrap();
        file.write_all_at(&hours.to_ne_bytes(), 0).unwrap();
    }

    /// The variables that give a process this clock.
    pub(crate) fn environment(&self) -> [(String, String); 2] {
        [("LD_PRELOAD", &self.library), (FILE, &self.hours)]
            .map(|(name, path)| (name.to_owned(), path.display().to_string()))
    }
}

/// The true time, also in a process whose clock is moved. `read` reads its clock.
pub(crate) fn true_time(read: impl Fn() -> Millis) -> Millis {
    loop {
        let (before, shown) = (moved(), read());
        // Otherwise the clock was moved meanwhile, and the time may be the one before or the one
        // after.
        if moved() == before {
            return shown - before;
        }
    }
}

/// By how much the clock of this process is moved.
fn moved() -> Millis {
    static HOURS: LazyLock<Option<File>> =
        LazyLock::new(|| std::env::var_os(FILE).map(|path| File::open(path).unwrap()));
    let Some(file) = &*HOURS else { return 0 };
    let mut hours = [0];
    file.read_exact_at(&mut hours, 0).unwrap();
    Millis::from(i8::from_ne_bytes(hours)) * HOUR
}
