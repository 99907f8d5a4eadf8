//! Which hash slot a lock is in.
//!
//! A lock's key has no braces, so all of it is hashed; and its helper keys have it as their hash tag, so
//! that they are in the same slot.

/// How many hash slots a cluster has.
pub(super) const SLOTS: usize = 16384;

/// The hash slot of a lock and of its helper keys.
pub(super) fn slot_of(lock: &str) -> u16 {
    crc16(lock.as_bytes()) % 16384
}

/// CRC-16 as the specification of Redis Cluster has it (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let index = usize::from((crc >> 8) ^ u16::from(*byte));
        (crc << 8) ^ TABLE[index]
    })
}

/// What each byte does to the check sum.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // As `CLUSTER KEYSLOT` has them.
        for (lock, slot) in [
            ("foo", 12182),
            ("bar", 5061),
            ("lock:sync:42", 2341),
            ("", 0),
        ] {
            assert_eq!(slot_of(lock), slot, "{lock}");
        }
    }
}
