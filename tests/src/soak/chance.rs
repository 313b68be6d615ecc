//! Chance from a seed, the same on every machine and in every build, so that a seed is a run to repeat.
//!
//! SplitMix64, written out: ten lines whose numbers no release of a crate can change.

use std::time::Duration;

/// A generator. Two of one seed give the same numbers.
#[derive(Debug, Clone)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The generator of `seed` that is `purpose`'s own: what one purpose draws moves no other's numbers.
    pub fn of(seed: u64, purpose: &str) -> Self {
        let mixed = purpose.bytes().fold(seed, |state, byte| Self::new(state ^ u64::from(byte)).draw());
        Self::new(mixed)
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, which is not zero.
    pub fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).expect("a count fits");
        usize::try_from(self.draw() % count).expect("a number below a usize is one")
    }

    /// True once in `count` draws.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A time from `from` to `to`, in whole milliseconds; `from` where the two leave no room.
    pub fn time(&mut self, from: Duration, to: Duration) -> Duration {
        let room = usize::try_from(to.saturating_sub(from).as_millis()).expect("a time of a run fits");
        let more = u64::try_from(self.below(room + 1)).expect("it fits");
        from + Duration::from_millis(more)
    }

    /// Puts `items` into an order of chance.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published numbers of SplitMix64 for the seed 1234567.
    #[test]
    fn a_seed_gives_the_published_numbers() {
        let mut chance = Chance::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| chance.draw()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    /// Draws stay in their bounds and reach both ends.
    #[test]
    fn draws_stay_in_their_bounds() {
        let mut chance = Chance::of(1, "bounds");
        let ms = Duration::from_millis;
        let times: Vec<Duration> = (0..200).map(|_| chance.time(ms(3), ms(6))).collect();
        assert_eq!((times.iter().min(), times.iter().max()), (Some(&ms(3)), Some(&ms(6))));
        assert_eq!(chance.time(ms(9), ms(2)), ms(9));
        let mut items = [1, 2, 3, 4, 5, 6, 7, 8];
        chance.shuffle(&mut items);
        let shuffled = items;
        items.sort_unstable();
        assert!(items == [1, 2, 3, 4, 5, 6, 7, 8] && shuffled != items);
    }
}
