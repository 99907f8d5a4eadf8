//! A directory of its own for each server, record and socket; gone when its owner is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Short on purpose: a unix socket's path may have 107 bytes.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("lat-{}-{number}", process::id()));
        // A process of the same id that was killed may have left one behind.
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("a directory under the temporary one");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
