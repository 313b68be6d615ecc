//! A list by members' places of which a changed copy shares nearly everything with the one before, so that a view of
//! thousands that never changes costs little to follow by another.

use std::sync::Arc;

/// Places that are copied for a change of one of them.
const RUN: usize = 64;

/// What is at each place, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots<T> {
    runs: Vec<Arc<[Option<T>]>>,
}

impl<T: Clone> Slots<T> {
    /// So many places with nothing.
    pub fn empty(places: usize) -> Self {
        (0..places).map(|_| None).collect()
    }

    /// What is at `place`.
    pub fn get(&self, place: usize) -> Option<&T> {
        self.runs.get(place / RUN)?.get(place % RUN)?.as_ref()
    }

    /// Puts `value` at `place`, and gives what was there. Copies of this list keep what they have.
    ///
    /// # Panics
    /// There is no such place.
    pub fn replace(&mut self, place: usize, value: Option<T>) -> Option<T> {
        std::mem::replace(&mut Arc::make_mut(&mut self.runs[place / RUN])[place % RUN], value)
    }

    /// What there is, with its place, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let all = self.runs.iter().flat_map(|run| run.iter());
        all.enumerate().filter_map(|(place, value)| Some((place, value.as_ref()?)))
    }

    /// What `of` gives for each. Where nothing changed since `former` was made into `made` its result is shared.
    pub fn made_from<U>(&self, former: &Self, made: &Slots<U>, of: impl Fn(&T) -> Option<U>) -> Slots<U> {
        let same = |at: usize| {
            let former = former.runs.get(at).filter(|former| Arc::ptr_eq(former, &self.runs[at]));
            former.and_then(|_| made.runs.get(at)).cloned()
        };
        let anew = |at: usize| self.runs[at].iter().map(|value| of(value.as_ref()?)).collect();
        Slots { runs: (0..self.runs.len()).map(|at| same(at).unwrap_or_else(|| anew(at))).collect() }
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<T> FromIterator<Option<T>> for Slots<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(values: I) -> Self {
        let mut values = values.into_iter();
        let next = || Some(values.by_ref().take(RUN).collect()).filter(|run: &Arc<[_]>| !run.is_empty());
        Self { runs: std::iter::from_fn(next).collect() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A change costs one run, however many there are, and is not seen by who has the list already.
    #[test]
    fn a_change_copies_one_run() {
        let mut slots = Slots::<u32>::empty(4096);
        let before = slots.clone();
        assert_eq!(slots.replace(1_000, Some(7)), None);
        assert_eq!((before.get(1_000), slots.get(1_000)), (None, Some(&7)));
        let shared = before.runs.iter().zip(&slots.runs).filter(|(one, other)| Arc::ptr_eq(one, other));
        assert_eq!((shared.count(), slots.runs.len()), (63, 64));
        let asked = std::cell::Cell::new(0);
        let made = slots.made_from(&before, &Slots::<u64>::empty(4096), |value| {
            asked.set(asked.get() + 1);
            Some(u64::from(*value))
        });
        assert_eq!((made.get(1_000), made.iter().count(), asked.get()), (Some(&7), 1, 1));
    }

    proptest! {
        #[test]
        fn it_is_a_list(
            places in 1_usize..300,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<Option<u8>>()), 0..60),
        ) {
            let mut model = vec![None; places];
            let mut slots = Slots::<u8>::empty(places);
            let (mut former, mut made) = (slots.clone(), Slots::<u16>::empty(places));
            for (at, value) in changes {
                let at = at.index(places);
                prop_assert_eq!(slots.replace(at, value), std::mem::replace(&mut model[at], value));
                let all: Vec<_> = model.iter().enumerate().filter_map(|(at, value)| Some((at, (*value)?))).collect();
                prop_assert_eq!(slots.iter().map(|(at, value)| (at, *value)).collect::<Vec<_>>(), all.clone());
                made = slots.made_from(&former, &made, |value| Some(u16::from(*value) + 1));
                former = slots.clone();
                let expected: Vec<_> = all.iter().map(|(at, value)| (*at, u16::from(*value) + 1)).collect();
                prop_assert_eq!(made.iter().map(|(at, value)| (at, *value)).collect::<Vec<_>>(), expected);
            }
            prop_assert_eq!(slots.get(places), None);
            prop_assert_eq!(&slots, &model.iter().copied().collect());
        }
    }
}
