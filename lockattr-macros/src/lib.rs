//! The attribute of the crate `lockattr`, which re-exports and documents it.

mod args;
mod attribute;
mod blocking;
mod body;
mod duration;
mod errors;
mod expand;
mod foreign;
mod function;
mod item;
mod key;
mod known;
mod literal;
mod locals;
mod lock;
mod pattern;
mod placeholder;
mod raw;
mod relations;
mod result;
mod suggest;
mod template;
mod template_error;
mod tokens;
mod values;

use proc_macro::TokenStream;

/// Runs an async function under a lock; see `lockattr::distributed_lock`.
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    attribute::apply(args.into(), &item.into()).into()
}
