//! What an attribute's `client = …` may be.

use crate::client::Client;

/// What leads to a [`Client`].
#[diagnostic::on_unimplemented(
    message = "`client` is a `Client`, a reference or an `Arc` of one, and not `{Self}`",
    label = "not a `lockattr::Client`",
    note = "name where the client is kept, as in `client = self.locks`, or leave `client` out to \
            use the scoped or installed one",
    note = "a type of your own that holds a client can implement `AsRef<lockattr::Client>`"
)]
pub trait ClientArgument {
    fn client(&self) -> Client;
}

// Otherwise the compiler lists everything else that the type implements `AsRef` for.
#[diagnostic::do_not_recommend]
impl<C: AsRef<Client> + ?Sized> ClientArgument for C {
    fn client(&self) -> Client {
        self.as_ref().clone()
    }
}

/// The client that an attribute's `client = …` names.
#[must_use]
pub fn client<C: ClientArgument + ?Sized>(argument: &C) -> Client {
    argument.client()
}
