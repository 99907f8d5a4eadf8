//! Stores that are no Redis servers: which URLs name them, and which settings they have.

use std::sync::Arc;

use super::ClientBuilder;
use crate::error::Error;
use crate::owner::Origin;
use crate::runtime::background::Background;
use crate::store::Store;
#[cfg(feature = "etcd")]
use crate::store::etcd::{self, Etcd};
#[cfg(feature = "postgres")]
use crate::store::postgres::{Postgres, PostgresConfig, Timeouts};
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper::{self, ZooKeeper, ZooKeeperConfig};

/// The schemes of URLs, each with the feature that it needs.
const SCHEMES: [(&str, &str); 6] = [
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("zookeeper", "zookeeper"),
    ("zookeeper+tls", "zookeeper"),
];

/// The feature that a URL needs which names one of these stores.
pub(super) fn feature_of(url: &str) -> Option<&'static str> {
    let (scheme, _) = url.split_once("://")?;
    let known = SCHEMES.iter().find(|(known, _)| *known == scheme);
    known.map(|(_, feature)| *feature)
}

impl ClientBuilder {
    /// The store that a URL names, if it is one of these.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(
            unused_variables,
            clippy::unused_self,
            reason = "not every store needs all of them"
        )
    )]
    pub(super) fn other_store(
        &self,
        url: &str,
        origin: &Origin,
        background: &Background,
    ) -> Option<Result<Arc<dyn Store>, Error>> {
        Some(match feature_of(url)? {
            #[cfg(feature = "etcd")]
            "etcd" => self.etcd(url, background),
            #[cfg(feature = "postgres")]
            "postgres" => self.postgres(url, origin, background),
            #[cfg(feature = "zookeeper")]
            "zookeeper" => zookeeper::ensemble(url, &self.access.certificates)?
                .and_then(|ensemble| self.zookeeper(ensemble, background)),
            feature => Err(Error::Config(format!(
                "{feature}:// URLs need the feature `{feature}` of lockattr: \
                 `cargo add lockattr --features {feature}`"
            ))),
        })
    }

    #[cfg(feature = "etcd")]
    fn etcd(&self, url: &str, background: &Background) -> Result<Arc<dyn Store>, Error> {
        self.refuse_settings_of_redis(self.access.of_redis())?;
        let settings = etcd::Settings {
            prefix: self.prefix.clone(),
            location: etcd::location(url)?,
            name: self.name.clone(),
            connect_timeout: self.connect_timeout,
            reply_timeout: self.reply_timeout,
            #[cfg(feature = "tls")]
            certificates: self.access.certificates.clone(),
        };
        Ok(Arc::new(Etcd::new(settings, background)?))
    }

    #[cfg(feature = "postgres")]
    fn postgres(
        &self,
        url: &str,
        origin: &Origin,
        background: &Background,
    ) -> Result<Arc<dyn Store>, Error> {
        self.refuse_settings_of_redis(None)?;
        let config = PostgresConfig {
            url,
            id: origin.new_id().to_string(),
            name: self.name.as_deref(),
            access: &self.access,
            timeouts: Timeouts {
                connect: self.connect_timeout,
                reply: self.reply_timeout,
            },
        };
        Ok(Arc::new(Postgres::new(&config, background)?))
    }

    #[cfg(feature = "zookeeper")]
    fn zookeeper(
        &self,
        ensemble: zookeeper::Ensemble,
        background: &Background,
    ) -> Result<Arc<dyn Store>, Error> {
        self.refuse_settings_of_redis(self.access.of_redis())?;
        if self.name.is_some() {
            return Err(Error::Config(
                "`name` is for Redis servers, and those of ZooKeeper know no names of connections: \
                 leave it out"
                    .to_owned(),
            ));
        }
        let config = ZooKeeperConfig {
            ensemble,
            ttl: self.ttl,
            connect_timeout: self.connect_timeout,
            reply_timeout: self.reply_timeout,
        };
        Ok(Arc::new(ZooKeeper::new(config, background)))
    }
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
    fn each_scheme_is_named_where_a_url_has_none_of_them() {
        let told = refused(Client::builder(), "mysql://127.0.0.1");
        for (scheme, _) in super::SCHEMES {
            assert!(told.contains(&format!("{scheme}://")), "{scheme}: {told}");
        }
    }

    #[test]
    fn an_address_alone_is_told_how_it_is_written() {
        for address in ["localhost", "localhost:6411", "10.0.0.7:6379"] {
            let told = refused(Client::builder(), address);
            assert!(told.contains("redis://HOST:PORT/"), "{told}");
        }
        for other in ["", "localhost:x", "user@host", "//host"] {
            let told = refused(Client::builder(), other);
            assert!(told.contains("zookeeper://"), "{told}");
        }
    }

    #[test]
    fn it_is_no_node_of_a_quorum() {
        let told = refused(Client::builder(), "etcd+quorum://a,b,c");
        assert!(told.contains("agree by themselves"), "{told}");
    }
}
