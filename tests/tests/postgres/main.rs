//! Everything that needs a PostgreSQL server, one topic a file; `README.md` says what each proves.

#![allow(missing_docs, reason = "the names of tests say what they show")]

mod support;

mod access;
mod clocks;
mod cost;
mod drops;
mod faults;
mod fence;
mod hand_off;
mod inspect;
mod listener;
mod locks;
mod logins;
mod measured;
mod pooler;
mod processes;
mod random_faults;
mod replay;
mod together;
