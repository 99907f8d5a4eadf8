//! The client of a process.

use std::sync::OnceLock;

use super::Client;
use crate::runtime::process::Process;

/// What a process has installed, and what its child has after a fork: there the parent's client stands
/// in this place, and is of no use.
pub(super) struct Installed(OnceLock<Box<InstalledClient>>);

struct InstalledClient {
    client: Client,
    process: Process,
    child: Installed,
}

impl Installed {
    pub(super) const fn none() -> Self {
        Self(OnceLock::new())
    }

    /// The client that was installed last, by this process or by one that it was forked off from.
    pub(super) fn get(&self) -> Option<&Client> {
        self.last().map(|last| &last.client)
    }

    /// Whether the client was installed: a process does so once.
    pub(super) fn set(&self, client: Client) -> bool {
        let process = Process::here();
        let free = match self.last() {
            Some(last) if last.process == process => return false,
            Some(last) => &last.child,
            None => self,
        };
        let link = InstalledClient {
            client,
            process,
            child: Self::none(),
        };
        free.0.set(Box::new(link)).is_ok()
    }

    fn last(&self) -> Option<&InstalledClient> {
        let mut last = self.0.get()?;
        while let Some(next) = last.child.0.get() {
            last = next;
        }
        Some(last)
    }
}
