//! What the examples stand on: somewhere to keep locks, on any machine.

mod server;

pub use server::Server;
