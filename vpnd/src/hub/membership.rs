//! Who is in: which network is held, who of its members has a session, and until when. A machine: it is told
//! what happened and when, and says what to do, in this order.
//!
//! - A network is held as a whole, or not at all (VPN-14, VPN-23). The same again changes nothing (VPN-18), a
//!   later one replaces it (VPN-19); another authority (VPN-20), another control prefix (VPN-12, VPN-21) and a
//!   revision that was passed (VPN-22) are refused.
//! - The new view is published before the sessions that it withdraws are closed (VPN-15): whatever the packets
//!   in between do, they do it by the new view.
//! - A key has one session, the newest; the end of an older one is not the end of the newer.
//! - A member's time ends when the wall clock says so, or when as much monotonic time has passed as there was
//!   left at the first look, whichever is sooner: a clock that is set back extends nothing, by dialling again
//!   neither.

use std::{sync::Arc, time::Duration};

use coreflow_ipc::{
    messages::vpn_network::{Held, NotApplied},
    now::Now,
};

use super::{
    network::{Member, Network},
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

/// A member's time, as the network that is held states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Time {
    /// Unix milliseconds.
    expires_at: u64,
    /// The same on the monotonic clock, as it was left at the soonest look.
    deadline: Duration,
}

impl Time {
    fn of(expires_at: u64, now: Now) -> Self {
        Self { expires_at, deadline: deadline(expires_at, now) }
    }

    /// Looks at the wall clock again: what is left can only become less.
    fn look(&mut self, now: Now) {
        self.deadline = self.deadline.min(deadline(self.expires_at, now));
    }

    fn passed(self, now: Now) -> bool {
        self.expires_at <= now.wall || self.deadline <= now.mono
    }
}

fn deadline(expires_at: u64, now: Now) -> Duration {
    now.mono.saturating_add(Duration::from_millis(expires_at.saturating_sub(now.wall)))
}

/// The network that is held, and the sessions of its members.
#[derive(Debug)]
struct Serving {
    network: Arc<Network>,
    /// By the members' places.
    times: Vec<Time>,
    /// By the members' places.
    sessions: Vec<Option<SessionId>>,
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
        let mut times: Vec<Time> =
            network.members().iter().map(|member| Time::of(member.expires_at, now)).collect();
        let mut sessions = vec![None; times.len()];
        let mut closes = Vec::new();
        if let Some(former) = self.serving.take() {
            for (was, member) in former.network.members().iter().enumerate() {
                let place = network.place(&member.key);
                if let Some(place) = place.filter(|place| times[*place].expires_at == member.expires_at) {
                    times[place].deadline = times[place].deadline.min(former.times[was].deadline);
                }
                let Some(session) = former.sessions[was] else { continue };
                match place.filter(|place| stays(member, &network.members()[*place])) {
                    None => closes.push(Action::Close(session, Close::Withdrawn)),
                    Some(place) if times[place].passed(now) => {
                        closes.push(Action::Close(session, Close::Expired));
                    }
                    Some(place) => sessions[place] = Some(session),
                }
            }
        }
        let serving = self.serving.insert(Serving { network, times, sessions });
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

    /// The peer of `session` proved `key`.
    pub fn proven(&mut self, session: SessionId, key: &[u8; 32], now: Now) -> Vec<Action> {
        let place = self.admissible(key, now);
        let Some((place, serving)) = place.zip(self.serving.as_mut()) else {
            return vec![Action::Refuse(session)];
        };
        serving.times[place].look(now);
        let former = serving.sessions[place].replace(session);
        let superseded = former.map(|former| Action::Close(former, Close::Superseded));
        [serving.publish(), Action::Admit(session)].into_iter().chain(superseded).collect()
    }

    /// `session` ended.
    pub fn closed(&mut self, session: SessionId) -> Vec<Action> {
        let Some(serving) = &mut self.serving else { return Vec::new() };
        let Some(place) = serving.sessions.iter().position(|held| *held == Some(session)) else {
            return Vec::new();
        };
        serving.sessions[place] = None;
        vec![serving.publish()]
    }

    /// Time passed, on either clock.
    pub fn tick(&mut self, now: Now) -> Vec<Action> {
        self.looked = now.mono;
        let Some(serving) = &mut self.serving else { return Vec::new() };
        let mut closes = Vec::new();
        for (time, held) in serving.times.iter().zip(&mut serving.sessions) {
            if let Some(session) = held.take_if(|_| time.passed(now)) {
                closes.push(Action::Close(session, Close::Expired));
            }
        }
        if closes.is_empty() {
            return closes;
        }
        closes.insert(0, serving.publish());
        closes
    }

    /// When [`Membership::tick`] is due, on the monotonic clock: at the end of a session's time, and every
    /// [`CLOCK_LOOK`] while there are sessions.
    pub fn next_deadline(&self) -> Option<Duration> {
        let serving = self.serving.as_ref()?;
        let with_session = serving.times.iter().zip(&serving.sessions).filter(|(_, held)| held.is_some());
        let soonest = with_session.map(|(time, _)| time.deadline).min()?;
        Some(soonest.min(self.looked.saturating_add(CLOCK_LOOK)))
    }

    /// The network that is held.
    pub fn network(&self) -> Option<&Arc<Network>> {
        self.serving.as_ref().map(|serving| &serving.network)
    }

    /// How many members may be admitted at present, those with a session among them.
    pub fn count_admissible(&self, now: Now) -> usize {
        self.serving.as_ref().map_or(0, |serving| {
            (0..serving.times.len()).filter(|place| serving.may_be_admitted(*place, now)).count()
        })
    }
}

impl Serving {
    fn may_be_admitted(&self, place: usize, now: Now) -> bool {
        self.network.members()[place].enabled && !self.times[place].passed(now)
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
