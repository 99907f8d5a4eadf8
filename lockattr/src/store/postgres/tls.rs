//! TLS for connections, by the same rules as for every other store.

use tokio_postgres::config::SslMode;

use crate::error::Error;
use crate::store::redis::Access;

#[cfg(feature = "tls")]
pub(super) use encrypted::Connector;

/// How connections are encrypted, where the URL asks for it or allows it.
#[derive(Debug)]
pub(super) struct Tls {
    #[cfg(feature = "tls")]
    connector: Option<Connector>,
}

impl Tls {
    pub(super) fn new(mode: SslMode, access: &Access) -> Result<Self, Error> {
        if mode == SslMode::Require && !cfg!(feature = "tls") {
            return Err(Error::Config(
                "`sslmode=require` needs TLS: enable the feature `tls` of the crate `lockattr`"
                    .to_owned(),
            ));
        }
        if mode == SslMode::Disable
            && let Some(setting) = access.certificates.any()
        {
            return Err(Error::Config(format!(
                "`{setting}` is for TLS, and `sslmode=disable` has none: write `sslmode=require`, or leave \
                 it out"
            )));
        }
        #[cfg(feature = "tls")]
        let connector = match Connector::new(&access.certificates) {
            _ if mode == SslMode::Disable => None,
            Ok(connector) => Some(connector),
            // A machine without root certificates.
            Err(_) if mode == SslMode::Prefer => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            #[cfg(feature = "tls")]
            connector,
        })
    }

    #[cfg(feature = "tls")]
    pub(super) fn connector(&self) -> Option<Connector> {
        self.connector.clone()
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_self, reason = "with TLS it is used")]
    pub(super) fn connector(&self) -> Option<tokio_postgres::NoTls> {
        None
    }
}

#[cfg(feature = "tls")]
mod encrypted {
    use std::future::Future;
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
    use tokio_rustls::{TlsConnector, client};

    use crate::error::Error;
    use crate::store::redis::{Certificates, tls_config};

    /// Verifies servers, and shows what they ask for.
    #[derive(Clone)]
    pub(in super::super) struct Connector(TlsConnector);

    impl Connector {
        pub(super) fn new(certificates: &Certificates) -> Result<Self, Error> {
            let config = tls_config(certificates)?;
            Ok(Self(TlsConnector::from(Arc::clone(&config))))
        }
    }

    impl std::fmt::Debug for Connector {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Connector").finish_non_exhaustive()
        }
    }

    impl<S> MakeTlsConnect<S> for Connector
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        type Stream = Encrypted<S>;
        type TlsConnect = ConnectorTo;
        type Error = io::Error;

        fn make_tls_connect(&mut self, domain: &str) -> io::Result<ConnectorTo> {
            let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
            Ok(ConnectorTo {
                connector: self.0.clone(),
                name,
            })
        }
    }

    /// The same for one host.
    pub(in super::super) struct ConnectorTo {
        connector: TlsConnector,
        name: ServerName<'static>,
    }

    impl<S> TlsConnect<S> for ConnectorTo
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        type Stream = Encrypted<S>;
        type Error = io::Error;
        type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

        fn connect(self, stream: S) -> Self::Future {
            Box::pin(async move {
                let encrypted = self.connector.connect(self.name, stream).await?;
                Ok(Encrypted(encrypted))
            })
        }
    }

    pub(in super::super) struct Encrypted<S>(client::TlsStream<S>);

    impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
        fn channel_binding(&self) -> ChannelBinding {
            ChannelBinding::none()
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buffer)
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }
}
