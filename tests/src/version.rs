//! Which `redis-server` is in the PATH: what one version has another has not.

use std::process::Command;
use std::sync::OnceLock;

/// Its major and minor version. Forks go on from Redis 7.2 with higher numbers.
pub fn version() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let output = Command::new("redis-server").arg("--version").output();
        let output = output.expect("redis-server is in the PATH");
        let text = String::from_utf8_lossy(&output.stdout);
        read(&text).unwrap_or_else(|| panic!("no version: {text}"))
    })
}

/// Whether the rights of users are to channels as well as to keys.
pub fn has_channel_rights() -> bool {
    version() >= (6, 2)
}

/// `Redis server v=7.0.15 sha=…`
fn read(text: &str) -> Option<(u32, u32)> {
    let (_, version) = text.split_once(" v=")?;
    let mut numbers = version.split('.');
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}
