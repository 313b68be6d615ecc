//! Random histories against an obvious model: what is held, what vpnd is at, and who waits, in their order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What a random network is: authority, bits of the prefix, generation, revision, and one of two contents.
type Of = (char, u8, u64, u64, u64);

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Push { network: Of },
    Read { network: Of },
    Applied { outcome: u8, mine: bool },
    Linked { held: Option<Of> },
    Lost { latest: bool },
    Session { up: bool },
    Pass { ms: u64 },
}

fn network() -> impl Strategy<Value = Of> {
    let authority = prop_oneof![9 => Just('a'), 1 => Just('b')];
    let bits = prop_oneof![9 => Just(24_u8), 1 => Just(25_u8)];
    (authority, bits, 0..2_u64, 0..5_u64, 1..3_u64)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => network().prop_map(|network| Step::Push { network }),
        2 => network().prop_map(|network| Step::Read { network }),
        6 => (0..6_u8, prop::bool::weighted(0.9)).prop_map(|(outcome, mine)| Step::Applied { outcome, mine }),
        2 => prop::option::of(network()).prop_map(|held| Step::Linked { held }),
        1 => prop::bool::weighted(0.8).prop_map(|latest| Step::Lost { latest }),
        1 => any::<bool>().prop_map(|up| Step::Session { up }),
        3 => prop_oneof![Just(1_u64), Just(4_000), Just(10_000)].prop_map(|ms| Step::Pass { ms }),
    ]
}

fn text((authority, bits, generation, revision, content): Of) -> String {
    network_of(generation, revision, content)
        .replace(r#""id":"a""#, &format!(r#""id":"{authority}""#))
        .replace("/24", &format!("/{bits}"))
}

/// A network on its way: the push's correlation, none for a read.
#[derive(Debug, Clone)]
struct Waiting {
    push: Option<String>,
    network: Of,
    arrived: Duration,
}

struct Run {
    script: Script,
    known: BTreeMap<[u8; 32], Of>,
    link: Option<Link>,
    links: Link,
    held: Option<Of>,
    /// What vpnd is at, and whether that was answered for already.
    applying: Option<(AskId, Waiting, bool)>,
    waiting: VecDeque<Waiting>,
    pushes: u64,
    session: bool,
}

impl Run {
    fn network(&mut self, of: Of) -> String {
        let text = text(of);
        self.known.insert(snapshot(&text).network.digest, of);
        text
    }

    fn offer(&mut self, push: Option<String>, network: Of) {
        self.waiting.push_back(Waiting { push, network, arrived: self.script.now.mono });
    }

    fn take(&mut self, step: &Step) -> Vec<Seen> {
        match step {
            Step::Push { network } => {
                self.pushes += 1;
                let (correlation, text) = (format!("p{}", self.pushes), self.network(*network));
                self.offer(Some(correlation.clone()), *network);
                self.script.push(&correlation, &text)
            }
            Step::Read { network } => {
                let text = self.network(*network);
                if self.script.on(Event::Accepted).is_empty() {
                    return Vec::new();
                }
                self.offer(None, *network);
                self.script.answer_read(Outcome::Response(carrying(&text))).expect("it was just asked")
            }
            Step::Applied { outcome, mine } => {
                let Some((id, waiting, _)) = &self.applying else { return Vec::new() };
                if !mine {
                    return self.script.applied(self.links, id + 7, Ok(()));
                }
                let (id, network) = (*id, waiting.network);
                match outcome {
                    0 => self.script.applied(self.links, id, Err(NotApplied::Bind("x".to_owned()))),
                    1 => self.script.applied(self.links, id, Err(NotApplied::Passed)),
                    _ => {
                        self.held = Some(network);
                        self.script.applied(self.links, id, Ok(()))
                    }
                }
            }
            Step::Linked { held } => {
                self.links += 1;
                let held = held.map(|of| (of, self.network(of)));
                self.link = Some(self.links);
                let stated = held.as_ref().map(|(_, text)| snapshot(text).network);
                let seen = self.script.link(self.links, stated);
                // What is answered on the way is answered with nothing held.
                self.held = None;
                seen
            }
            Step::Lost { latest: false } => self.script.lose(self.links.saturating_sub(1)),
            Step::Lost { latest: true } => {
                (self.link, self.held) = (None, None);
                self.script.lose(self.links)
            }
            Step::Session { up } if *up == self.session => Vec::new(),
            Step::Session { up } => {
                self.session = *up;
                self.script.on(if *up { Event::SessionUp } else { Event::SessionDown })
            }
            Step::Pass { ms } => self.script.pass(Duration::from_millis(*ms)),
        }
    }

    /// What has to become of a network now, by the contract.
    fn expected(&self, network: Of) -> &'static str {
        let Some(held) = self.held else { return "taken" };
        let order = |of: Of| (of.2, of.3);
        match order(network).cmp(&order(held)) {
            _ if (network.0, network.1) != (held.0, held.1) => "vpn-network-authority-foreign",
            std::cmp::Ordering::Greater => "taken",
            std::cmp::Ordering::Equal if network == held => "replayed",
            std::cmp::Ordering::Equal | std::cmp::Ordering::Less => "vpn-network-revision-stale",
        }
    }

    fn late(&self, waiting: &Waiting) -> bool {
        waiting.arrived + 8_000 * MS <= self.script.now.mono
    }

    /// Whose turn a failure is, by its name.
    fn failed(&mut self, reason: &str, step: &Step) -> Option<Waiting> {
        let name = reason.split(':').next().unwrap();
        match (name, step) {
            ("vpn-hub-busy", Step::Push { .. } | Step::Read { .. }) => {
                assert!(self.applying.is_some() && self.waiting.len() == 5);
                self.waiting.pop_back()
            }
            ("vpn-hub-unavailable", Step::Push { .. } | Step::Read { .. }) => {
                assert!(self.link.is_none() && self.applying.is_none());
                self.waiting.pop_front()
            }
            ("vpn-hub-unavailable", Step::Lost { .. } | Step::Linked { .. }) => match self.applying.take() {
                Some((_, waiting, false)) => Some(waiting),
                Some((_, _, true)) | None => self.waiting.pop_front(),
            },
            ("vpn-hub-timeout", Step::Pass { .. }) => match &mut self.applying {
                Some((_, waiting, answered @ false)) => {
                    *answered = true;
                    Some(waiting.clone())
                }
                Some((_, _, true)) | None => self.waiting.pop_front(),
            }
            .inspect(|waiting| assert!(self.late(waiting), "{waiting:?}")),
            ("vpn-hub-bind-refused", Step::Applied { outcome: 0, .. })
            | ("vpn-hub-snapshot-passed", Step::Applied { outcome: 1, .. }) => self.taken_out(),
            _ => panic!("{reason} at {step:?}"),
        }
    }

    /// The first that waits and comes before the one that has just come.
    fn passed(&mut self, step: &Step) -> Option<Waiting> {
        let (Step::Push { network: latest } | Step::Read { network: latest }) = step else { return None };
        let of = |network: &Of| (network.0, network.1);
        let order = |network: &Of| (network.2, network.3);
        let passed =
            |waiting: &Waiting| of(&waiting.network) == of(latest) && order(&waiting.network) < order(latest);
        let at = self.waiting.iter().position(passed)?;
        self.waiting.remove(at)
    }

    /// What vpnd was at, unless it was answered for.
    fn taken_out(&mut self) -> Option<Waiting> {
        let (_, waiting, answered) = self.applying.take().expect("vpnd was at something");
        (!answered).then_some(waiting)
    }

    /// Follows what was seen; each network that ends is a push's one answer, or a read's none.
    fn follow(&mut self, seen: Vec<Seen>, step: &Step) {
        let mut seen = seen.into_iter().peekable();
        while let Some(next) = seen.next() {
            let (ended, state) = match next {
                Seen::Apply(link, id, given) => {
                    assert_eq!((Some(link), self.applying.is_none()), (self.link, true), "one at a time");
                    let waiting = self.waiting.pop_front().expect("somebody asked");
                    assert_eq!(self.known[&given.network.digest], waiting.network, "in their order");
                    assert_eq!(self.expected(waiting.network), "taken");
                    self.applying = Some((id, waiting, false));
                    continue;
                }
                Seen::Note(Note::Adopted { .. }) => (self.taken_out(), "applied".to_owned()),
                Seen::Note(Note::Failed { reason }) => (self.failed(&reason, step), reason),
                Seen::Note(Note::Replayed { .. }) => {
                    let waiting = self.waiting.pop_front().expect("somebody asked");
                    assert_eq!(self.expected(waiting.network), "replayed");
                    (Some(waiting), "replayed".to_owned())
                }
                Seen::Note(Note::Refused { name, .. }) if let Some(passed) = self.passed(step) => {
                    assert_eq!(name, "vpn-network-revision-stale");
                    (Some(passed), name.to_owned())
                }
                Seen::Note(Note::Refused { name, .. }) => {
                    let waiting = self.waiting.pop_front().expect("somebody asked");
                    assert_eq!(self.expected(waiting.network), name);
                    (Some(waiting), name.to_owned())
                }
                // A network that nobody waits for any more goes with its vpnd.
                Seen::Note(Note::Lost { .. }) => {
                    self.held = None;
                    self.applying.take_if(|(_, _, answered)| *answered);
                    continue;
                }
                Seen::Note(Note::Linked { .. } | Note::NotRead { .. }) | Seen::Read => continue,
                other => panic!("{other:?}"),
            };
            let Some(correlation) = ended.and_then(|waiting| waiting.push) else { continue };
            let held = self.held.map(|held| held.3);
            let answer = match state.as_str() {
                "applied" => Answer::Applied(held),
                "replayed" => Answer::Replayed(held),
                name if name.starts_with("vpn-network-") => Answer::Refused(state),
                _ => Answer::Failed(held, state),
            };
            assert_eq!(seen.next(), Some(told(&correlation, answer)));
        }
        if let Step::Linked { held } = step {
            self.held = *held;
        }
    }
}

proptest! {
    /// VPN-14, VPN-17, VPN-18, VPN-19, VPN-20, VPN-21, VPN-22, VPN-23, VPN-25, VPN-28, VPN-29, VPN-34, START-24:
    /// whatever comes in whatever order, vpnd is at one network at most, each is judged by what is held in its
    /// turn, and each push has one answer within its budget, which states what is held then.
    #[test]
    fn the_hub_does_what_the_history_says(steps in prop::collection::vec(step(), 1..80)) {
        let mut run = Run {
            script: Script::configured(),
            known: BTreeMap::new(),
            link: None,
            links: 0,
            held: None,
            applying: None,
            waiting: VecDeque::new(),
            pushes: 0,
            session: true,
        };
        for step in &steps {
            let seen = run.take(step);
            run.follow(seen, step);
            let at = format!("{step:?} of {steps:?}");
            prop_assert_eq!(run.script.held(), run.held.map(|held| held.3), "{}", at);
            let applying = run.applying.as_ref().filter(|(_, _, answered)| !answered).map(|(_, waiting, _)| waiting);
            let open: Vec<&Waiting> = applying.into_iter().chain(&run.waiting).collect();
            prop_assert!(open.is_empty() || run.applying.is_some(), "nobody waits for nothing: {}", at);
            prop_assert!(run.waiting.len() <= 4, "{}", at);
            prop_assert!(open.iter().all(|waiting| !run.late(waiting)), "{}", at);
            let pushes = open.iter().filter(|waiting| waiting.push.is_some()).count();
            prop_assert_eq!(run.script.hub.pushes_in_flight(), pushes, "{}", at);
        }
    }
}
