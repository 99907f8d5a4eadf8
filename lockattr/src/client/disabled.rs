//! The switch that turns all locks off.

use std::sync::{Once, OnceLock};

use super::Client;
use crate::error::Error;
use crate::runtime::stderr;

/// Whether the environment turns locks off: `LOCKATTR_DISABLED=1`.
pub(super) fn by_environment() -> bool {
    std::env::var_os("LOCKATTR_DISABLED").is_some_and(|value| value == "1")
}

/// Says once in a process that locks are off, also where nobody reads the log.
pub(super) fn tell() {
    static TOLD: Once = Once::new();
    const LINE: &str = "LOCKS ARE DISABLED: every locked function runs unguarded in this process";
    TOLD.call_once(|| {
        tracing::error!(target: "lockattr", "{LINE}");
        stderr::tell_unless_logged(LINE);
    });
}

/// The client of calls that find none, where the environment turns locks off.
pub(super) fn client() -> Result<Client, Error> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client.clone());
    }
    let client = Client::disabled()?;
    Ok(CLIENT.get_or_init(|| client).clone())
}
