//! What the client leaves to its application: the process's provider of cryptography.
#![cfg(feature = "tls")]
#![allow(missing_docs, reason = "the names of tests say what they show")]

use lockattr::{Client, Error};
use rustls::crypto::{CryptoProvider, ring};
use tests::tls::Authority;

async fn works(url: &str, authority: &Authority) -> Result<(), Error> {
    let builder = Client::builder().root_certificates(authority.pem());
    let locks = builder.connect(url).await?;
    locks.lock("sync:42").acquire().await?.release().await
}

/// Alone in its program, since there is one provider a process.
#[tokio::test]
async fn no_provider_is_installed_and_the_applications_own_is_used() {
    let authority = Authority::new();
    let (_server, url) = authority.server("127.0.0.1");
    works(&url, &authority).await.unwrap();
    assert!(CryptoProvider::get_default().is_none());
    // One that can do nothing: what is made from now on stands on the process's own.
    let mut useless = ring::default_provider();
    useless.cipher_suites.clear();
    useless.install_default().expect("the first");
    let error = works(&url, &authority).await.unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error:?}");
}
