//! Enums whose values are written down once: a code or a table that is made of all of them misses none.

/// An enum without fields, and the list of its values in the order of their discriminants.
macro_rules! listed {
    (
        $(#[$of_enum:meta])*
        $visible:vis enum $name:ident {
            $($(#[$of_value:meta])* $value:ident,)+
        }
    ) => {
        $(#[$of_enum])*
        $visible enum $name {
            $($(#[$of_value])* $value,)+
        }

        impl $name {
            pub(crate) const ALL: &[Self] = &[$(Self::$value),+];
        }
    };
}

pub(crate) use listed;
