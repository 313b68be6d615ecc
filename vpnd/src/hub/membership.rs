//! Who is in: which network is held, who of its members has a session, and until when. A machine: it is told
//! what happened and when, and says what to do, in this order.
//!
//! - A network is held as a whole, or not at all (VPN-14, VPN-23). The same again changes nothing (VPN-18), a
//!   later one replaces it (VPN-19); another authority (VPN-20), another control prefix (VPN-12, VPN-21) and a
//!   revision that was passed (VPN-22) are refused.
//! - The new view is published before the sessions that it withdraws are closed (VPN-15): whatever the packets
//!   in between do, they do it by the new view.
//! - A key has one session, the newest; the end of an older one is not the end of the newer.
//! - A member's time ends when the wall clock says so, or when as much monotonic time has passed as the wall clock
//!   left it, whichever is sooner: a clock that is set back extends nothing, by dialling again neither. What it left
//!   counts only if two looks in a row agree about it, so that a clock that is ahead for a moment takes nobody's time
//!   for good. A later network looks anew.

use std::{sync::Arc, time::Duration};

use coreflow_ipc::{
    messages::vpn_network::{Held, NotApplied},
    now::Now,
};

use super::{
    network::{Member, Network},
    slots::Slots,
    view::{SessionId, View},
};
use crate::{constants::CLOCK_LOOK, protocol::close::Close};

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Packets go by this view from here on.
    Publish(Arc<View>),
    /// The session is the member's; it stands in the published view.
    Admit(SessionId),
    /// The session is nobody's.
    Refuse(SessionId),
    /// End the session, which stands in no view any more.
    Close(SessionId, Close),
}

/// How far the wall clock is ahead of the monotonic one, in nanoseconds.
type Lead = i128;

fn lead(now: Now) -> Lead {
    nanos(now.wall) - now.mono.as_nanos().cast_signed()
}

fn nanos(millis: u64) -> Lead {
    Lead::from(millis) * 1_000_000
}

/// What the wall clock has shown, while one network is held.
#[derive(Debug, Clone, Copy)]
struct Looks {
    last: Now,
    /// The most that two looks in a row agreed about.
    agreed: Lead,
}

impl Looks {
    /// A network comes, after those of the one before it.
    fn first(former: Option<Self>, now: Now) -> Self {
        // The clock may be wrong just at this moment.
        let agreed = former.map_or(lead(now), |former| lead(former.last).min(lead(now)));
        Self { last: now, agreed }
    }

    /// Looks again; what is left of a member's time can only become less.
    fn look(&mut self, now: Now) {
        // Looks close to each other may be the same moment's.
        if now.mono.saturating_sub(self.last.mono) < CLOCK_LOOK {
            return;
        }
        self.agreed = self.agreed.max(lead(self.last).min(lead(now)));
        self.last = now;
    }

    /// When a time that ends at `expires_at`, in Unix milliseconds, is over on the monotonic clock.
    fn deadline(&self, expires_at: u64) -> Duration {
        let left = (nanos(expires_at) - self.agreed).max(0);
        Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

/// The network that is held, and the sessions of its members.
#[derive(Debug)]
struct Serving {
    network: Arc<Network>,
    looks: Looks,
    sessions: Slots<SessionId>,
}

/// The machine.
#[derive(Debug, Default)]
pub struct Membership {
    serving: Option<Serving>,
    looked: Duration,
}

impl Membership {
    /// Holds `network` in the place of the one that is held.
    ///
    /// # Errors
    /// It is not later than the held one, or not of its kind; then nothing changed.
    pub fn apply(&mut self, network: Arc<Network>, now: Now) -> Result<Vec<Action>, NotApplied> {
        if let Some(serving) = &self.serving
            && is_repeat(serving.network.held(), network.held())?
        {
            return Ok(Vec::new());
        }
        let former = self.serving.take();
        let looks = Looks::first(former.as_ref().map(|former| former.looks), now);
        let sessions = Slots::empty(network.members().len());
        let serving = self.serving.insert(Serving { network, looks, sessions });
        let mut closes = Vec::new();
        if let Some(former) = former {
            for (was, session) in former.sessions.iter() {
                let member = &former.network.members()[was];
                let place = serving.network.place(&member.key);
                match place.filter(|place| stays(member, &serving.network.members()[*place])) {
                    None => closes.push(Action::Close(*session, Close::Withdrawn)),
                    Some(place) if serving.passed(place, now) => {
                        closes.push(Action::Close(*session, Close::Expired));
                    }
                    Some(place) => drop(serving.sessions.replace(place, Some(*session))),
                }
            }
        }
        let mut actions = vec![serving.publish()];
        actions.append(&mut closes);
        Ok(actions)
    }

    /// The place of the member that `key` may be admitted as at present.
    pub fn admissible(&self, key: &[u8; 32], now: Now) -> Option<usize> {
        let serving = self.serving.as_ref()?;
        let place = serving.network.place(key)?;
        serving.may_be_admitted(place, now).then_some(place)
    }

    /// Whether `member`, of this network or a former one, is a member as it was.
    pub fn has(&self, member: &Member) -> bool {
        self.serving.as_ref().is_some_and(|serving| {
            let place = serving.network.place(&member.key);
            place.is_some_and(|place| stays(member, &serving.network.members()[place]))
        })
    }

    /// The peer of `session` proved `key`.
    pub fn proven(&mut self, session: SessionId, key: &[u8; 32], now: Now) -> Vec<Action> {
        let place = self.admissible(key, now);
        let Some((place, serving)) = place.zip(self.serving.as_mut()) else {
            return vec![Action::Refuse(session)];
        };
        serving.looks.look(now);
        let former = serving.sessions.replace(place, Some(session));
        let superseded = former.map(|former| Action::Close(former, Close::Superseded));
        [serving.publish(), Action::Admit(session)].into_iter().chain(superseded).collect()
    }

    /// `session` ended.
    pub fn closed(&mut self, session: SessionId) -> Vec<Action> {
        let Some(serving) = &mut self.serving else { return Vec::new() };
        let Some((place, _)) = serving.sessions.iter().find(|(_, held)| **held == session) else {
            return Vec::new();
        };
        serving.sessions.replace(place, None);
        vec![serving.publish()]
    }

    /// Time passed, on either clock.
    pub fn tick(&mut self, now: Now) -> Vec<Action> {
        self.looked = now.mono;
        let Some(serving) = &mut self.serving else { return Vec::new() };
        serving.looks.look(now);
        let over = serving.sessions.iter().filter(|(place, _)| serving.passed(*place, now));
        let over: Vec<(usize, SessionId)> = over.map(|(place, session)| (place, *session)).collect();
        if over.is_empty() {
            return Vec::new();
        }
        for (place, _) in &over {
            serving.sessions.replace(*place, None);
        }
        let closes = over.into_iter().map(|(_, session)| Action::Close(session, Close::Expired));
        [serving.publish()].into_iter().chain(closes).collect()
    }

    /// When [`Membership::tick`] is due, on the monotonic clock: at the end of a session's time, and every
    /// [`CLOCK_LOOK`] while there are sessions.
    pub fn next_deadline(&self) -> Option<Duration> {
        let serving = self.serving.as_ref()?;
        let ends = serving.sessions.iter().map(|(place, _)| serving.network.members()[place].expires_at);
        let soonest = ends.min()?;
        Some(serving.looks.deadline(soonest).min(self.looked.saturating_add(CLOCK_LOOK)))
    }

    /// The network that is held.
    pub fn network(&self) -> Option<&Arc<Network>> {
        self.serving.as_ref().map(|serving| &serving.network)
    }

    /// How many members may be admitted at present, those with a session among them.
    pub fn count_admissible(&self, now: Now) -> usize {
        self.serving.as_ref().map_or(0, |serving| {
            (0..serving.network.members().len()).filter(|place| serving.may_be_admitted(*place, now)).count()
        })
    }
}

impl Serving {
    fn may_be_admitted(&self, place: usize, now: Now) -> bool {
        self.network.members()[place].enabled && !self.passed(place, now)
    }

    /// Whether the time of the member at `place` is over.
    fn passed(&self, place: usize, now: Now) -> bool {
        let expires_at = self.network.members()[place].expires_at;
        expires_at <= now.wall || self.looks.deadline(expires_at) <= now.mono
    }

    fn publish(&self) -> Action {
        Action::Publish(Arc::new(View::new(Arc::clone(&self.network), self.sessions.clone())))
    }
}

/// Whether a session goes on: the key is the same already.
fn stays(was: &Member, is: &Member) -> bool {
    is.enabled && was.node_id == is.node_id && was.address == is.address
}

/// Whether `offered` is what is held.
///
/// # Errors
/// It may not follow.
fn is_repeat(held: &Held, offered: &Held) -> Result<bool, NotApplied> {
    if held.authority != offered.authority || held.control_prefix != offered.control_prefix {
        return Err(NotApplied::Passed);
    }
    let order = |of: &Held| (of.generation, of.revision);
    match order(offered).cmp(&order(held)) {
        std::cmp::Ordering::Greater => Ok(false),
        std::cmp::Ordering::Equal if held.digest == offered.digest => Ok(true),
        std::cmp::Ordering::Equal | std::cmp::Ordering::Less => Err(NotApplied::Passed),
    }
}

#[cfg(test)]
mod tests;
