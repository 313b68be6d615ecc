//! The slow, obvious model: sessions are a list of who was admitted when, and everything else is asked anew of
//! the networks that were applied and of every moment that was seen.

use super::*;

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A network of this revision, with an end in seconds from the start for each member that it has.
    Apply {
        revision: u64,
        digest: u8,
        ends: [Option<i64>; 3],
        moved: Option<u8>,
    },
    Proven {
        number: u8,
    },
    /// The end of the session that began so many sessions ago.
    Closed {
        back: u64,
    },
    Tick,
    /// Seconds that pass, and those by which the wall clock is set.
    Pass {
        seconds: u64,
        set: i64,
    },
}

pub(super) fn script() -> impl Strategy<Value = Vec<Step>> {
    let ends = proptest::array::uniform3(proptest::option::weighted(0.8, -20_i64..200));
    let step = prop_oneof![
        (0_u64..12, 0_u8..2, ends, proptest::option::weighted(0.2, 0_u8..3))
            .prop_map(|(revision, digest, ends, moved)| Step::Apply { revision, digest, ends, moved }),
        (0_u8..4).prop_map(|number| Step::Proven { number }),
        (0_u8..4).prop_map(|number| Step::Proven { number }),
        (0_u64..5).prop_map(|back| Step::Closed { back }),
        Just(Step::Tick),
        (0_u64..60, prop_oneof![Just(0_i64), -300_i64..300])
            .prop_map(|(seconds, set)| Step::Pass { seconds, set }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The moments at which the clocks were looked at, from the last one before the network that is held.
#[derive(Debug, Clone, Default)]
struct Looks(Vec<Now>);

impl Looks {
    fn look(&mut self, now: Now) {
        if self.0.last().is_none_or(|last| now.mono - last.mono >= CLOCK_LOOK) {
            self.0.push(now);
        }
    }

    /// When a time is over on the monotonic clock: two looks in a row say so, and it is over by both.
    fn end(&self, expires_at: u64) -> Duration {
        let by = |look: &Now| {
            let end = look.mono.as_millis().cast_signed() + i128::from(expires_at) - i128::from(look.wall);
            Duration::from_millis(u64::try_from(end.max(0)).unwrap())
        };
        self.0.windows(2).map(|pair| by(&pair[0]).max(by(&pair[1]))).min().unwrap()
    }

    fn passed(&self, expires_at: u64, now: Now) -> bool {
        now.wall >= expires_at || self.end(expires_at) <= now.mono
    }
}

/// A member, as the model knows it.
#[derive(Debug, Clone)]
struct Known {
    number: u8,
    address: u8,
    expires_at: u64,
    session: Option<SessionId>,
}

#[derive(Debug, Default)]
struct Model {
    held: Option<(u64, u8)>,
    looks: Looks,
    members: Vec<Known>,
}

impl Model {
    fn apply(
        &mut self,
        held: (u64, u8),
        members: Vec<(u8, u8, u64)>,
        now: Now,
    ) -> Option<Vec<(SessionId, Close)>> {
        match self.held {
            Some(former) if former == held => return Some(Vec::new()),
            Some((revision, _)) if held.0 <= revision => return None,
            Some(_) | None => {}
        }
        let former = std::mem::take(&mut self.members);
        let before = self.looks.0.last().copied().unwrap_or(now);
        self.looks = Looks(vec![before, now]);
        for (number, address, expires_at) in members {
            let same = former.iter().find(|known| known.number == number);
            let session = same.filter(|known| known.address == address).and_then(|known| known.session);
            let session = session.filter(|_| !self.looks.passed(expires_at, now));
            self.members.push(Known { number, address, expires_at, session });
        }
        let mut closes = Vec::new();
        for known in &former {
            let Some(session) = known.session else { continue };
            let same =
                self.members.iter().find(|new| new.number == known.number && new.address == known.address);
            match same {
                None => closes.push((session, Close::Withdrawn)),
                Some(new) if new.session.is_none() => closes.push((session, Close::Expired)),
                Some(_) => {}
            }
        }
        self.held = Some(held);
        Some(closes)
    }

    fn sessions(&self) -> Vec<(SessionId, u8)> {
        let mut all: Vec<_> =
            self.members.iter().filter_map(|known| Some((known.session?, known.number))).collect();
        all.sort_unstable();
        all
    }
}

pub(super) fn run(script: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut membership, mut model) = (Membership::default(), Model::default());
    let (mut now, mut next_session, mut ticked) = (START, 1, Duration::ZERO);
    let mut shown: Vec<(SessionId, u8)> = Vec::new();
    for step in script {
        let mut admitted = None;
        let (actions, mut expected) = match step {
            Step::Apply { revision, digest, ends, moved } => {
                let end = |seconds: i64| START.wall.checked_add_signed(seconds * 1_000).unwrap();
                let stated: Vec<(u8, u8, u64)> = (0..)
                    .zip(ends)
                    .filter_map(|(number, seconds)| {
                        let address = if moved == Some(number) { number + 50 } else { number + 2 };
                        Some((number, address, end(seconds?)))
                    })
                    .collect();
                let members = stated.iter().map(|(number, address, expires_at)| {
                    let mut member = member(*number, *expires_at);
                    member.address = [10, 8, 0, *address].into();
                    member
                });
                let mut offered = snapshot(revision, members.collect());
                offered.network.digest = [digest; 32];
                let applied = membership.apply(network(offered), now);
                let closes = model.apply((revision, digest), stated, now);
                prop_assert_eq!(applied.is_ok(), closes.is_some());
                (applied.unwrap_or_default(), closes.unwrap_or_default())
            }
            Step::Proven { number } => {
                let session = next_session;
                next_session += 1;
                let actions = membership.proven(session, &key(number), now);
                let known = model
                    .members
                    .iter_mut()
                    .find(|known| known.number == number)
                    .filter(|known| !model.looks.passed(known.expires_at, now));
                let superseded = match known {
                    None => None,
                    Some(known) => {
                        admitted = Some(session);
                        model.looks.look(now);
                        known.session.replace(session)
                    }
                };
                prop_assert_eq!(actions.contains(&Action::Admit(session)), admitted.is_some());
                prop_assert_eq!(actions.contains(&Action::Refuse(session)), admitted.is_none());
                (actions, superseded.map(|former| (former, Close::Superseded)).into_iter().collect())
            }
            Step::Closed { back } => {
                let session: SessionId = u64::saturating_sub(next_session, back + 1);
                if let Some(known) = model.members.iter_mut().find(|known| known.session == Some(session)) {
                    known.session = None;
                }
                (membership.closed(session), Vec::new())
            }
            Step::Tick => {
                let mut closes = Vec::new();
                ticked = now.mono;
                if model.held.is_some() {
                    model.looks.look(now);
                }
                for known in &mut model.members {
                    if model.looks.passed(known.expires_at, now)
                        && let Some(session) = known.session.take()
                    {
                        closes.push((session, Close::Expired));
                    }
                }
                (membership.tick(now), closes)
            }
            Step::Pass { seconds, set } => {
                now.mono += Duration::from_secs(seconds);
                now.wall += seconds * 1_000;
                now.wall = now.wall.checked_add_signed(set * 1_000).unwrap();
                (Vec::new(), Vec::new())
            }
        };
        let mut closes = Vec::new();
        for (at, action) in actions.iter().enumerate() {
            match action {
                Action::Publish(view) => {
                    prop_assert_eq!(at, 0, "the view is first");
                    let number = |place: usize| view.network().members()[place].key[0] - 1;
                    shown =
                        view.sessions().iter().map(|(place, session)| (*session, number(place))).collect();
                    shown.sort_unstable();
                }
                Action::Admit(session) => prop_assert_eq!(Some(*session), admitted),
                Action::Refuse(_) => {}
                Action::Close(session, why) => closes.push((*session, *why)),
            }
        }
        closes.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(closes, expected);
        prop_assert_eq!(&shown, &model.sessions());
        // No session outlives its end unseen, on either clock.
        let with_session = model.members.iter().filter(|known| known.session.is_some());
        let end = with_session.map(|known| model.looks.end(known.expires_at)).min();
        prop_assert_eq!(membership.next_deadline(), end.map(|end| end.min(ticked + CLOCK_LOOK)));
    }
    Ok(())
}
