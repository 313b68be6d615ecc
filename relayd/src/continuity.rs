//! Outage continuity: after a reconnect every node that was registered under an older connection of
//! the session is asked to register again, by closing its socket, paced (OUT-04 – OUT-09, OUT-19). So is every
//! node that could not register while there was no session, at the same pace and within the same window (OUT-11).

use std::{collections::VecDeque, time::Duration};

use coreflow_ipc::now::Now;

use crate::{
    constants::{RECARRY_SPACING, RECARRY_WINDOW},
    contract::values::Id,
    forwarder::Socket,
};

/// The closes that are still to be made.
#[derive(Debug, Default)]
pub struct Continuity {
    /// A node has no id here that did not register.
    queue: VecDeque<(Option<Id>, Socket)>,
    spacing: Duration,
    next: Duration,
    asked: u64,
}

impl Continuity {
    /// The session is dispatchable on a new connection; `stale` are the nodes of older ones, `turned_away` the sockets
    /// on which nodes could not register without it.
    pub fn session_changed(&mut self, stale: Vec<(Id, Socket)>, turned_away: Vec<Socket>, now: Now) {
        let count = u32::try_from(stale.len() + turned_away.len()).unwrap_or(u32::MAX).max(1);
        self.spacing = RECARRY_SPACING.min(RECARRY_WINDOW / count);
        self.next = now.mono;
        let stale = stale.into_iter().map(|(node, socket)| (Some(node), socket));
        self.queue = stale.chain(turned_away.into_iter().map(|socket| (None, socket))).collect();
    }

    /// The session is gone, or the relay goes: nobody is closed until it is dispatchable again (OUT-05, OUT-09).
    pub fn session_lost(&mut self) {
        self.queue.clear();
    }

    /// The sockets whose close is due, but for those on which nobody `waits` any more to be asked. After a time in which
    /// this process did nothing the rest goes on at its pace: nobody who registers, and nobody who answers, gets the
    /// missed ones in one moment.
    pub fn due(
        &mut self,
        now: Now,
        waits: impl Fn(Option<&Id>, Socket) -> bool,
    ) -> Vec<(Option<Id>, Socket)> {
        if self.next + RECARRY_SPACING < now.mono {
            self.next = now.mono;
        }
        let mut due = Vec::new();
        while self.next <= now.mono
            && let Some((node, socket)) = self.queue.pop_front()
        {
            self.next += self.spacing;
            if waits(node.as_ref(), socket) {
                self.asked += u64::from(node.is_some());
                due.push((node, socket));
            }
        }
        due
    }

    /// How many nodes were asked to register again.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// When [`Continuity::due`] has something, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        (!self.queue.is_empty()).then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u64) -> Vec<(Id, Socket)> {
        (0..count).map(|n| (Id::parse(&format!("n{n}")).unwrap(), n)).collect()
    }

    /// Runs until nothing is due any more; the times of the closes in milliseconds.
    fn closes(continuity: &mut Continuity, mut now: Now) -> Vec<u128> {
        let mut times = Vec::new();
        while let Some(next) = continuity.next_deadline() {
            now.mono = next;
            times.extend(continuity.due(now, |_, _| true).iter().map(|_| now.mono.as_millis()));
        }
        times
    }

    /// OUT-04, OUT-06: 75 ms apart.
    #[test]
    fn a_few_nodes_are_closed_75_ms_apart() {
        let now = Now { wall: 0, mono: Duration::from_millis(1000) };
        let mut continuity = Continuity::default();
        continuity.session_changed(nodes(4), vec![], now);
        assert_eq!(closes(&mut continuity, now), [1000, 1075, 1150, 1225]);
    }

    /// OUT-07: a thousand fit into five seconds, and none is closed twice.
    #[test]
    fn a_thousand_nodes_fit_the_window() {
        let now = Now { wall: 0, mono: Duration::ZERO };
        let mut continuity = Continuity::default();
        continuity.session_changed(nodes(1000), vec![], now);
        let times = closes(&mut continuity, now);
        assert_eq!((times.len(), times.last()), (1000, Some(&4995)));
    }

    /// OUT-06, OUT-07, OUT-11: those that could not register come after the others, at one pace and within one window.
    #[test]
    fn those_without_a_registration_share_the_window() {
        let now = Now { wall: 0, mono: Duration::ZERO };
        let mut continuity = Continuity::default();
        continuity.session_changed(nodes(1), vec![8, 9], now);
        let mut due = continuity.due(now, |_, _| true);
        due.extend(continuity.due(Now { mono: Duration::from_millis(150), ..now }, |_, _| true));
        assert_eq!(due, [(Some(Id::parse("n0").unwrap()), 0), (None, 8), (None, 9)]);
        continuity.session_changed(nodes(500), (500..1000).collect(), now);
        let times = closes(&mut continuity, now);
        assert_eq!((times.len(), times.last()), (1000, Some(&4995)));
    }

    /// OUT-06, OUT-07: a process that stalled closes one node then, and the rest at the pace of before; a wake-up
    /// that is a little late costs the window nothing.
    #[test]
    fn a_stall_is_followed_by_no_burst() {
        let mut now = Now { wall: 0, mono: Duration::ZERO };
        let mut continuity = Continuity::default();
        continuity.session_changed(nodes(1000), vec![], now);
        assert_eq!(continuity.due(now, |_, _| true).len(), 1);
        now.mono = Duration::from_millis(20);
        assert_eq!(continuity.due(now, |_, _| true).len(), 4);
        now.mono = Duration::from_secs(3);
        assert_eq!(continuity.due(now, |_, _| true).len(), 1);
        let times = closes(&mut continuity, now);
        assert_eq!((times.len(), times.first(), times.last()), (994, Some(&3005), Some(&7970)));
    }

    /// OUT-05, OUT-09, OUT-19: a session lost half-way stops the rest.
    #[test]
    fn a_lost_session_stops_the_closes() {
        let mut now = Now { wall: 0, mono: Duration::ZERO };
        let mut continuity = Continuity::default();
        continuity.session_changed(nodes(4), vec![], now);
        assert_eq!(continuity.due(now, |_, _| true).len(), 1);
        continuity.session_lost();
        now.mono = Duration::from_secs(60);
        assert_eq!(continuity.due(now, |_, _| true), []);
        continuity.session_changed(nodes(3), vec![], now);
        assert_eq!(closes(&mut continuity, now).len(), 3);
    }

    /// OUT-08: a node that registered by itself meanwhile is not asked, and not counted.
    #[test]
    fn only_those_who_are_asked_are_counted() {
        let now = Now { wall: 0, mono: Duration::ZERO };
        let mut continuity = Continuity::default();
        continuity.session_changed(nodes(4), vec![], now);
        let mut due = Vec::new();
        while let Some(mono) = continuity.next_deadline() {
            due.extend(continuity.due(Now { mono, ..now }, |_, socket| socket % 2 == 0));
        }
        assert_eq!(due.iter().map(|(_, socket)| *socket).collect::<Vec<_>>(), [0, 2]);
        assert_eq!((continuity.asked(), continuity.next_deadline()), (2, None));
    }
}
