//! The names that an expansion brings into the function.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use proc_macro2::{Ident, Span};
use quote::{ToTokens as _, format_ident};
use syn::Signature;
use syn::ext::IdentExt as _;

/// Makes names that cannot collide with a user's.
///
/// Hygiene keeps variables apart, but not items: a `let` whose name is a `static`, a `const` or a
/// unit struct in scope would be a pattern that matches that item. So each name ends in a digest of
/// the function's signature.
pub(crate) struct Locals {
    /// The function's own name.
    pub(crate) function: String,
    digest: u64,
    /// The span of generated code: user code cannot see variables with it.
    pub(crate) ours: Span,
}

impl Locals {
    pub(crate) fn of(sig: &Signature) -> Self {
        let mut hasher = DefaultHasher::new();
        sig.to_token_stream().to_string().hash(&mut hasher);
        Self {
            function: sig.ident.unraw().to_string(),
            digest: hasher.finish(),
            ours: Span::mixed_site(),
        }
    }

    pub(crate) fn name(&self, word: &str) -> Ident {
        self.name_at(word, self.ours)
    }

    /// The same name, located where the compiler shall report errors.
    pub(crate) fn name_at(&self, word: &str, at: Span) -> Ident {
        let at = self.ours.located_at(at);
        format_ident!("lockattr_{word}_{:016x}", self.digest, span = at)
    }

    /// The name of a `static` of one of several locks on the function.
    pub(crate) fn nth_static(&self, word: &str, index: usize) -> Ident {
        format_ident!(
            "LOCKATTR_{word}_{index}_{:016X}",
            self.digest,
            span = self.ours
        )
    }

    /// A name for one of several locks on the function.
    pub(crate) fn nth(&self, word: &str, index: usize) -> Ident {
        self.name(&format!("{word}_{index}"))
    }
}
