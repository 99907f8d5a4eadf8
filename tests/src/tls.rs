//! A certificate authority of our own, and servers that it vouches for.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::scratch::Scratch;
use crate::server::{self, Server};

/// Signs certificates; known to those whom a test tells.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    scratch: Scratch,
}

impl Authority {
    /// A fresh one, which nobody trusts yet.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names to be wrong");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("random numbers");
        let certificate = params.self_signed(&key).expect("a signature");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
            scratch: Scratch::new(),
        }
    }

    /// What a client needs to trust it.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for `name`, and its key, in PEM form.
    pub fn certificate(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("random numbers");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        // Not that of the authority: OpenSSL takes a certificate for self-signed which has its issuer's.
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("a signature");
        (certificate.pem(), key.serialize_pem())
    }

    /// A server with a certificate for `name`, and the URL of its TLS port.
    pub fn server(&self, name: &str) -> (Server, String) {
        self.server_with(name, "no")
    }

    /// The same, which lets nobody in but whom this authority vouches for.
    pub fn server_that_verifies(&self, name: &str) -> (Server, String) {
        self.server_with(name, "yes")
    }

    fn server_with(&self, name: &str, verifies: &str) -> (Server, String) {
        let (certificate, key) = self.certificate(name);
        let write = |file: String, pem: &str| {
            let path = self.scratch.path().join(file);
            fs::write(&path, pem).expect("a file in our directory");
            path.display().to_string()
        };
        let authority = write("ca.pem".to_owned(), &self.pem);
        let certificate = write(format!("{name}.pem"), &certificate);
        let key = write(format!("{name}.key"), &key);
        let port = server::free_port().to_string();
        let server = Server::with(&[
            "--tls-port",
            &port,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &authority,
            "--tls-auth-clients",
            verifies,
        ]);
        (server, format!("rediss://127.0.0.1:{port}/"))
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
