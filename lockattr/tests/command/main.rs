//! The command `lockattr` as users run it: on real servers, with real processes and a real terminal.

mod codes;
mod ending;
mod frame;
mod json;
mod passing;
mod signals;
mod support;
mod terminal;
