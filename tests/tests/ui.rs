//! Wrong use is refused where it was written, in words that help.
//!
//! The snapshots are one compiler's words: `TRYBUILD=overwrite cargo test -p tests --test ui` writes
//! them anew, to be read before they are kept.

use std::process::Command;

/// The compiler whose words the snapshots are.
const TOOLCHAIN: &str = "rustc 1.95.0 ";

#[test]
fn wrong_use_is_refused_with_advice() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.expect("rustc runs").stdout;
    if !version.starts_with(TOOLCHAIN.as_bytes()) {
        eprintln!("not compared: the snapshots are of {TOOLCHAIN}");
        return;
    }
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
