//! How bytes travel to a server: plainly, or by TLS; over TCP, or a Unix socket.

use redis::aio::AsyncStream;
use redis::{ConnectionAddr, ErrorKind, RedisError, RedisResult};
use tokio::net::UnixStream;

use super::access::Access;
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::error::Error;
use crate::runtime::tcp::connect;

/// TLS, or none.
#[derive(Clone)]
pub(super) struct Transport {
    is_tls: bool,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

pub(super) type Stream = Box<dyn AsyncStream + Send + Sync + Unpin>;

impl Transport {
    /// As a URL's scheme has it.
    pub(super) fn of(scheme: &str, tls: bool, access: &Access) -> Result<Self, Error> {
        if tls && !cfg!(feature = "tls") {
            return Err(Error::Config(format!(
                "{scheme}:// needs TLS: enable the feature `tls` of the crate `lockattr`"
            )));
        }
        if !tls && let Some(setting) = access.certificates.any() {
            return Err(Error::Config(format!(
                "`{setting}` is for TLS, and {scheme}:// has none: write a scheme with it, as \
                 rediss://, or leave it out"
            )));
        }
        Ok(Self {
            is_tls: tls,
            #[cfg(feature = "tls")]
            tls: tls.then(|| Tls::new(&access.certificates)).transpose()?,
        })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Connects.
    pub(super) async fn stream(&self, address: &ConnectionAddr) -> RedisResult<Stream> {
        match address {
            ConnectionAddr::Tcp(host, port) => {
                let stream = connect(host, *port).await?;
                #[cfg(feature = "tls")]
                if let Some(tls) = &self.tls {
                    return Ok(Box::new(tls.encrypt(host, stream).await?));
                }
                Ok(Box::new(stream))
            }
            ConnectionAddr::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            _ => Err(RedisError::from((
                ErrorKind::InvalidClientConfig,
                "no such kind of address",
            ))),
        }
    }
}
