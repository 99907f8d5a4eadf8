//! The errors of one attribute, all of them reported in one build.

use proc_macro2::TokenStream;
use syn::Error;

/// The value where there are no errors, or else all errors combined into one.
pub(crate) fn combined<T>(errors: impl IntoIterator<Item = Error>, value: T) -> Result<T, Error> {
    let combined = errors.into_iter().reduce(|mut all, one| {
        all.combine(one);
        all
    });
    combined.map_or(Ok(value), Err)
}

#[derive(Default)]
pub(crate) struct CollectedErrors(Vec<Error>);

impl CollectedErrors {
    pub(crate) fn push(&mut self, error: Error) {
        self.0.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value, or `None` after its error was collected.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0
            .iter()
            .flatten()
            .map(|error| error.to_string())
            .collect()
    }

    pub(crate) fn tokens(&self) -> TokenStream {
        self.0.iter().map(Error::to_compile_error).collect()
    }
}
