//! Whether what a process holds has grown: the census after the run beside the one before it, both at rest
//! under the same nodes, and the samples of the last life of each process under the same load.
//!
//! A count at rest is exact but for what comes and goes: an exchange, a link that is being made. Memory is
//! not: an allocator keeps what a flood made it take, and how much of it depends on the order of events. The
//! first census is taken after a warm-up of the same traffic, and the allowances are several times what some
//! runs of minutes showed of that noise. A leak of one message or one socket in a hundred outgrows them in
//! such a run, which sends tens of messages a second.

use std::time::Duration;

use super::census::{Census, Holding};

/// Descriptors and threads that come and go.
const SPARE_DESCRIPTORS: usize = 4;
const SPARE_THREADS: usize = 2;

/// What an allocator may keep of a worker that carries messages, and of the other processes.
const RELAYD_ALLOWANCE: u64 = 24 << 20;
const OTHER_ALLOWANCE: u64 = 6 << 20;

/// The shortest life whose thirds say anything.
const SHORTEST_LIFE: Duration = Duration::from_secs(60);

/// Left out at the begin of a life: a process that starts grows.
const GROWING_UP: Duration = Duration::from_secs(10);

/// In how many parts a life is shown.
const COURSE: usize = 12;

fn allowance(name: &str) -> u64 {
    if name == "relayd" { RELAYD_ALLOWANCE } else { OTHER_ALLOWANCE }
}

/// What of `after` is more than `before` explains, in words.
pub fn compare(before: &Census, after: &Census) -> Vec<String> {
    let mut found = Vec::new();
    for (name, was) in before {
        let Some(is) = after.get(name) else {
            found.push(format!("{name} is gone"));
            continue;
        };
        if let (Some(was), Some(is)) = (was.descriptors, is.descriptors)
            && is > was + SPARE_DESCRIPTORS
        {
            found.push(format!("{name} had {was} descriptors and has {is}"));
        }
        if is.threads > was.threads + SPARE_THREADS {
            found.push(format!("{name} had {} threads and has {}", was.threads, is.threads));
        }
        if is.private > was.private + allowance(name) {
            let (was, is) = (was.private >> 10, is.private >> 10);
            found.push(format!("{name} had {was} KiB of private memory and has {is} KiB"));
        }
    }
    found
}

/// The private memory of the process `name` over its last life, once it has grown up, and how long that was.
fn life(name: &str, samples: &[(Duration, Census)]) -> Option<(Duration, Vec<u64>)> {
    let of_name = |(at, census): &(Duration, Census)| Some((*at, *census.get(name)?));
    let seen: Vec<(Duration, Holding)> = samples.iter().filter_map(of_name).collect();
    let (end, last) = seen.last()?;
    let born = seen.iter().find(|(_, holding)| holding.pid == last.pid)?.0 + GROWING_UP;
    let grown_up = |(at, holding): &&(Duration, Holding)| *at >= born && holding.pid == last.pid;
    let life = seen.iter().filter(grown_up).map(|(_, holding)| holding.private).collect();
    Some((end.checked_sub(born)?, life))
}

/// The growth of the process `name` over its last life under load: the median of its memory in the last
/// third of that life less the median in the first. `None` for a life that is too short to tell.
pub fn trend(name: &str, samples: &[(Duration, Census)]) -> Option<i64> {
    let (length, life) = life(name, samples)?;
    let third = life.len() / 3;
    if length < SHORTEST_LIFE || third == 0 {
        return None;
    }
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Some(signed(median(&life[life.len() - third..])) - signed(median(&life[..third])))
}

/// The median memory of the process `name` in each of [`COURSE`] parts of its last life, for reading.
pub fn course(name: &str, samples: &[(Duration, Census)]) -> Vec<u64> {
    let life = life(name, samples).map(|(_, life)| life).unwrap_or_default();
    life.chunks(life.len().div_ceil(COURSE).max(1)).map(median).collect()
}

/// The trends that are more than noise, in words.
pub fn grown(samples: &[(Duration, Census)]) -> Vec<String> {
    let names = samples.last().map(|(_, census)| census.keys().cloned().collect::<Vec<_>>());
    let grows = |name: &String| {
        let growth = trend(name, samples)?;
        let allowed = i64::try_from(allowance(name)).expect("an allowance is small");
        let words = || format!("{name} grew by {} KiB between the thirds of its life", growth >> 10);
        (growth > allowed).then(words)
    };
    names.unwrap_or_default().iter().filter_map(grows).collect()
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn holding(descriptors: usize, threads: usize, mib: u64) -> Holding {
        Holding { pid: 1, descriptors: Some(descriptors), threads, private: mib * MIB }
    }

    fn census(holding: Holding) -> Census {
        BTreeMap::from([("relayd".to_owned(), holding)])
    }

    /// What comes and goes is allowed, a leak is named.
    #[test]
    fn a_leak_is_named_and_noise_is_not() {
        let before = census(holding(20, 3, 10));
        assert_eq!(compare(&before, &census(holding(24, 5, 34))), [] as [&str; 0]);
        let leaks = compare(&before, &census(holding(25, 6, 35)));
        assert!(leaks.len() == 3 && leaks[0].contains("20 descriptors and has 25"), "{leaks:#?}");
        assert_eq!(compare(&before, &Census::new()), ["relayd is gone"]);
        let other = BTreeMap::from([("pulld".to_owned(), holding(5, 1, 2))]);
        let grown = BTreeMap::from([("pulld".to_owned(), holding(5, 1, 9))]);
        assert_eq!(compare(&other, &grown).len(), 1);
    }

    fn samples(memory: impl Fn(u64) -> (u32, u64)) -> Vec<(Duration, Census)> {
        let at = |second: u64| {
            let (pid, mib) = memory(second);
            (Duration::from_secs(second), census(Holding { pid, ..holding(9, 1, mib) }))
        };
        (0..300).map(at).collect()
    }

    /// A steady growth is seen, peaks and the growth of a youth are not, and only the last life counts.
    #[test]
    fn a_trend_is_of_the_last_life() {
        assert_eq!(grown(&samples(|second| (1, 10 + second / 4))).len(), 1);
        assert_eq!(grown(&samples(|second| (1, if second % 7 == 0 { 90 } else { 10 }))).len(), 0);
        assert_eq!(grown(&samples(|second| (1, 10 + second.min(9) * 10))).len(), 0);
        let reborn = samples(|second| if second < 150 { (1, 10 + second) } else { (2, 12) });
        assert_eq!(trend("relayd", &reborn), Some(0));
        let young = samples(|second| if second < 250 { (1, 10) } else { (2, second) });
        assert_eq!(trend("relayd", &young), None);
    }
}
