//! The attribute of the crate `lockattr`, which re-exports and documents it.

mod args;
mod attribute;
mod body;
mod duration;
mod expand;
mod faults;
mod flaw;
mod foreign;
mod function;
mod item;
mod key;
mod known;
mod locals;
mod lock;
mod names;
mod pattern;
mod place;
mod raw;
mod result;
mod template;
mod tokens;
mod values;

use proc_macro::TokenStream;

/// Runs an async function under a lock; see `lockattr::distributed_lock`.
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    attribute::apply(args.into(), &item.into()).into()
}
