//! A certificate authority of our own, and servers that it vouches for.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

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

    /// A server with a certificate for `name`, and the URL of its TLS port.
    pub fn server(&self, name: &str) -> (Server, String) {
        let key = KeyPair::generate().expect("random numbers");
        let certificate = CertificateParams::new(vec![name.to_owned()])
            .and_then(|params| params.signed_by(&key, &self.issuer))
            .expect("a signature");
        let write = |file: String, pem: &str| {
            let path = self.scratch.path().join(file);
            fs::write(&path, pem).expect("a file in our directory");
            path.display().to_string()
        };
        let authority = write("ca.pem".to_owned(), &self.pem);
        let certificate = write(format!("{name}.pem"), &certificate.pem());
        let key = write(format!("{name}.key"), &key.serialize_pem());
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
            "no",
        ]);
        (server, format!("rediss://127.0.0.1:{port}/"))
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
