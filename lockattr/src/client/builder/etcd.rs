//! A client of an etcd cluster: which of the settings it has, and what is told where it cannot be had.

#[cfg(feature = "etcd")]
use std::sync::Arc;

use crate::error::Error;
#[cfg(feature = "etcd")]
use crate::{Client, ClientBuilder};

/// Whether a URL is one of etcd's.
pub(super) fn is_one(url: &str) -> bool {
    ["etcd://", "etcds://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
}

#[cfg(feature = "etcd")]
impl ClientBuilder {
    pub(super) fn etcd_lazily(self, url: &str) -> Result<Client, Error> {
        use crate::owner::Origin;
        use crate::store::etcd::{Etcd, Settings, location};
        use crate::store::fail_fast;

        if let Some(setting) = self.access.of_redis() {
            return Err(Error::Config(format!(
                "`{setting}` is for Redis servers, and this client has an etcd cluster: leave it out"
            )));
        }
        self.refuse_replicas()?;
        let settings = Settings {
            prefix: self.prefix.clone(),
            location: location(url)?,
            name: self.name.clone(),
            connect_timeout: self.connect_timeout,
            reply_timeout: self.reply_timeout,
            #[cfg(feature = "tls")]
            certificates: self.access.certificates.clone(),
        };
        let (origin, background) = (Origin::here(), super::connect::start_background()?);
        let store = Arc::new(Etcd::new(settings, &background)?);
        let store = self.failing_fast(store, fail_fast::whole(), &background, &origin);
        Ok(self.client(&background, store, origin, false))
    }
}

#[cfg(not(feature = "etcd"))]
pub(super) fn missing() -> Error {
    Error::Config(
        "etcd:// URLs need the feature `etcd` of lockattr: `cargo add lockattr --features etcd`"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use crate::client::Client;

    fn refused(builder: crate::ClientBuilder, url: &str) -> String {
        let made = builder.connect_lazily(url);
        made.expect_err("it cannot be used").to_string()
    }

    #[cfg(not(feature = "etcd"))]
    #[test]
    fn without_the_feature_its_name_is_told() {
        let told = refused(Client::builder(), "etcd://127.0.0.1");
        assert!(told.contains("feature `etcd`"), "{told}");
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn what_is_for_redis_is_refused() {
        use std::time::Duration;
        let url = "etcd://127.0.0.1";
        let replicas = Client::builder().replicas(1, Duration::from_millis(5));
        assert!(refused(replicas, url).contains("`replicas`"));
        let addresses = Client::builder().addresses(|_, _| None);
        assert!(refused(addresses, url).contains("`addresses`"));
        #[cfg(feature = "tls")]
        {
            let roots = Client::builder().root_certificates("x");
            assert!(refused(roots, url).contains("not `etcds://`"));
            let roots = Client::builder().root_certificates("x");
            let told = refused(roots, "etcds://127.0.0.1");
            assert!(told.contains("certificates cannot be used"), "{told}");
        }
    }

    #[test]
    fn it_is_no_node_of_a_quorum() {
        let told = refused(Client::builder(), "etcd+quorum://a,b,c");
        assert!(told.contains("agree by themselves"), "{told}");
    }
}
