//! Keyed hashes that stand in the place of keys where keys would be shown.

use std::fmt;
use std::sync::Arc;

use sha1_smol::{Digest, Sha1};

use crate::limits::MIN_REDACT_KEY;

/// The bytes of SHA-1's block, and of what is shown of its digest.
const BLOCK: usize = 64;
const SHOWN: usize = 8;

/// How a client shows keys that are not to be shown.
#[derive(Clone)]
pub(crate) struct Redaction {
    redactor: Redactor,
    /// Whether calls that say nothing of it are redacted.
    always: bool,
}

impl Redaction {
    /// With a key that was given, or else with one drawn for this client.
    pub(crate) fn new(key: Option<&SecretKey>, always: bool) -> Self {
        let redactor = match key {
            Some(SecretKey(key)) => Redactor::new(key),
            None => Redactor::new(&drawn()),
        };
        Self { redactor, always }
    }

    /// What redacts the keys of a call, if anything does.
    pub(crate) fn of_call(&self, asked: Option<bool>) -> Option<&Redactor> {
        asked.unwrap_or(self.always).then_some(&self.redactor)
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }
}

/// The key of a fleet's hashes; never shown.
#[derive(Clone)]
pub(crate) struct SecretKey(Vec<u8>);

impl SecretKey {
    pub(crate) fn new(key: Vec<u8>) -> Self {
        Self(key)
    }

    /// A shorter one could be tried out together with the ids that it hides.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.0.len() >= MIN_REDACT_KEY {
            return Ok(());
        }
        Err(format!(
            "a redact_key has at least {MIN_REDACT_KEY} bytes, not {}: draw it at random, and give the \
             same to all processes",
            self.0.len()
        ))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

fn drawn() -> [u8; MIN_REDACT_KEY] {
    let mut key = [0; MIN_REDACT_KEY];
    getrandom::fill(&mut key).expect("the operating system has random numbers");
    key
}

/// HMAC-SHA1 (RFC 2104) under one key. What breaks collisions of SHA-1 does not break its HMAC.
#[derive(Clone)]
pub(crate) struct Redactor(Arc<Padded>);

struct Padded {
    inner: Sha1,
    outer: Sha1,
}

impl Redactor {
    fn new(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if key.len() > BLOCK {
            let digest = Sha1::from(key).digest().bytes();
            block[..digest.len()].copy_from_slice(&digest);
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let padded = |pad| Sha1::from(block.map(|byte| byte ^ pad));
        Self(Arc::new(Padded {
            inner: padded(0x36),
            outer: padded(0x5c),
        }))
    }

    fn hash(&self, text: &[u8]) -> Digest {
        let mut inner = self.0.inner.clone();
        inner.update(text);
        let mut outer = self.0.outer.clone();
        outer.update(&inner.digest().bytes());
        outer.digest()
    }

    /// What is shown in the place of a key.
    pub(crate) fn redacted(&self, key: &str) -> String {
        let hash = self.hash(key.as_bytes()).bytes();
        let shown = hash.iter().take(SHOWN);
        let shown = shown.fold(0_u64, |shown, byte| shown << 8 | u64::from(*byte));
        format!("redacted:{shown:016x}")
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_2202() {
        let counted: Vec<u8> = (1..=25).collect();
        let long = "Test Using Larger Than Block-Size Key";
        let first = format!("{long} - Hash Key First");
        let longer = format!("{long} and Larger Than One Block-Size Data");
        let vectors: [(&[u8], &[u8], &str); 7] = [
            (
                &[0x0b; 20],
                b"Hi There",
                "b617318655057264e28bc0b6fb378c8ef146be00",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            ),
            (
                &[0xaa; 20],
                &[0xdd; 50],
                "125d7342b9ac11cd91a39af48aa17b4f63f175d3",
            ),
            (
                &counted,
                &[0xcd; 50],
                "4c9007f4026250c6bc8414f9bf50c86c2d7235da",
            ),
            (
                &[0x0c; 20],
                b"Test With Truncation",
                "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04",
            ),
            (
                &[0xaa; 80],
                first.as_bytes(),
                "aa4ae5e15272d00e95705637ce8a3b55ed402112",
            ),
            (
                &[0xaa; 80],
                longer.as_bytes(),
                "e8e99d0f45237d786d6bbaa7965c7808bbff1a91",
            ),
        ];
        for (key, text, expected) in vectors {
            assert_eq!(Redactor::new(key).hash(text).to_string(), expected);
        }
    }

    #[test]
    fn what_is_shown_is_the_start_of_the_hash() {
        let redactor = Redactor::new(b"Jefe");
        let shown = redactor.redacted("what do ya want for nothing?");
        assert_eq!(shown, "redacted:effcdf6ae5eb2fa2");
        assert_eq!(format!("{redactor:?}"), "Redactor");
    }
}
