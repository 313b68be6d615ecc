//! Which links between relayd and the other workers are made, and when: one to each worker that lives, a lost one
//! anew, and one that could not be made as soon as it can be.
//!
//! A relayd that gives links up as fast as it gets them would fill the other worker with descriptors, and the
//! supervisor with work; so a lost link is made anew at a pace.

use std::{collections::BTreeMap, time::Duration};

use coreflow_ipc::hello::Role;

use crate::constants::LINK_SPACING;

/// The link of the present relayd to one worker.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Link {
    /// Links that this relayd was given.
    given: u64,
    /// Not made anew before, in time of the monotonic clock.
    not_before: Duration,
    /// To be made, once it may be.
    wanted: bool,
}

/// The links of the present relayd.
#[derive(Debug, Default)]
pub struct PeerLinks(BTreeMap<Role, Link>);

impl PeerLinks {
    /// Either end is a new process: the link is to be made now, however lately the former was.
    pub fn begin(&mut self, role: Role, now: Duration) {
        let link = self.0.entry(role).or_default();
        *link = Link { not_before: now, wanted: true, ..*link };
    }

    /// relayd says that a link ended, `number` among those that it was given; whether it is the present one, which
    /// is to be made anew from now on. One that is already to be made anew is not lost again.
    pub fn lost(&mut self, role: Role, number: u64) -> bool {
        let present = |link: &&mut Link| !link.wanted && link.given == number && number > 0;
        let Some(link) = self.0.get_mut(&role).filter(present) else { return false };
        link.wanted = true;
        true
    }

    /// The links that are to be made now. None of them is due again before it is spaced from this time; it stays
    /// wanted until it is [given](Self::given) or [left](Self::left).
    pub fn due(&mut self, now: Duration) -> Vec<Role> {
        let due = self.0.iter_mut().filter(|(_, link)| link.wanted && link.not_before <= now);
        let due = due.map(|(role, link)| {
            link.not_before = now + LINK_SPACING;
            *role
        });
        due.collect()
    }

    /// relayd took its end of the link.
    pub fn given(&mut self, role: Role) {
        let link = self.0.entry(role).or_default();
        link.given += 1;
        link.wanted = false;
    }

    /// The link has an end that is no process yet, which has it made when it is one.
    pub fn left(&mut self, role: Role) {
        self.0.entry(role).or_default().wanted = false;
    }

    /// When the next one is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.0.values().filter(|link| link.wanted).map(|link| link.not_before).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What becomes of the links that are due at `now`, all of which are made.
    fn made(links: &mut PeerLinks, now: Duration) -> Vec<Role> {
        let due = links.due(now);
        due.iter().for_each(|role| links.given(*role));
        due
    }

    /// A new process is linked at once, however lately its role was.
    #[test]
    fn a_new_process_is_linked_at_once() {
        let mut links = PeerLinks::default();
        for _ in 0..3 {
            links.begin(Role::Vpnd, SECOND);
            assert_eq!(links.next_deadline(), Some(SECOND));
            assert_eq!(made(&mut links, SECOND), [Role::Vpnd]);
            assert_eq!((links.next_deadline(), made(&mut links, 9 * SECOND)), (None, vec![]));
        }
    }

    /// A relayd that gives up each link as it gets it is given one a time of spacing, whatever it says meanwhile, and
    /// the other worker's link does not wait for it.
    #[test]
    fn lost_links_are_made_anew_at_a_pace() {
        let mut links = PeerLinks::default();
        links.begin(Role::Vpnd, SECOND);
        made(&mut links, SECOND);
        let (mut number, mut losses) = (1, 0);
        for millisecond in 1000..11_000 {
            let now = Duration::from_millis(millisecond);
            losses += u64::from(links.lost(Role::Vpnd, number));
            number += u64::try_from(made(&mut links, now).len()).unwrap();
        }
        assert_eq!((number, losses), (10, 10), "one and nine more within ten seconds");
        let now = Duration::from_millis(10_500);
        links.begin(Role::Pulld, now);
        assert_eq!(made(&mut links, now), [Role::Pulld]);
    }

    /// The first loss is mended at once, a repeated or an unknown one is none, and another relayd's neither.
    #[test]
    fn only_the_present_link_can_be_lost() {
        let mut links = PeerLinks::default();
        assert!(!links.lost(Role::Vpnd, 0) && !links.lost(Role::Vpnd, 1));
        links.begin(Role::Vpnd, SECOND);
        assert!(!links.lost(Role::Vpnd, 0) && !links.lost(Role::Vpnd, 1));
        made(&mut links, SECOND);
        assert!(links.lost(Role::Vpnd, 1) && !links.lost(Role::Pulld, 1) && !links.lost(Role::Vpnd, 2));
        assert_eq!(made(&mut links, 3 * SECOND), [Role::Vpnd]);
        assert!(!links.lost(Role::Vpnd, 1));
        assert_eq!(links.next_deadline(), None);
    }

    /// A link that the system cannot make is tried again, and counts for nothing until relayd took it; one whose
    /// other end is no process is not.
    #[test]
    fn a_link_that_cannot_be_made_is_tried_again() {
        let mut links = PeerLinks::default();
        links.begin(Role::Vpnd, SECOND);
        for attempt in 1..5 {
            assert_eq!(links.due(attempt * SECOND), [Role::Vpnd]);
            assert_eq!(links.due(attempt * SECOND), []);
            assert_eq!(links.next_deadline(), Some((attempt + 1) * SECOND));
        }
        assert_eq!(made(&mut links, 5 * SECOND), [Role::Vpnd]);
        assert!(links.lost(Role::Vpnd, 1));
        assert_eq!(links.due(6 * SECOND), [Role::Vpnd]);
        links.left(Role::Vpnd);
        assert_eq!((links.next_deadline(), links.due(9 * SECOND)), (None, vec![]));
    }
}
