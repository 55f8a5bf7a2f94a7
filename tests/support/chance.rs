//! Random choices that can be repeated.

use std::time::Duration;

/// Random numbers that follow from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// A new stream, which follows from the present state of this one and from `number`. Drawing from one of the two
    /// does not change the other.
    pub(crate) fn of(&self, number: u64) -> Chance {
        let mut chance = Chance(self.0 ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        Chance(chance.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    pub(crate) fn word<'a>(&mut self, words: &'a str) -> &'a str {
        self.one_of(&words.split('|').collect::<Vec<_>>())
    }

    /// One of these values, each of which stands behind its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, all: &[(u64, T)]) -> T {
        let mut drawn = self.below(all.iter().map(|one| one.0).sum());
        for &(weight, one) in all {
            if drawn < weight {
                return one;
            }
            drawn -= weight;
        }
        unreachable!("less than the sum of all weights")
    }

    /// A time from `least` to `most` milliseconds; short times are more frequent.
    pub(crate) fn time(&mut self, least: u64, most: u64) -> Duration {
        let range = self.below(most - least + 1);
        Duration::from_millis(least + range * self.below(1000) / 1000)
    }
}
