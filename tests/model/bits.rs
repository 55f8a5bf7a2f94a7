//! States in a few words: a search keeps a million of them.

/// Writes fields of a few bits one behind the other.
pub(super) struct Bits(pub(super) u64, pub(super) u32);

impl Bits {
    pub(super) fn put(&mut self, value: u8, bits: u32) {
        self.0 |= (value as u64) << self.1;
        self.1 += bits;
    }

    pub(super) fn get(&mut self, bits: u32) -> u8 {
        let value = self.0 & ((1 << bits) - 1);
        self.0 >>= bits;
        value as u8
    }
}

/// What fits into a few bits.
pub(super) trait Field {
    fn of(bits: u8) -> Self;
}

impl Field for u8 {
    fn of(bits: u8) -> u8 {
        bits
    }
}

impl Field for bool {
    fn of(bits: u8) -> bool {
        bits == 1
    }
}

/// A type of a few values, the first of which is where all begins.
macro_rules! variants {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum $name { #[default] $($(#[$about])* $variant),* }

        impl $crate::model::bits::Field for $name {
            fn of(bits: u8) -> $name {
                [$($name::$variant),*][usize::from(bits)]
            }
        }
    };
}

/// A structure of fields that have a width in bits.
macro_rules! packed {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $type:ty = $width:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct $name { $($(#[$about])* pub(super) $field: $type),* }

        impl $name {
            pub(super) fn pack(&self) -> u64 {
                let mut bits = $crate::model::bits::Bits(0, 0);
                $(bits.put(self.$field as u8, $width);)*
                bits.0
            }

            pub(super) fn unpack(packed: u64) -> $name {
                let mut bits = $crate::model::bits::Bits(packed, 0);
                $name { $($field: $crate::model::bits::Field::of(bits.get($width))),* }
            }
        }
    };
}

pub(super) use {packed, variants};
