//! The steps of a random history, and what Cloudly, the supervisor and the nodes do in them.

use super::*;

impl Model {
    pub(super) fn step(&mut self, dice: &mut Dice) {
        match dice.roll(28) {
            0..=4 => self.registers(dice),
            5 | 6 => self.answer_registrations(dice.roll(4) > 0),
            7 => {
                if let Some(socket) = self.any_open(dice) {
                    self.node_closed(socket);
                }
            }
            8 | 9 => self.lose(),
            10..=12 => self.restore(),
            13 => {
                self.lose();
                self.restore();
            }
            14 | 15 => self.renew(dice),
            16 | 17 => self.relay_registration(dice),
            18 | 19 => self.end_closing(dice),
            20..=23 => {
                let ms = dice.of(&[1, 10, 74, 75, 76, 150, 500, 3000, 31_000, 300_000]);
                self.pass(Duration::from_millis(ms));
            }
            24 => {
                let (ms, back) = (dice.of(&[1000, 60_000, HOUR, 5 * HOUR]), dice.roll(2) == 0);
                let wall = &mut self.script.now.wall;
                *wall = if back { *wall - ms } else { *wall + ms };
                self.on(Event::Tick);
            }
            25 => self.sleep(dice),
            26 => self.push(dice),
            _ => self.mishap(dice),
        }
    }

    fn any_open(&self, dice: &mut Dice) -> Option<Socket> {
        let open: Vec<Socket> = self.open.iter().copied().collect();
        (!open.is_empty()).then(|| dice.of(&open))
    }

    /// A node asks on a socket to register; Cloudly may answer at once.
    fn registers(&mut self, dice: &mut Dice) {
        let node = dice.of(&self.names);
        let own = self.carried.get(&node).map(|(socket, _)| *socket);
        let socket = match dice.roll(4) {
            0 => own,
            1 => self.any_open(dice),
            _ => None,
        };
        let socket = socket.unwrap_or_else(|| self.socket());
        self.register(&node, socket);
        if dice.roll(3) > 0 {
            self.answer_registrations(true);
        }
    }

    pub(super) fn register(&mut self, node: &str, socket: Socket) {
        let correlation = format!("r{}", self.number());
        let body = format!(r#"{{"protocol":{OFFER},"nodeId":"{node}","via":"{correlation}"}}"#);
        let asked_at = Asked { socket, node: node.to_owned(), at: self.script.now.mono, sent: None };
        self.unanswered.insert(correlation.clone(), asked_at);
        self.acts(socket);
        let envelope = asked(&correlation, NODE_REGISTERS, &body);
        self.on(Event::FromNode { socket, envelope });
    }

    /// Cloudly answers the registrations that reached it: with a binding, or by a refusal.
    pub(super) fn answer_registrations(&mut self, issued: bool) {
        let sent =
            self.unanswered.values().filter_map(|asked| Some((asked.node.clone(), asked.sent.clone()?)));
        for (node, sent) in sent.collect::<Vec<_>>() {
            let outcome = if issued { ok(&of(&node)) } else { plain_refusal("no") };
            self.cloudly(self.script.connection, answer_to(&sent, outcome));
        }
    }

    fn cloudly(&mut self, connection: Connection, envelope: Envelope) -> Vec<Did> {
        self.on(Event::FromCloudly { connection, envelope })
    }

    fn node_closed(&mut self, socket: Socket) {
        self.open.remove(&socket);
        self.closing.remove(&socket);
        self.superseded.remove(&socket);
        self.leaves(socket);
        self.acts(socket);
        self.unanswered.retain(|_, asked| asked.socket != socket);
        self.on(Event::NodeClosed { socket });
    }

    /// The sockets that the relay closed have ended; some of their nodes are back at once.
    fn end_closing(&mut self, dice: &mut Dice) {
        for socket in std::mem::take(&mut self.closing) {
            let node = self.carried.iter().find(|(_, (at, _))| *at == socket).map(|(node, _)| node.clone());
            self.node_closed(socket);
            if let Some(node) = node.filter(|_| dice.roll(3) > 0) {
                let socket = self.socket();
                self.register(&node, socket);
            }
        }
        self.answer_registrations(true);
    }

    /// The connection ends, whatever it is in.
    fn lose(&mut self) {
        let connection = self.script.connection;
        self.session_ended();
        self.dialing = false;
        self.on(Event::Session(session::Event::Closed { connection }));
    }

    /// Cloudly is back: whatever the session waits for is done, until it stands.
    fn restore(&mut self) {
        for _ in 0..40 {
            if self.standing {
                return;
            }
            if let Some(announced) = self.announced.take() {
                self.accept(&announced);
            } else if self.dialing {
                self.dialing = false;
                let connection = self.script.connection;
                self.on(Event::Session(session::Event::Connected { connection }));
            } else if self.asks_identity {
                self.grant();
            } else if let Some(due) = self.script.core.next_deadline(self.script.now) {
                self.go_to(due);
                self.on(Event::Tick);
            }
        }
        assert!(self.standing || self.parked || self.stopped);
    }

    /// The announcement is accepted: of a new connection, or of a renewed identity on the one that stands.
    fn accept(&mut self, announced: &Sent) {
        let renewed = self.standing;
        if !renewed {
            self.session_changed();
        }
        let outcome = ok(&format!(r#"{{"protocol":{OFFER}}}"#));
        let done = self.cloudly(self.script.connection, answer_to(announced, outcome));
        for did in done {
            let allowed = match &did {
                Did::Sent(_, sent) => [REGISTER, NODE_REGISTERS].contains(&sent.method.as_str()),
                Did::CloseNode(_) => !renewed,
                Did::Dispatchable(true) | Did::Keep(_) | Did::Readiness(_) => true,
                _ => false,
            };
            assert!(allowed, "OUT-03, OUT-14: {did:?} because of a session");
        }
    }

    fn grant(&mut self) -> Vec<Did> {
        self.asks_identity = false;
        let document = SecretText::new(IDENTITY.to_owned());
        self.on(Event::Identity(Identity { document, expires_at: self.script.now.wall + HOUR }))
    }

    /// The identity is renewed, on the unbroken connection where one stands.
    fn renew(&mut self, dice: &mut Dice) {
        if self.standing {
            self.script.now.wall += HOUR;
            self.on(Event::Tick);
        }
        if !self.asks_identity {
            return;
        }
        self.grant();
        if self.standing
            && dice.roll(4) > 0
            && let Some(announced) = self.announced.take()
        {
            self.accept(&announced);
        }
    }

    /// What Cloudly says to this relay's own registration.
    fn relay_registration(&mut self, dice: &mut Dice) {
        let Some(sent) = self.registering.take().filter(|_| self.standing) else { return };
        let outcome = match dice.roll(20) {
            0..=11 => {
                self.record += 1;
                acceptance("https://relay.test", 1, self.record)
            }
            12..=14 => plain_refusal("relay-node-unknown: node-1"),
            15 | 16 => plain_refusal("protocol-refused: x"),
            17 | 18 => ok("{}"),
            _ => acceptance("https://relay.test", 2, 1),
        };
        let done = self.cloudly(self.script.connection, answer_to(&sent, outcome));
        self.parked |= done.iter().any(|did| matches!(did, Did::Keep(kept) if kept.parked.is_some()));
    }

    /// The host slept, or the process was held up: nothing was done in its moment, and what was due goes on at
    /// its pace. The connection may be gone before anything else is looked at.
    fn sleep(&mut self, dice: &mut Dice) {
        let ms = dice.of(&[20, 75, 76, 400, 4000, 6000, 700_000]);
        self.go_to(self.script.now.mono + Duration::from_millis(ms));
        let late = self.slots.first().map(|slot| self.script.now.mono.saturating_sub(*slot));
        if let Some(late) = late.filter(|late| *late > SPACING) {
            self.slots.iter_mut().for_each(|slot| *slot += late);
        }
        if dice.roll(3) == 0 {
            self.lose();
        }
        self.on(Event::Tick);
    }

    /// Cloudly pushes to a node, which does not answer.
    fn push(&mut self, dice: &mut Dice) {
        if !self.standing || self.stopped {
            return;
        }
        let node = dice.of(&self.names);
        self.pushed = self.carried.get(&node).map(|(socket, _)| *socket);
        let correlation = format!("p{}", self.number());
        self.pushes.insert(correlation.clone());
        self.cloudly(self.script.connection, asked(&correlation, APPLY, &of(&node)));
    }

    fn mishap(&mut self, dice: &mut Dice) {
        match dice.roll(5) {
            0 => {
                self.stopped = true;
                self.slots.clear();
                self.owed.clear();
                self.owed_away.clear();
                self.on(Event::Stop);
            }
            1 => {
                let Some((connection, sent)) = self.late.pop() else { return };
                let node = dice.of(&self.names);
                assert_eq!(self.cloudly(connection, answer_to(&sent, ok(&of(&node)))), []);
            }
            2 if self.asks_identity => {
                self.asks_identity = false;
                self.on(Event::Session(session::Event::IdentityDenied));
            }
            3 => {
                let Some(announced) = self.announced.take() else { return };
                let outcome = dice.of(&["protocol-refused: x", "no"]);
                self.cloudly(self.script.connection, answer_to(&announced, plain_refusal(outcome)));
            }
            _ => self.lose(),
        }
    }

    fn go_to(&mut self, mono: Duration) {
        let passed = mono.saturating_sub(self.script.now.mono);
        self.script.now.mono += passed;
        self.script.now.wall += u64::try_from(passed.as_millis()).unwrap();
    }

    /// Time passes, and every tick comes in its moment.
    fn pass(&mut self, time: Duration) {
        let end = self.script.now.mono + time;
        while let Some(due) = self.script.core.next_deadline(self.script.now).filter(|due| *due <= end) {
            self.go_to(due);
            self.on(Event::Tick);
            let next = self.script.core.next_deadline(self.script.now);
            assert!(next.is_none_or(|next| next > self.script.now.mono), "a tick does what is due");
        }
        self.go_to(end);
        self.on(Event::Tick);
    }

    /// With Cloudly back for good every node that stays is of the connection that stands; when all have gone
    /// nothing is left of them.
    pub(super) fn finish(&mut self) {
        self.restore();
        self.pass(WAIT);
        if self.standing && !self.stopped {
            assert_eq!((self.slots.len(), self.owed.len(), self.owed_away.len()), (0, 0, 0));
            self.end_closing(&mut Dice(u64::MAX));
            let count = self.count;
            assert!(self.carried.values().all(|(_, registered)| *registered == count), "OUT-04");
        }
        for socket in self.open.clone() {
            self.node_closed(socket);
        }
        self.pass(GRACE);
        let core = &self.script.core;
        assert_eq!((core.forwarder.carried(), core.forwarder.next_deadline()), (0, None));
        assert_eq!((core.continuity.next_deadline(), core.superseded_deadline()), (None, None));
    }
}
