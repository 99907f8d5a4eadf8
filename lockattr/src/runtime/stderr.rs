//! What must not be missed, also where nobody reads the log.

use tracing::Level;

/// Says on stderr what was logged at ERROR, where no subscriber takes that.
pub(crate) fn tell_unless_logged(line: &str) {
    if !tracing::enabled!(target: "lockattr", Level::ERROR) {
        eprintln!("lockattr: {line}");
    }
}
