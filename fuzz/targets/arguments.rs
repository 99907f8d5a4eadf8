//! Any tokens are arguments with a key, or have faults, and the faults are one program's text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proc_macro2::{Span, TokenStream};

#[path = "../../lockattr-macros/src/args.rs"]
mod args;
#[path = "../../lockattr-macros/src/duration.rs"]
mod duration;
#[path = "../../lockattr-macros/src/faults.rs"]
mod faults;
#[path = "../../lockattr-macros/src/known.rs"]
mod known;
#[path = "../../lockattr-macros/src/names.rs"]
mod names;
#[path = "../../lockattr-macros/src/raw.rs"]
mod raw;
#[path = "../../lockattr-macros/src/values.rs"]
mod values;

use args::Args;
use faults::Faults;

/// Expressions are read by recursion, here and in the compiler: longer nests of them are no news.
const LONGEST: usize = 512;

fuzz_target!(|text: &str| {
    if text.len() > LONGEST {
        return;
    }
    // What is no tokens ends in the compiler, before the attribute is asked.
    let Ok(tokens) = text.parse::<TokenStream>() else {
        return;
    };
    let mut faults = Faults::default();
    let args = Args::new(tokens, Span::call_site(), &mut faults);
    assert!(!args.keys.is_empty() || !faults.is_empty(), "{text}");
    syn::parse2::<syn::File>(faults.tokens()).expect("calls of compile_error!");
});
