//! The command `lockattr` as users run it: on real servers, with real processes and a real terminal.

mod codes;
mod doctor;
mod ending;
mod frame;
mod json;
mod locks;
mod passing;
mod releases;
mod schema;
mod signals;
mod support;
mod terminal;
