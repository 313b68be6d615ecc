//! Random histories against an obvious model: it keeps everything that happened and searches it.

use proptest::prelude::*;

use super::*;
use crate::contract::values::Generation;

/// One step of a random history; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Push { revision: u64, valid: bool },
    Accepted,
    ReadAnswered { which: usize, kind: u8, revision: u64 },
    Register { socket: Socket },
    Registered { which: usize, accepted: bool, generation: u64 },
    Closed { socket: Socket },
    Session { up: bool },
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let socket = 0..3_u64;
    let revision = prop_oneof![4 => 0..6_u64, 1 => 0..40_u64];
    prop_oneof![
        4 => (revision.clone(), prop::bool::weighted(0.8)).prop_map(|(revision, valid)| Step::Push { revision, valid }),
        3 => Just(Step::Accepted),
        4 => (any::<usize>(), 0..6_u8, revision).prop_map(|(which, kind, revision)| Step::ReadAnswered { which, kind, revision }),
        3 => socket.clone().prop_map(|socket| Step::Register { socket }),
        4 => (any::<usize>(), prop::bool::weighted(0.7), 1..4_u64)
            .prop_map(|(which, accepted, generation)| Step::Registered { which, accepted, generation }),
        1 => socket.prop_map(|socket| Step::Closed { socket }),
        1 => prop::bool::weighted(0.7).prop_map(|up| Step::Session { up }),
        2 => prop_oneof![Just(1_u64), Just(3000), Just(8000), Just(10_000), Just(30_000)].prop_map(|ms| Step::Pass { ms }),
    ]
}

/// What counted: tables and `null`s of Cloudly in their order, who was accepted and who closed, and each session.
#[derive(Debug, Clone, PartialEq)]
enum Fact {
    Table(u64),
    None,
    Bound(Socket, u64),
    Closed(Socket),
    Session,
}

/// What is held by the facts alone: the greatest revision since the last `null`.
fn expected_revision(facts: &[Fact]) -> Option<u64> {
    let since = facts.iter().rposition(|fact| *fact == Fact::None).map_or(0, |at| at + 1);
    let tables = facts[since..].iter().filter_map(|fact| match fact {
        Fact::Table(revision) => Some(*revision),
        Fact::None | Fact::Bound(..) | Fact::Closed(_) | Fact::Session => None,
    });
    tables.max()
}

/// Who is bound by the facts alone: the last accepted one, unless it closed since.
fn expected_bound(facts: &[Fact]) -> Option<Socket> {
    let bound = |fact: &Fact| match fact {
        Fact::Bound(socket, _) => Some(*socket),
        Fact::Table(_) | Fact::None | Fact::Closed(_) | Fact::Session => None,
    };
    let at = facts.iter().rposition(|fact| bound(fact).is_some())?;
    let socket = bound(&facts[at])?;
    (!facts[at..].contains(&Fact::Closed(socket))).then_some(socket)
}

/// Whether the one who is bound was accepted in this session, and with a later generation than this.
fn passed(facts: &[Fact], generation: u64) -> bool {
    let since = facts.iter().rposition(|fact| *fact == Fact::Session).map_or(0, |at| at + 1);
    let last = facts[since..].iter().rev().find_map(|fact| match fact {
        Fact::Bound(_, bound) => Some(*bound),
        Fact::Table(_) | Fact::None | Fact::Closed(_) | Fact::Session => None,
    });
    expected_bound(facts).is_some() && last.is_some_and(|bound| bound > generation)
}

/// The read that is under way, or the time at which one is made again.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reading {
    Nothing,
    /// Since when, and after how many facts.
    Asked(u64, usize),
    Again(u64),
}

struct Run {
    script: Script,
    facts: Vec<Fact>,
    session: bool,
    /// Reads that were sent: the request, and how many facts there were.
    reads: Vec<(Sent, usize)>,
    reading: Reading,
    /// Reads that the steps so far lead to.
    expected_reads: usize,
    sent_reads: usize,
    registrations: Vec<Sent>,
    sockets: Vec<Socket>,
    next: Socket,
}

impl Run {
    fn keep(&mut self, seen: &[Seen]) {
        for sent in seen.iter().filter_map(|seen| if let Seen::Sent(sent) = seen { Some(sent) } else { None })
        {
            match sent.method.as_str() {
                READ => {
                    self.sent_reads += 1;
                    self.reads.push((sent.clone(), self.facts.len()));
                }
                REGISTER => self.registrations.push(sent.clone()),
                HINT => {}
                other => panic!("{other} was sent"),
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.script.now.mono.as_millis()).unwrap()
    }

    fn reads(&mut self) {
        self.expected_reads += 1;
        self.reading = Reading::Asked(self.now(), self.facts.len());
    }

    fn stated_since(&self, known: usize) -> bool {
        self.facts[known..].iter().any(|fact| matches!(fact, Fact::Table(_)))
    }

    /// A read told nothing: it is made again, unless a table was stated since it was made.
    fn read_failed(&mut self, known: usize) {
        let again = Reading::Again(self.now() + 30_000);
        self.reading = if self.stated_since(known) { Reading::Nothing } else { again };
    }

    /// What has to follow of the reads when time has passed.
    fn look_at_reads(&mut self) {
        match self.reading {
            Reading::Asked(since, known) if since + 10_000 <= self.now() => self.read_failed(known),
            Reading::Again(at) if at <= self.now() => self.reads(),
            Reading::Asked(..) | Reading::Again(_) | Reading::Nothing => {}
        }
    }

    fn take(&mut self, step: &Step) -> Vec<Seen> {
        match step {
            Step::Push { revision, valid } => {
                let text = table(*revision);
                let text = if *valid { text } else { text.replace("::1", "none") };
                if *valid {
                    self.facts.push(Fact::Table(*revision));
                    if let Reading::Again(_) = self.reading {
                        self.reading = Reading::Nothing;
                    }
                }
                self.script.dispatch(1, "p", PUSH, &carrying(&text))
            }
            Step::Accepted => {
                if self.session {
                    self.reads();
                }
                self.script.on(Event::Accepted)
            }
            Step::ReadAnswered { which, kind, revision } => {
                let Some(last) = self.reads.len().checked_sub(1) else { return Vec::new() };
                // Mostly the one that still counts.
                let at = if which % 3 == 0 { which % self.reads.len() } else { last };
                let (sent, known) = self.reads.remove(at);
                let (told, fact) = match kind {
                    0 => (ok(r#"{"routeTable":null}"#), Some(Fact::None)),
                    1 => (refused("relay-not-connected"), None),
                    2 => (ok(&carrying(&table(*revision).replace("::1", "none"))), None),
                    _ => (ok(&carrying(&table(*revision))), Some(Fact::Table(*revision))),
                };
                let Some(seen) = self.script.cloudly(&sent, &told) else { return Vec::new() };
                match fact {
                    None => self.read_failed(known),
                    Some(_) => self.reading = Reading::Nothing,
                }
                let stated = self.stated_since(known);
                self.facts.extend(fact.filter(|fact| *fact != Fact::None || !stated));
                seen
            }
            Step::Register { socket } => {
                let socket = self.sockets[usize::try_from(*socket).unwrap()];
                self.script.ask(socket, &format!("r{socket}"), REGISTER, &registration("b"))
            }
            Step::Registered { which, accepted, generation } => {
                let Some(at) = which.checked_rem(self.registrations.len()) else { return Vec::new() };
                let sent = self.registrations.remove(at);
                let refusal = refused("cluster-ingress-registration-refused: x");
                let told = if *accepted { ok(&acceptance(*generation)) } else { refusal };
                let Some(seen) = self.script.cloudly(&sent, &told) else { return Vec::new() };
                let answered = seen.iter().find_map(|seen| match seen {
                    Seen::Socket(socket, ..) => Some(*socket),
                    _ => None,
                });
                let socket = answered.expect("a registration that still counts is answered");
                if *accepted && !passed(&self.facts, *generation) {
                    self.facts.push(Fact::Bound(socket, *generation));
                }
                seen
            }
            Step::Closed { socket } => {
                let at = usize::try_from(*socket).unwrap();
                self.next += 1;
                let socket = std::mem::replace(&mut self.sockets[at], self.next);
                self.facts.push(Fact::Closed(socket));
                self.script.on(Event::Closed { socket })
            }
            Step::Session { up } if *up == self.session => Vec::new(),
            Step::Session { up } => {
                self.session = *up;
                if *up {
                    self.facts.push(Fact::Session);
                }
                self.reading = Reading::Nothing;
                self.script.on(if *up { Event::SessionUp } else { Event::SessionDown })
            }
            Step::Pass { ms } => {
                let seen = self.script.pass(Duration::from_millis(*ms));
                self.look_at_reads();
                seen
            }
        }
    }
}

proptest! {
    /// ING-06, ING-07, ING-08, ING-10, ING-11, ING-14, ING-15, ING-17, ING-21, ING-24, ING-25, ING-26, ING-27, ING-28:
    /// after every step the held table, the reads, the bound connection, the superseded one, the hints and what every
    /// connection is answered are what the whole history says.
    #[test]
    fn custody_and_binding_are_what_the_history_says(steps in prop::collection::vec(step(), 1..60)) {
        let mut run = Run {
            script: Script::new(),
            facts: Vec::new(),
            session: true,
            reads: Vec::new(),
            reading: Reading::Nothing,
            expected_reads: 0,
            sent_reads: 0,
            registrations: Vec::new(),
            sockets: vec![1, 2, 3],
            next: 3,
        };
        for (number, step) in steps.iter().enumerate() {
            let (held, bound) = (expected_revision(&run.facts), expected_bound(&run.facts));
            let seen = run.take(step);
            run.keep(&seen);
            let (now_held, now_bound) = (expected_revision(&run.facts), expected_bound(&run.facts));
            let at = format!("step {number} {step:?} led to {seen:?}");
            prop_assert_eq!(run.script.ingress.bound(), now_bound, "{}", at);
            prop_assert_eq!(run.sent_reads, run.expected_reads, "{}", at);
            let superseded = seen.iter().filter_map(|seen| if let Seen::Superseded(socket) = seen { Some(*socket) } else { None });
            let replaced = bound.filter(|_| now_bound.is_some() && now_bound != bound);
            prop_assert_eq!(superseded.collect::<Vec<_>>(), replaced.into_iter().collect::<Vec<_>>(), "{}", at);
            prop_assert_eq!(run.script.ingress.custody.revision().map(Generation::get), now_held, "{}", at);
            let newer = now_held > held;
            let hints: Vec<&Seen> = seen.iter().filter(|seen| matches!(seen, Seen::Sent(sent) if sent.method == HINT)).collect();
            match (newer, bound, now_held) {
                (true, Some(socket), Some(revision)) => prop_assert_eq!(hints, [&hint(socket, revision)], "{}", at),
                _ => prop_assert!(hints.is_empty(), "{}", at),
            }
            if let Step::Push { valid: true, .. } = step {
                prop_assert_eq!(seen.last().cloned(), now_held.map(super::held), "{}", at);
            }
            for socket in run.sockets.clone() {
                let expected = match (now_bound == Some(socket), now_held) {
                    (false, _) => refused("cluster-ingress-not-bound"),
                    (true, None) => ok(r#"{"routeTable":null}"#),
                    (true, Some(revision)) => ok(&carrying(&table(revision))),
                };
                prop_assert_eq!(run.script.pull(socket), expected, "{}", at);
            }
            for seen in &seen {
                prop_assert!(!format!("{seen:?}").contains("TUFURVJJQUw"), "{}", at);
            }
        }
    }
}
