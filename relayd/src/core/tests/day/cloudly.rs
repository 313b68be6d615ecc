//! Cloudly and the supervisor: what they answer, and what Cloudly gives each node and the relay for it.

use super::*;

impl Day {
    pub(super) fn identity(&self) -> Event {
        if !self.reachable {
            return Event::Session(session::Event::IdentityDenied);
        }
        let document = SecretText::new(IDENTITY.to_owned());
        Event::Identity(Identity { document, expires_at: self.script.now.wall + HOUR })
    }

    pub(super) fn asked_cloudly(&mut self, sent: &Sent) -> Event {
        let outcome = match sent.method.as_str() {
            ANNOUNCE => ok(&format!(r#"{{"protocol":{OFFER}}}"#)),
            REGISTER => {
                self.record += 1;
                acceptance("https://relay.test", 1, self.record)
            }
            CONFIG => ok(&config(r#","relay":{"origin":"https://relay.test"}"#)),
            TABLE => ok(r#"{"routeTable":null}"#),
            NETWORK => ok(r#"{"network":null}"#),
            NODE_REGISTERS => {
                let body: Value = serde_json::from_str(&sent.body).unwrap();
                let index = usize::try_from(body["node"].as_u64().unwrap()).unwrap();
                let node = &mut self.nodes[index];
                if node.session == 0 || index % 3 == 0 {
                    // The others registered identically: they get the binding that they had (OUT-18).
                    node.session += 1;
                }
                ok(&format!(r#"{{"session":{}}}"#, node.binding()))
            }
            method => panic!("{method} was called"),
        };
        self.of_cloudly(answer_to(sent, outcome))
    }

    fn of_cloudly(&self, envelope: Envelope) -> Event {
        Event::FromCloudly { connection: self.script.connection, envelope }
    }

    fn request(&mut self, method: &str, body: &str) -> Event {
        let correlation = format!("c{}", self.number());
        let event = self.of_cloudly(asked(&correlation, method, body));
        self.awaited.insert(correlation);
        event
    }

    /// Hands the relay a run for the node, unless the one that it has lasts for `time`.
    pub(super) fn hold(&mut self, node: usize, time: u64) -> Option<Event> {
        let wall = self.script.now.wall;
        if self.nodes[node].is_covered_until(wall + time) {
            return None;
        }
        let body = self.nodes[node].run(wall, time + 30 * MIN);
        Some(self.request(HOLD, &body))
    }

    /// Delivers the node the window of this moment; one that answers nothing is left alone.
    pub(super) fn deliver(&mut self, node: usize) -> Option<Event> {
        let body = self.nodes[node].delivery(self.script.now.wall);
        (!self.nodes[node].silent).then(|| self.push(node, RENEWAL, body))
    }

    /// What Cloudly has done for every node by the time of an outage of so many milliseconds.
    pub(super) fn prepare(&mut self, time: u64) {
        for node in 0..NODES {
            if let Some(event) = self.deliver(node) {
                self.on(event);
            }
            if let Some(event) = self.hold(node, time + 10 * MIN) {
                self.on(event);
            }
        }
        self.on(Event::Tick);
    }

    fn push(&mut self, node: usize, method: &str, body: String) -> Event {
        let event = self.request(method, &body);
        self.pushes.insert((self.nodes[node].socket.unwrap(), body));
        event
    }

    /// The node is pushed another projection, which it acknowledges; it may be handed a run for it.
    pub(super) fn replace_projection(&mut self, node: usize, handed: bool) {
        self.nodes[node].generation += 1;
        self.nodes[node].covered = false;
        let pallet = &self.nodes[node];
        let body = format!(r#"{{"session":{},"projection":{}}}"#, pallet.binding(), pallet.projection());
        let event = self.push(node, PROJECTION, body);
        self.on(event);
        if let Some(event) = handed.then(|| self.hold(node, HELD)).flatten() {
            self.on(event);
        }
    }

    /// A node is sent a request: what Cloudly pushed, or an offer of the relay's.
    pub(super) fn asked_node(&mut self, socket: Socket, sent: &Sent) -> Option<Event> {
        let node = &mut self.nodes[self.of_socket[&socket]];
        let outcome = if self.pushes.remove(&(socket, sent.body.clone())) {
            match sent.method.as_str() {
                RENEWAL => node.delivered(&sent.body),
                PROJECTION => ok(&sent.body),
                method => panic!("{method} was pushed"),
            }
        } else {
            assert!(!self.standing, "ESC-25: an offer while the session stands");
            assert_eq!(sent.method, RENEWAL);
            node.offered(&sent.body, self.script.now)?
        };
        let envelope = answer_to(sent, outcome);
        if node.slow {
            self.at(SLOW, Happens::Answers(socket, envelope));
            return None;
        }
        node.open = None;
        Some(Event::FromNode { socket, envelope })
    }
}
