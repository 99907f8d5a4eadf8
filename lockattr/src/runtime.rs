//! What runs where, and what time it is: the client's own thread, clocks, pauses and wakers; and connections. It
//! knows nothing of locks.

pub(crate) mod background;
pub(crate) mod blocking;
pub(crate) mod clock;
mod events;
pub(crate) mod jitter;
pub(crate) mod on_behalf;
pub(crate) mod process;
pub(crate) mod stderr;
pub(crate) mod tcp;
pub(crate) mod together;
pub(crate) mod turns;
pub(crate) mod waker;
