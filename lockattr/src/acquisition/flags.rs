//! What is known of an acquisition by its grant, and does not change: a byte, since there may be very many.

#[derive(Clone, Copy, Debug)]
pub(super) struct Flags(u8);

/// The keeper renews it.
pub(super) const RENEWED: u8 = 1;

/// The call asked for more than a ttl.
pub(super) const SPECIAL: u8 = 2;

/// The end of its lease is to be observed.
pub(super) const OBSERVED: u8 = 4;

impl Flags {
    pub(super) fn none() -> Self {
        Self(0)
    }

    pub(super) fn with(self, flag: u8, is_set: bool) -> Self {
        if is_set { Self(self.0 | flag) } else { self }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}
