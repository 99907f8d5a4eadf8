//! What a client needs beside a URL to reach servers.

use std::fmt;

use super::addresses::AddressMap;
use super::credentials::CredentialsProvider;

/// What the application has set; nothing where it has not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// For URLs that mean TLS.
    pub(crate) certificates: Certificates,
    /// For servers that announce addresses.
    pub(crate) addresses: Option<AddressMap>,
    pub(crate) credentials: Option<CredentialsProvider>,
}

/// In PEM form; set with the feature `tls` alone.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// By which servers are verified.
    pub(crate) roots: Option<Vec<u8>>,
    /// Which this client shows, and its key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Access {
    /// What one of the settings is called, if there is any.
    pub(crate) fn any(&self) -> Option<&'static str> {
        let set = [
            ("addresses", self.addresses.is_some()),
            ("credentials", self.credentials.is_some()),
        ];
        let set = set.into_iter().find(|(_, is_set)| *is_set);
        set.map(|(name, _)| name)
            .or_else(|| self.certificates.any())
    }
}

impl Certificates {
    /// What one of them is called, if there is any.
    pub(crate) fn any(&self) -> Option<&'static str> {
        let roots = self.roots.as_ref().map(|_| "root_certificates");
        roots.or(self.client.as_ref().map(|_| "client_certificate"))
    }
}

/// Keys do not belong into a log.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}
