//! Percent-encoding (RFC 3986, 2.1).

use std::fmt::Write;

/// Writes a text with all bytes encoded that do not stand for themselves.
pub(crate) fn encode(text: &str, stands_for_itself: impl Fn(u8) -> bool, out: &mut String) {
    for byte in text.bytes() {
        if stands_for_itself(byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02x}");
        }
    }
}

/// The text that was encoded; nothing where it was none.
pub(crate) fn decoded(text: &str) -> Option<String> {
    String::from_utf8(decoded_bytes(text)?).ok()
}

/// Its bytes; nothing where a `%` is not followed by two hexadecimal digits.
pub(crate) fn decoded_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}
