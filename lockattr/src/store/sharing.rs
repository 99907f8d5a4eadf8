//! With whom a claim shares its lock.

use std::borrow::Cow;

/// Whom a claim lets hold its lock beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Sharing {
    /// Nobody.
    #[default]
    Alone,
    /// Whoever does no more than this: readers.
    Readers,
    /// Others with permits, as long as all of them have no more than there are. Who counts another number
    /// of them goes by its own.
    Permits {
        /// How many there are, more than one.
        permits: u32,
        /// How many of them it takes.
        weight: u32,
    },
}

impl Sharing {
    pub(crate) fn is_alone(self) -> bool {
        self == Self::Alone
    }

    /// How many may hold at a time that want the same as this one.
    pub(crate) fn places(self) -> u32 {
        match self {
            Self::Alone => 1,
            Self::Readers => u32::MAX,
            Self::Permits { permits, weight } => (permits / weight.max(1)).max(1),
        }
    }

    /// How many permits of its lock it takes.
    pub(crate) fn weight(self) -> u32 {
        match self {
            Self::Permits { weight, .. } => weight,
            Self::Alone | Self::Readers => 1,
        }
    }

    /// Whether such a one may be granted the lock beside these holders.
    pub(crate) fn fits_beside(self, mut holders: impl Iterator<Item = Self>) -> bool {
        match self {
            Self::Alone => holders.next().is_none(),
            Self::Readers => holders.all(|holder| holder == Self::Readers),
            Self::Permits { permits, weight } => {
                let used = holders.try_fold(u64::from(weight), |used, holder| match holder {
                    Self::Permits { weight, .. } => Some(used + u64::from(weight)),
                    Self::Alone | Self::Readers => None,
                });
                used.is_some_and(|used| used <= u64::from(permits))
            }
        }
    }

    /// As stores write it: `1` of who wants a lock alone, `shared` of a reader, and of who wants some of its permits how
    /// many, and how many there are, with this in between.
    pub(crate) fn wish(self, of: &str) -> Cow<'static, str> {
        match self {
            Self::Alone => "1".into(),
            Self::Readers => "shared".into(),
            Self::Permits { permits, weight } => format!("{weight}{of}{permits}").into(),
        }
    }

    /// What was written so.
    #[cfg(any(feature = "etcd", feature = "zookeeper"))]
    pub(crate) fn of_wish(wish: &str, of: &str) -> Option<Self> {
        match wish {
            "1" => return Some(Self::Alone),
            "shared" => return Some(Self::Readers),
            _ => {}
        }
        let (weight, permits) = wish.split_once(of)?;
        let (weight, permits) = (weight.parse().ok()?, permits.parse().ok()?);
        let is_some = permits > 1 && (1..=permits).contains(&weight);
        is_some.then_some(Self::Permits { permits, weight })
    }

    /// Whether whoever holds a lock so has all that another needs who wants it so.
    pub(crate) fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Alone, Self::Alone | Self::Readers) | (Self::Readers, Self::Readers) => true,
            (
                Self::Permits { permits, weight },
                Self::Permits {
                    permits: others,
                    weight: less,
                },
            ) => permits == others && less <= weight,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sharing::{self, Alone, Readers};

    fn permits(permits: u32, weight: u32) -> Sharing {
        Sharing::Permits { permits, weight }
    }

    #[test]
    fn who_holds_is_beside_whom_it_lets() {
        let fits = |one: Sharing, beside: &[Sharing]| one.fits_beside(beside.iter().copied());
        for one in [Alone, Readers, permits(3, 3)] {
            assert!(fits(one, &[]), "{one:?}");
            assert!(!fits(one, &[Alone]), "{one:?}");
            assert!(!fits(Alone, &[one]), "{one:?}");
        }
        assert!(fits(Readers, &[Readers; 3]));
        assert!(!fits(Readers, &[permits(3, 1)]));
        assert!(!fits(permits(3, 1), &[Readers]));
        assert!(fits(permits(10, 3), &[permits(10, 4), permits(10, 3)]));
        assert!(!fits(permits(10, 4), &[permits(10, 4), permits(10, 3)]));
        // Each goes by its own number.
        assert!(fits(permits(20, 4), &[permits(10, 7)]));
        assert!(!fits(permits(5, 1), &[permits(10, 7)]));
        assert!(!fits(permits(2, 1), &[permits(u32::MAX, u32::MAX)]));
    }

    #[test]
    fn what_is_held_serves_who_needs_no_more() {
        assert!(Alone.covers(Alone) && Alone.covers(Readers) && Readers.covers(Readers));
        assert!(!Readers.covers(Alone) && !Alone.covers(permits(3, 1)));
        assert!(permits(3, 2).covers(permits(3, 1)) && permits(3, 2).covers(permits(3, 2)));
        assert!(!permits(3, 2).covers(permits(3, 3)) && !permits(3, 2).covers(permits(4, 1)));
    }
}
