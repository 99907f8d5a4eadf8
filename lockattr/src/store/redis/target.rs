//! From a URL to a server. What is said of a URL never repeats it: it may hold a password.

use redis::{Client, IntoConnectionInfo};

use crate::error::Error;

/// What may stand before `://` here.
const SCHEMES: [&str; 5] = ["redis", "rediss", "unix", "valkey", "valkeys"];

/// The server that a URL names.
pub(crate) fn target(
    url: &str,
    #[cfg(feature = "tls")] root_certificates: Option<Vec<u8>>,
) -> Result<Client, Error> {
    let scheme = url.split(':').next().unwrap_or_default();
    if !SCHEMES.contains(&scheme) {
        return Err(Error::Config(format!(
            "a store's URL starts with redis://, rediss://, unix:// or is memory:, and not with {:?}",
            scheme.chars().take(20).collect::<String>()
        )));
    }
    let tls = matches!(scheme, "rediss" | "valkeys");
    if tls && !cfg!(feature = "tls") {
        return Err(Error::Config(format!(
            "{scheme}:// needs TLS: enable the feature `tls` of the crate `lockattr`"
        )));
    }
    let refused = |error: redis::RedisError| {
        Error::Config(format!("the {scheme}:// URL cannot be used: {error}"))
    };
    let info = url.into_connection_info().map_err(refused)?;
    // Small commands that wait for their answers must not wait for each other.
    let settings = info.tcp_settings().clone().set_nodelay(true);
    let info = info.set_tcp_settings(settings);
    // The redis client would say what it is, by a command that needs a right of its own.
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    let info = info.set_redis_settings(settings);
    #[cfg(feature = "tls")]
    if tls {
        provide_cryptography();
        let certificates = redis::TlsCertificates {
            client_tls: None,
            root_cert: root_certificates,
        };
        return Client::build_with_tls(info, certificates).map_err(refused);
    }
    Client::open(info).map_err(refused)
}

/// rustls wants one provider of cryptography for the process, and the redis client chooses none. An
/// application that has chosen one keeps it.
#[cfg(feature = "tls")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread has been faster, and then there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
