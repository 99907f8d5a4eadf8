//! The errors of one attribute, all told in one build.

use proc_macro2::TokenStream;
use syn::Error;

#[derive(Default)]
pub(crate) struct Faults(Vec<Error>);

impl Faults {
    pub(crate) fn push(&mut self, error: Error) {
        self.0.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value, or nothing and its error kept.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn tokens(&self) -> TokenStream {
        self.0.iter().map(Error::to_compile_error).collect()
    }
}
