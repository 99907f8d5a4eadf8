//! TLS connections, with a configuration of the client's own.
//!
//! A rustls configuration that names no provider of cryptography installs one for the whole process, and
//! an application that installs its own later fails. So the provider is named here: the process's where
//! there is one, and `ring` otherwise. Which server is asked, and for how long, is left to the caller.

use std::io;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::access::Certificates;
use crate::error::Error;

/// How servers are verified, and what they are shown.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Verifies by the root certificates that are set, or by the machine's, and shows the certificate
    /// that is set, if any.
    pub(crate) fn new(certificates: &Certificates) -> Result<Self, Error> {
        config(certificates).map(Self)
    }

    /// Encrypts a connection to the host of that name.
    pub(crate) async fn encrypt(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.0))
            .connect(name, stream)
            .await
    }
}

/// Whether TLS can be used with these, for a store whose connections are made elsewhere.
#[cfg(feature = "etcd")]
pub(crate) fn check(certificates: &Certificates) -> Result<(), Error> {
    config(certificates).map(drop)
}

/// What verifies by the root certificates that are set, or by the machine's, and shows the certificate
/// that is set, if any.
pub(crate) fn config(certificates: &Certificates) -> Result<Arc<ClientConfig>, Error> {
    let roots = match &certificates.roots {
        Some(pem) => from_pem(pem)?,
        None => of_the_machine()?,
    };
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Config(format!("TLS cannot be used: {error}")))?
        .with_root_certificates(roots);
    let config = match &certificates.client {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let refused = |why: String| {
                Error::Config(format!("the client certificate cannot be used: {why}"))
            };
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
            let chain = chain.map_err(|error| refused(error.to_string()))?;
            if chain.is_empty() {
                return Err(refused("there is none in the PEM text".to_owned()));
            }
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| refused(format!("its key: {error}")))?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|error| refused(error.to_string()))?
        }
    };
    Ok(Arc::new(config))
}

fn from_pem(pem: &[u8]) -> Result<RootCertStore, Error> {
    let refused =
        |why: String| Error::Config(format!("the root certificates cannot be used: {why}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| refused(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refused(
            "there is no certificate in the PEM text".to_owned(),
        ));
    }
    Ok(roots)
}

fn of_the_machine() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be read are left out.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(": {error}"));
        return Err(Error::Config(format!(
            "this machine has no root certificates{}: install them (`ca-certificates`), or give \
             your own to `root_certificates`",
            why.unwrap_or_default()
        )));
    }
    Ok(roots)
}
