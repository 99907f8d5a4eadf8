//! Redis Sentinel: the primary is found whatever some sentinels say, and followed to where it moves.

mod access;
mod failover;
mod finding;
mod isolated;
#[cfg(feature = "tls")]
mod tls;

/// What a sentinel answers that names the primary at that port.
fn named(words: &[String], port: u16, epoch: u64) -> Vec<u8> {
    let digits = port.to_string();
    match words.get(1).map(String::as_str) {
        Some("GET-MASTER-ADDR-BY-NAME") => {
            format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{digits}\r\n", digits.len()).into_bytes()
        }
        Some("MASTER") => {
            let epoch = epoch.to_string();
            format!(
                "*4\r\n$12\r\nconfig-epoch\r\n${}\r\n{epoch}\r\n$19\r\nnum-other-sentinels\r\n$1\r\n0\r\n",
                epoch.len()
            )
            .into_bytes()
        }
        _ => b"+OK\r\n".to_vec(),
    }
}
