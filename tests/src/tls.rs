//! A certificate authority of our own, and servers that it vouches for.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::scratch::Scratch;
use crate::server::{self, Server};

/// Signs certificates; known to those whom a test tells.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    scratch: Scratch,
    /// How many certificates were written down, each in files of its own.
    written: AtomicUsize,
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
            written: AtomicUsize::new(0),
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
        started(self.options(name))
    }

    /// The same, which lets nobody in but whom this authority vouches for.
    pub fn server_that_verifies(&self, name: &str) -> (Server, String) {
        let (mut options, port) = self.options(name);
        options.extend(["--tls-auth-clients", "yes"].map(str::to_owned));
        started((options, port))
    }

    /// The options by which a server, or a sentinel, has a certificate for `name`, and its TLS port.
    pub fn options(&self, name: &str) -> (Vec<String>, u16) {
        let port = server::free_port();
        let mut options = self.certificate_options(name);
        options.extend(["--tls-port".to_owned(), port.to_string()]);
        (options, port)
    }

    /// The same without the port.
    pub fn certificate_options(&self, name: &str) -> Vec<String> {
        let (certificate, key) = self.files(name);
        let options = [
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &self.own_file(),
            "--tls-auth-clients",
            "no",
        ];
        options.map(str::to_owned).to_vec()
    }

    /// The paths of a certificate for `name`, and of its key.
    pub fn files(&self, name: &str) -> (String, String) {
        let (certificate, key) = self.certificate(name);
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let certificate = self.write(&format!("{number}.pem"), &certificate);
        (certificate, self.write(&format!("{number}.key"), &key))
    }

    /// The path of what a server needs to trust this authority.
    pub fn own_file(&self) -> String {
        self.write("ca.pem", &self.pem)
    }

    fn write(&self, file: &str, pem: &str) -> String {
        let path = self.scratch.path().join(file);
        fs::write(&path, pem).expect("a file in our directory");
        path.display().to_string()
    }
}

fn started((options, port): (Vec<String>, u16)) -> (Server, String) {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Server::with(&options);
    (server, format!("rediss://127.0.0.1:{port}/"))
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
