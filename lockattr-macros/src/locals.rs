//! The names that an expansion brings into the function.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use proc_macro2::{Ident, Span};
use quote::{ToTokens as _, format_ident};
use syn::Signature;

/// Hygiene keeps variables apart, and not items: a name that a `let` binds must not be that of a
/// `static`, a `const` or a unit struct in scope, which the pattern would mean instead. So each name
/// ends in a digest of the signature that it is used under, as no name does that somebody writes.
pub(crate) struct Locals {
    digest: u64,
    /// Our variables are seen by our code alone.
    pub(crate) ours: Span,
}

impl Locals {
    pub(crate) fn of(sig: &Signature) -> Self {
        let mut hasher = DefaultHasher::new();
        sig.to_token_stream().to_string().hash(&mut hasher);
        Self {
            digest: hasher.finish(),
            ours: Span::mixed_site(),
        }
    }

    pub(crate) fn name(&self, word: &str) -> Ident {
        self.name_at(word, self.ours)
    }

    /// The same name where the compiler is to point.
    pub(crate) fn name_at(&self, word: &str, at: Span) -> Ident {
        let at = self.ours.located_at(at);
        format_ident!("lockattr_{word}_{:016x}", self.digest, span = at)
    }

    /// A name of one lock among those of the function.
    pub(crate) fn nth(&self, word: &str, index: usize) -> Ident {
        self.name(&format!("{word}_{index}"))
    }
}
