//! Packs each state of a search into a few words of 64 bits, because a search keeps millions of states.

use std::fmt::Debug;

pub(super) trait Packable: Copy + Debug {
    type Words: Copy + Eq + AsRef<[u64]>;

    fn pack(self) -> Self::Words;
    fn unpack(words: &Self::Words) -> Self;
}

impl<T: Field + Debug> Packable for T {
    type Words = [u64; 1];

    fn pack(self) -> [u64; 1] {
        [self.word()]
    }

    fn unpack(words: &[u64; 1]) -> T {
        T::of(words[0])
    }
}

/// A word that is filled with fields, from the lowest bit up. `at`: how many bits are filled. A read takes the lowest
/// field out of the word.
#[derive(Default)]
pub(super) struct Bits {
    word: u64,
    at: u32,
}

/// A value that fits into `width` bits of a word; of an array, each item does. A structure ignores `width`, because
/// each of its fields has its own.
pub(super) trait Field: Copy {
    fn put(self, bits: &mut Bits, width: u32);
    fn get(bits: &mut Bits, width: u32) -> Self;

    fn word(self) -> u64 {
        let mut bits = Bits::default();
        self.put(&mut bits, 0);
        assert!(bits.at <= 64);
        bits.word
    }

    fn of(word: u64) -> Self {
        Self::get(&mut Bits { word, at: 0 }, 0)
    }
}

impl Field for u8 {
    fn put(self, bits: &mut Bits, width: u32) {
        bits.word |= (self as u64) << bits.at;
        bits.at += width;
    }

    fn get(bits: &mut Bits, width: u32) -> u8 {
        let value = bits.word & ((1 << width) - 1);
        bits.word >>= width;
        value as u8
    }
}

impl Field for bool {
    fn put(self, bits: &mut Bits, width: u32) {
        (self as u8).put(bits, width);
    }

    fn get(bits: &mut Bits, width: u32) -> bool {
        u8::get(bits, width) == 1
    }
}

impl<T: Field + Default, const N: usize> Field for [T; N] {
    fn put(self, bits: &mut Bits, width: u32) {
        for item in self {
            item.put(bits, width);
        }
    }

    fn get(bits: &mut Bits, width: u32) -> [T; N] {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::get(bits, width);
        }
        items
    }
}

/// Declares an enum that can be packed into a word. The first variant is the default.
macro_rules! variants {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum $name { #[default] $($(#[$about])* $variant),* }

        impl $crate::model::bits::Field for $name {
            fn put(self, bits: &mut $crate::model::bits::Bits, width: u32) {
                (self as u8).put(bits, width);
            }

            fn get(bits: &mut $crate::model::bits::Bits, width: u32) -> $name {
                const ALL: &[$name] = &[$($name::$variant),*];
                ALL[usize::from(u8::get(bits, width))]
            }
        }
    };
}

/// Declares a structure that can be packed into a word. The number behind `=` is the width of the field in bits; of an
/// array, that of each item. A structure, or an array of structures, has no such number.
macro_rules! packed {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $type:ty $(= $width:literal)?),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct $name { $($(#[$about])* pub(super) $field: $type),* }

        impl $crate::model::bits::Field for $name {
            fn put(self, bits: &mut $crate::model::bits::Bits, _: u32) {
                $($crate::model::bits::Field::put(self.$field, bits, 0 $(+ $width)?);)*
            }

            fn get(bits: &mut $crate::model::bits::Bits, _: u32) -> $name {
                $name { $($field: $crate::model::bits::Field::get(bits, 0 $(+ $width)?)),* }
            }
        }
    };
}

pub(super) use {packed, variants};
