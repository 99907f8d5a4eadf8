//! Which keys are asked for: a pattern of keys as one of the server's.

use crate::store::inspect::matches;
use crate::store::redis::names::{NamedKey, Names};

/// The server may try every way in which stars can match; with so many that is still quick for any key.
const MOST_STARS: usize = 3;

/// The locks that are listed.
pub(in crate::store::redis) struct Filter<'a> {
    prefix: &'a str,
    pattern: &'a str,
}

impl<'a> Filter<'a> {
    pub(in crate::store::redis) fn new(prefix: &'a str, pattern: &'a str) -> Self {
        Self { prefix, pattern }
    }

    /// The lock that a key belongs to, if it is asked for.
    pub(super) fn lock<'k>(&self, names: &Names, key: &'k str) -> Option<&'k str> {
        let (NamedKey::Lock(lock) | NamedKey::Queue(lock)) = names.read(key)?;
        let rest = lock.strip_prefix(self.prefix)?;
        matches(self.pattern, rest).then_some(lock)
    }

    /// What the server is to match keys with: all keys of the locks that are asked for match it, their
    /// helper keys included, and some others. What the pattern says behind its first stars is left out.
    pub(super) fn glob(&self) -> String {
        let mut glob = String::new();
        escape(self.prefix, &mut glob);
        // A helper key has more between the prefix and the pattern, and more behind it.
        glob.push('*');
        let mut stars = 1;
        for c in self.pattern.chars() {
            if c == '*' || c == '?' {
                // A `?` of the server's stands for a byte.
                glob.push_str(if c == '*' { "*" } else { "?*" });
                stars += 1;
                if stars == MOST_STARS {
                    return glob;
                }
            } else {
                escape(c.encode_utf8(&mut [0; 4]), &mut glob);
            }
        }
        if !glob.ends_with('*') || glob.ends_with("\\*") {
            glob.push('*');
        }
        glob
    }
}

/// Writes a text that stands for itself.
fn escape(text: &str, glob: &mut String) {
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') {
            glob.push('\\');
        }
        glob.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_pattern_has_few_stars_and_no_other_meaning() {
        for (prefix, pattern, glob) in [
            ("lock:", "", "lock:*"),
            ("lock:", "sync:42", "lock:*sync:42*"),
            ("[a]*", r"b\c", r"\[a\]\**b\\c*"),
            ("", "a?b", "*a?*b*"),
            ("", "a*b*c*d", "*a*b*"),
        ] {
            assert_eq!(Filter::new(prefix, pattern).glob(), glob);
        }
    }

    #[test]
    fn a_lock_is_known_by_each_of_its_keys() {
        let names = Names::new("lock:", "client");
        let filter = Filter::new("lock:", "g?o");
        for (key, lock) in [
            ("lock:geo", Some("lock:geo")),
            ("lock:wait:{lock:geo}", Some("lock:geo")),
            ("lock:wait:{lock:gore}", None),
            ("lock:token:{lock:geo}", None),
            ("lock:gore", None),
        ] {
            assert_eq!(filter.lock(&names, key), lock, "{key}");
        }
    }
}
