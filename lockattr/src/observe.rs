//! What is observed of the calls of one function, for the application's metrics.
//!
//! The one place that knows the facade of the crate `metrics`. Without the feature of that name nothing
//! is observed, and what is called here compiles to nothing.

#[cfg(feature = "metrics")]
mod handles;
mod kinds;
#[cfg(not(feature = "metrics"))]
mod nothing;
#[cfg(feature = "metrics")]
mod observed;

pub(crate) use kinds::{Count, Span};
#[cfg(not(feature = "metrics"))]
pub(crate) use nothing::Observed;
#[cfg(feature = "metrics")]
pub(crate) use observed::Observed;
