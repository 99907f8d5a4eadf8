//! The clients of runtimes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};

use crate::client::Client;

/// So many runtimes have one, for whoever asks in a process where none has.
static COUNT: AtomicUsize = AtomicUsize::new(0);

static CLIENTS: Mutex<Vec<(Id, Client)>> = Mutex::new(Vec::new());

/// Answers whether the runtime had none.
pub(super) fn install(runtime: Id, client: &Client) -> bool {
    let mut clients = clients();
    if clients.iter().any(|(other, _)| *other == runtime) {
        return false;
    }
    clients.push((runtime, client.clone()));
    COUNT.store(clients.len(), Ordering::Relaxed);
    true
}

pub(super) fn remove(runtime: Id) {
    let mut clients = clients();
    let place = clients.iter().position(|(other, _)| *other == runtime);
    let removed = place.map(|place| clients.swap_remove(place));
    COUNT.store(clients.len(), Ordering::Relaxed);
    drop(clients);
    // The last handle of a client ends its threads.
    drop(removed);
}

/// The client of the runtime that this is called on.
pub(crate) fn of_runtime() -> Option<Client> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let here = Handle::try_current().ok()?.id();
    let clients = clients();
    let (_, client) = clients.iter().find(|(runtime, _)| *runtime == here)?;
    Some(client.clone())
}

fn clients() -> MutexGuard<'static, Vec<(Id, Client)>> {
    // No change can panic half way.
    CLIENTS.lock().unwrap_or_else(PoisonError::into_inner)
}
