//! Times of single exchanges and their percentiles, exact: every sample is kept.

use std::time::Duration;

/// Samples in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Adds one sample.
    pub fn add(&mut self, sample: Duration) {
        self.0.push(u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds the samples of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sample that `percent` of a hundred do not exceed; `None` without samples.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nearest rank, at both ends and in between.
    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile(50), None);
        (1..=200).rev().for_each(|sample| latencies.add(Duration::from_nanos(sample)));
        let at = |percent| latencies.percentile(percent).unwrap().as_nanos();
        assert_eq!([at(0), at(50), at(99), at(100)], [1, 100, 198, 200]);
    }
}
