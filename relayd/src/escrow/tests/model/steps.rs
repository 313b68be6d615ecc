//! The steps of a random history: what happens, and what the model makes of it.

use super::*;

impl Model {
    pub(super) fn step(&mut self, dice: &mut Dice) {
        match dice.roll(24) {
            0 | 1 => self.register(dice),
            2 => self.leave(dice.node()),
            3 => self.acknowledge_projection(dice),
            4..=8 => self.hold(dice),
            9 => {
                self.session = true;
                let wall = self.script.now.wall;
                self.nodes.iter_mut().for_each(|node| node.end_outage(wall));
                self.on(Event::SessionUp, Expected::default());
            }
            10..=12 => {
                self.session = false;
                let mut expected = Expected::default();
                for index in 0..3 {
                    self.nodes[index].allowed += 1;
                    self.look(index, &mut expected);
                }
                self.on(Event::SessionDown, expected);
            }
            13 => self.registration(dice),
            14..=17 => self.answer(dice),
            18 => {
                let ms =
                    [5_000, 60_000, 600_000, 3_600_000, 18_000_000][usize::try_from(dice.roll(5)).unwrap()];
                let wall = &mut self.script.now.wall;
                *wall = if dice.roll(2) == 0 { *wall + ms } else { *wall - ms };
                self.nodes.iter_mut().for_each(|node| node.allowed += 34);
                self.tick();
            }
            19 => {
                // The host slept: nothing was done in its moment.
                self.script.go_to(self.script.now.mono + Duration::from_secs(1 + dice.roll(2000)));
                self.tick();
            }
            _ => {
                let ms = [1, 1_000, 8_000, 30_000, 31_500, 300_000, 600_000];
                self.pass(ms[usize::try_from(dice.roll(7)).unwrap()]);
            }
        }
    }

    fn register(&mut self, dice: &mut Dice) {
        let (index, change, socket) = (dice.node(), dice.roll(8), self.name());
        let fresh = self.name();
        let node = &mut self.nodes[index];
        let (session, cluster, generation) = node.latest;
        node.latest = match change {
            0..=4 => node.latest,
            5 => (fresh, cluster, generation),
            6 => (session, 1 - cluster, generation),
            _ => (session, cluster, generation + 1),
        };
        node.carried = Some(socket);
        let latest = node.latest;
        if node.run.as_ref().is_some_and(|run| run.session != latest) {
            (node.run, node.open) = (None, None);
        }
        let binding: Binding = serde_json::from_str(&session_text(index, latest)).unwrap();
        self.script.roster.0.insert(id(NAMES[index]), (binding, socket));
        // What was offered on the former socket is answered by nobody.
        if let Some(open) = &mut self.nodes[index].open {
            open.offered.to = 0;
        }
        let mut expected = Expected::default();
        self.look(index, &mut expected);
        self.on(Event::Registered { node: id(NAMES[index]) }, expected);
    }

    fn leave(&mut self, index: usize) {
        let mono = self.mono();
        let node = &mut self.nodes[index];
        if node.carried.take().is_none() {
            return;
        }
        node.knows = None;
        node.fail_open(mono);
        self.script.roster.0.remove(&id(NAMES[index]));
        self.on(Event::Gone { node: id(NAMES[index]) }, Expected::default());
    }

    fn shown(dice: &mut Dice) -> Shown {
        let (name, generation) = (u64::from(dice.roll(8) == 0), 1 + dice.roll(3));
        (name, generation, generation + 10 * u64::from(dice.roll(8) == 0))
    }

    fn acknowledge_projection(&mut self, dice: &mut Dice) {
        let (index, shown) = (dice.node(), Self::shown(dice));
        let node = &mut self.nodes[index];
        let (session, cluster, generation) = node.latest;
        // Of the session that the node has, or of another that it had or never had.
        let of = match dice.roll(12) {
            0 => (session + 1, cluster, generation),
            1 => (session, 1 - cluster, generation),
            2 => (session, cluster, generation + 1),
            _ => node.latest,
        };
        if let Some(session) = node.session().filter(|session| *session == of) {
            let replaces = |held: Shown| held != shown && !(held.0 == shown.0 && shown.1 < held.1);
            if node.run.as_ref().is_some_and(|run| replaces(run.projection)) {
                (node.run, node.open) = (None, None);
            }
            let has = &mut node.knowledge(session).has;
            if has.is_none_or(|has| has.0 != shown.0 || has.1 <= shown.1) {
                *has = Some(shown);
            }
        }
        let projection = read_projection(&projection_text(shown));
        let session: Binding = serde_json::from_str(&session_text(index, of)).unwrap();
        self.on(Event::Acknowledged { session, projection }, Expected::default());
    }

    fn hold(&mut self, dice: &mut Dice) {
        let (index, projection, count) = (dice.node(), Self::shown(dice), dice.roll(6));
        let (spacing, length) =
            [(10, 15), (10, 15), (10, 8), (1, 15)][usize::try_from(dice.roll(4)).unwrap()];
        let start = self.script.now.wall / MIN + [0, 0, 1, 230][usize::try_from(dice.roll(4)).unwrap()];
        let first = (start - dice.roll(16)) / spacing;
        let foreign = dice.roll(12);
        let invalid = dice.roll(12) == 0 && count > 1;
        let node = &self.nodes[index];
        let (session, cluster, generation) = node.latest;
        let stated = if foreign == 0 { (session, cluster, generation + 1) } else { node.latest };
        let (of, cluster) =
            (NAMES[if foreign == 1 { (index + 1) % 3 } else { index }], cluster + u64::from(foreign == 2));
        let shown = projection_text(projection);
        let renewals: Vec<Signed> = (first..first + count)
            .map(|number| {
                let (from, until) = (number * spacing * MIN, (number * spacing + length) * MIN);
                let sequence = if invalid { 7 } else { number };
                let text = format!(
                    r#"{{"nodeId":"{of}","clusterId":"c{cluster}","projection":{shown},"notBefore":{from},"expiresAt":{until},"sequence":{sequence},"signature":""}}"#
                );
                Signed { sequence, from, until, text, failed: None, done: false }
            })
            .collect();
        let texts: Vec<&str> = renewals.iter().map(|renewal| renewal.text.as_str()).collect();
        let body = format!(
            r#"{{"session":{},"projection":{shown},"renewals":[{}]}}"#,
            session_text(index, stated),
            texts.join(",")
        );
        let foreign = (foreign == 1 || foreign == 2) && count > 0;
        let first = node.session();
        let name = format!("h{}", self.name());
        let mut expected = Expected::default();
        if self.custody == Custody::Stopped {
            expected.told.push((name.clone(), Err(UNKNOWN_METHOD.to_owned())));
        } else {
            let session = stated;
            let name = name.clone();
            self.waiting.push(Waiting {
                name,
                node: index,
                first,
                session,
                projection,
                renewals,
                foreign,
                invalid,
            });
        }
        let ids = Ids { correlation: name, instance: None };
        let request = Request { method: HOLD.to_owned(), ids, body: Body::from_json(body) };
        self.on(Event::Hold { connection: 1, request }, expected);
    }

    /// What becomes of this relay's registration, and the stop.
    fn registration(&mut self, dice: &mut Dice) {
        let kind = dice.roll(40);
        let (event, custody) = match kind {
            0..=17 => {
                if self.custody != Custody::Stopped && self.custody != Custody::Ended(REFUSALS[4]) {
                    self.custody = Custody::Open;
                }
                return self.on(Event::RegistrationAccepted, Expected::default());
            }
            18..=37 => {
                // The fifth, which is for good, is rare.
                let which = [0, 1, 2, 3, 5, 6, 5, 6, 5, 4][usize::try_from(dice.roll(10)).unwrap()];
                let event = Event::RegistrationRefused { text: REFUSALS[which].to_owned() };
                if which > 4 {
                    return self.on(event, Expected::default());
                }
                let name = REFUSALS[which].split(": ").next().unwrap();
                (event, Custody::Ended(name))
            }
            38 => (Event::Parked, Custody::Ended(REFUSALS[4])),
            _ => (Event::Stop, Custody::Stopped),
        };
        let for_good = self.custody == Custody::Stopped
            || self.custody == Custody::Ended(REFUSALS[4]) && custody != Custody::Stopped;
        if !for_good {
            self.custody = custody;
        }
        let told = match &self.custody {
            Custody::Ended(name) => (*name).to_owned(),
            Custody::Stopped | Custody::Open => UNKNOWN_METHOD.to_owned(),
        };
        let told = std::mem::take(&mut self.waiting).into_iter().map(|hold| (hold.name, Err(told.clone())));
        let expected = Expected { told: told.collect(), offers: Vec::new() };
        for node in &mut self.nodes {
            (node.run, node.open) = (None, None);
        }
        self.on(event, expected);
    }

    fn answer(&mut self, dice: &mut Dice) {
        let mono = self.mono();
        let node = &mut self.nodes[dice.node()];
        let Some(open) = node.open.as_ref().filter(|open| node.carried == Some(open.offered.to)) else {
            return;
        };
        let offered = open.offered.clone();
        let acknowledged = acknowledgement(&offered.body);
        let body = |text: String| Outcome::Response(Body::from_json(text));
        let (from, outcome) = match dice.roll(6) {
            0..=2 => {
                let index = open.index;
                let run = node.run.as_mut().unwrap();
                run.renewals[..=index].iter_mut().for_each(|renewal| renewal.done = true);
                node.open = None;
                (offered.to, body(acknowledged))
            }
            3 => {
                node.fail_open(mono);
                (offered.to, plain_refusal("no"))
            }
            4 => {
                node.fail_open(mono);
                (offered.to, body(acknowledged.replace(r#""sequence":"#, r#""sequence":1"#)))
            }
            _ => (offered.to + 1000, body(acknowledged)),
        };
        let (correlation, instance) = (offered.id, offered.instance);
        let answer = Answer { correlation, instance, outcome, retry_after_ms: None };
        self.on(Event::NodeAnswered { socket: from, answer }, Expected::default());
    }
}
