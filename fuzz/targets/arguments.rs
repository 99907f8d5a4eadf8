//! Any tokens are arguments with a key, or have errors, and the errors are valid Rust.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proc_macro2::{Span, TokenStream};

#[path = "../../lockattr-macros/src/args.rs"]
mod args;
#[path = "../../lockattr-macros/src/duration.rs"]
mod duration;
#[path = "../../lockattr-macros/src/errors.rs"]
mod errors;
#[path = "../../lockattr-macros/src/known.rs"]
mod known;
#[path = "../../lockattr-macros/src/raw.rs"]
mod raw;
#[path = "../../lockattr-macros/src/relations.rs"]
mod relations;
#[path = "../../lockattr-macros/src/suggest.rs"]
mod suggest;
#[path = "../../lockattr-macros/src/values.rs"]
mod values;

use args::Args;
use errors::CollectedErrors;

/// The parser of expressions is recursive, here and in the compiler. Deeper nesting overflows its
/// stack, which is known.
const LONGEST: usize = 512;

fuzz_target!(|text: &str| {
    if text.len() > LONGEST {
        return;
    }
    // The compiler refuses what is no tokens, before it calls the attribute.
    let Ok(tokens) = text.parse::<TokenStream>() else {
        return;
    };
    let mut errors = CollectedErrors::default();
    let args = Args::new(tokens, Span::call_site(), &mut errors);
    assert!(!args.keys.is_empty() || !errors.is_empty(), "{text}");
    syn::parse2::<syn::File>(errors.tokens()).expect("calls of compile_error!");
});
