//! From a client's settings to the members of a cluster.

use std::time::Duration;

use tonic::transport::{Endpoint, Uri};

use super::leases;
use super::members::{Members, Timeouts};
use super::url::Location;
use crate::error::Error;
use crate::runtime::background::Background;
#[cfg(feature = "tls")]
use crate::store::redis::{Certificates, check_certificates};

/// How often a connection over which something is waited for is asked whether it is alive. Servers take
/// less than five seconds for an attack.
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(3);

/// What a client has set.
pub(crate) struct Settings {
    pub(crate) prefix: String,
    pub(crate) location: Location,
    pub(crate) name: Option<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) reply_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Certificates,
}

impl Settings {
    pub(super) fn members(self, background: &Background) -> Result<Members, Error> {
        let timeouts = Timeouts {
            connect: self.connect_timeout,
            reply: self.reply_timeout,
        };
        #[cfg(feature = "tls")]
        let tls = tls(&self.location, &self.certificates)?;
        let name = self.name;
        let endpoint = |uri: Uri| {
            let unfit = |error: tonic::transport::Error| {
                Error::Config(format!("etcd cannot be connected to so: {error}"))
            };
            let mut endpoint = Endpoint::from(uri)
                .http2_keep_alive_interval(PING)
                .keep_alive_timeout(PONG);
            if let Some(name) = &name {
                endpoint = endpoint.user_agent(name.clone()).map_err(unfit)?;
            }
            #[cfg(feature = "tls")]
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(|error| {
                    Error::Config(format!(
                        "the certificates cannot be used: {}",
                        deepest(&error)
                    ))
                })?;
            }
            Ok(endpoint)
        };
        // Clients are spread over the members.
        let first = leases::new_id().map_err(|error| Error::Config(error.to_string()))?;
        let first = usize::try_from(first).unwrap_or(0);
        Members::new(self.location, endpoint, timeouts, first, background)
    }
}

#[cfg(feature = "tls")]
fn tls(
    location: &Location,
    certificates: &Certificates,
) -> Result<Option<tonic::transport::ClientTlsConfig>, Error> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};
    if !location.tls {
        return match certificates.any() {
            Some(setting) => Err(Error::Config(format!(
                "`{setting}` is for TLS, and this URL is not `etcds://`: leave it out, or change the URL"
            ))),
            None => Ok(None),
        };
    }
    // What is no certificate would be passed over there.
    check_certificates(certificates)?;
    let mut tls = match &certificates.roots {
        Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((chain, key)) = &certificates.client {
        tls = tls.identity(Identity::from_pem(chain, key));
    }
    Ok(Some(tls))
}

#[cfg(feature = "tls")]
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(below) = deepest.source() {
        deepest = below;
    }
    deepest.to_string()
}
