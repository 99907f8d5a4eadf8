//! Who logs in at the Redis servers: whom a URL names, or whoever the application says at each connection.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use redis::{ErrorKind, RedisConnectionInfo, RedisError, RedisResult};

/// A user's name and password; see [`ClientBuilder::credentials`](crate::ClientBuilder::credentials).
#[derive(Clone)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Credentials {
    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
        }
    }

    /// A user of the server's ACL.
    pub fn user(name: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: Some(name.into()),
            password: password.into(),
        }
    }
}

/// Credentials do not belong into a log.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

type Provided = Result<Credentials, Box<dyn StdError + Send + Sync>>;
type Providing = Pin<Box<dyn Future<Output = Provided> + Send>>;
type Provide = dyn Fn() -> Providing + Send + Sync;

/// Asked for credentials before each connection logs in.
#[derive(Clone)]
pub(crate) struct CredentialsProvider(Arc<Provide>);

impl CredentialsProvider {
    pub(crate) fn new<F, E>(provide: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let provided = provide();
            Box::pin(async move { provided.await.map_err(Into::into) })
        }))
    }

    /// What the application says now, or why it says nothing.
    pub(crate) async fn credentials(&self) -> Result<Credentials, String> {
        let mut providing = None;
        // The application's own; a panic in it is told by the panic's hook.
        let provided = poll_fn(|cx| {
            let poll = || providing.get_or_insert_with(&*self.0).as_mut().poll(cx);
            match catch_unwind(AssertUnwindSafe(poll)) {
                Ok(polled) => polled.map(|provided| provided.map_err(|why| why.to_string())),
                Err(_) => Poll::Ready(Err("what provides them has panicked".to_owned())),
            }
        });
        provided.await
    }
}

impl fmt::Debug for CredentialsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsProvider")
            .finish_non_exhaustive()
    }
}

/// How a connection logs in, and in which database it works.
#[derive(Clone)]
pub(super) struct Login {
    url: RedisConnectionInfo,
    provider: Option<CredentialsProvider>,
}

impl Login {
    /// As a URL has it, where there is no provider. The error, which goes on behind the name of a URL,
    /// says that there are both.
    pub(super) fn new(
        url: RedisConnectionInfo,
        provider: Option<&CredentialsProvider>,
    ) -> Result<Self, String> {
        let is_named = url.username().is_some() || url.password().is_some();
        if is_named && provider.is_some() {
            return Err(
                "it names a user or a password, and `credentials` are set: leave one of them out"
                    .to_owned(),
            );
        }
        Ok(Self {
            url,
            provider: provider.cloned(),
        })
    }

    /// As a URL has it.
    pub(super) fn of_url(url: RedisConnectionInfo) -> Self {
        Self {
            url,
            provider: None,
        }
    }

    /// What the next connection is to log in with.
    pub(super) async fn settings(&self) -> RedisResult<RedisConnectionInfo> {
        let settings = self.url.clone();
        let Some(provider) = &self.provider else {
            return Ok(settings);
        };
        let Credentials { user, password } = provider.credentials().await.map_err(|why| {
            let kind = ErrorKind::AuthenticationFailed;
            RedisError::from((kind, "the credentials could not be had", why))
        })?;
        let settings = settings.set_password(password);
        Ok(match user {
            Some(user) => settings.set_username(user),
            None => settings,
        })
    }
}
