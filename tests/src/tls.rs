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

    /// A server with a certificate for `name`, and the URL of its TLS port.
    pub fn server(&self, name: &str) -> (Server, String) {
        let port = server::free_port().to_string();
        let options = self.options(name);
        let mut all = vec!["--tls-port", &port];
        all.extend(options.iter().map(String::as_str));
        (Server::with(&all), format!("rediss://127.0.0.1:{port}/"))
    }

    /// The options of a server with a certificate for `name`, but for its TLS port.
    pub fn options(&self, name: &str) -> Vec<String> {
        let key = KeyPair::generate().expect("random numbers");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        // Not the authority's: nodes of a cluster would take the certificate for one that signed itself.
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("a signature");
        let write = |file: String, pem: &str| {
            let path = self.scratch.path().join(file);
            fs::write(&path, pem).expect("a file in our directory");
            path.display().to_string()
        };
        let options = [
            (
                "--tls-cert-file",
                write(format!("{name}.pem"), &certificate.pem()),
            ),
            (
                "--tls-key-file",
                write(format!("{name}.key"), &key.serialize_pem()),
            ),
            ("--tls-ca-cert-file", write("ca.pem".to_owned(), &self.pem)),
            ("--tls-auth-clients", "no".to_owned()),
        ];
        let words = options
            .into_iter()
            .flat_map(|(option, value)| [option.to_owned(), value]);
        words.collect()
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
