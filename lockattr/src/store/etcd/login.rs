//! Who asks: a user logs in by name and password, and is known by a token from then on. Tokens end: by their
//! time, with the server that has given them, and whenever users or roles are changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Mutex as AsyncMutex;
use tonic::Request;

use super::fault::Fault;
use super::members::{AUTHENTICATE, Found, unary};
use super::proto::{Authenticate, Authenticated};

pub(super) struct Login {
    user: Option<(String, String)>,
    token: Mutex<Token>,
    /// Held by whoever logs in.
    logging_in: AsyncMutex<()>,
}

#[derive(Clone)]
enum Token {
    /// There is none yet, or not any more.
    None,
    Is(String),
    /// The server keeps no users, so that everybody may do everything.
    NotWanted,
}

impl Token {
    fn into_sent(self) -> Option<String> {
        match self {
            Self::Is(token) => Some(token),
            Self::None | Self::NotWanted => None,
        }
    }
}

impl Login {
    pub(super) fn new(user: Option<(String, String)>) -> Self {
        Self {
            user,
            token: Mutex::new(Token::None),
            logging_in: AsyncMutex::new(()),
        }
    }

    /// Whether there is anybody who could log in.
    pub(super) fn is_known(&self) -> bool {
        self.user.is_some()
    }

    /// The token to ask with, if there is to be one; logs in at this member where there is none.
    pub(super) async fn token(&self, member: &Found) -> Result<Option<String>, Fault> {
        let Some((name, password)) = &self.user else {
            return Ok(None);
        };
        let _alone = match self.known() {
            Token::None => self.logging_in.lock().await,
            token => return Ok(token.into_sent()),
        };
        match self.known() {
            Token::None => {}
            token => return Ok(token.into_sent()),
        }
        let request = Request::new(Authenticate {
            name: name.clone(),
            password: password.clone(),
        });
        let answer = unary(member, AUTHENTICATE, request).await;
        let token = match answer {
            Ok(Authenticated { token }) => Token::Is(token),
            Err(fault) if fault.error.to_string().contains("not enabled") => Token::NotWanted,
            Err(fault) => return Err(fault),
        };
        *self.lock() = token.clone();
        Ok(token.into_sent())
    }

    /// This token was refused; or none was sent, and one is wanted now.
    pub(super) fn ended(&self, token: Option<&str>) {
        let mut known = self.lock();
        let is_it = match &*known {
            Token::None => false,
            Token::Is(known) => token == Some(known),
            Token::NotWanted => token.is_none(),
        };
        if is_it {
            *known = Token::None;
        }
    }

    /// The next one who asks logs in.
    pub(super) fn forget(&self) {
        *self.lock() = Token::None;
    }

    fn known(&self) -> Token {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Token> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
