//! The route table: taken when it is pushed or read, validated, adopted by its revision, and given to the
//! bound ingress alone (ING-02, ING-05, ING-07, ING-09, ING-11, ING-12, ING-15, ING-27, ING-28).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Body, Outcome, plain_refusal},
};

use super::{Action, Ingress, Note, Socket, Up};
use crate::{
    constants::{CALL_BUDGET, ROUTE_TABLE_RETRY},
    contract::{
        ingress::{CarriedRouteTable, GetIngressRouteTable, StatedRevision},
        route_table::{InvalidTable, RouteTable, validate_cluster_route_table},
        values::Generation,
    },
    refusals::{INGRESS_NOT_BOUND, INGRESS_REQUEST_INVALID, refusal_name, route_table_invalid},
};

impl Ingress {
    /// The table, for the bound connection alone (ING-27, ING-28); no table is `null` (ING-15).
    pub(super) fn table_for(&self, socket: Socket, body: &Body, actions: &mut Vec<Action>) -> Outcome {
        if self.bound() != Some(socket) {
            actions.push(Action::Note(Note::Stranger));
            return plain_refusal(INGRESS_NOT_BOUND);
        }
        let Ok(GetIngressRouteTable { applied_revision: applied }) = body.read() else {
            return plain_refusal(&format!("{INGRESS_REQUEST_INVALID}: appliedRevision"));
        };
        let held = self.custody.revision().map(Generation::get);
        actions.push(Action::Note(Note::Pulled { applied: applied.map(Generation::get), held }));
        let table = self.custody.table().map_or("null", RouteTable::json_for_the_bound_ingress);
        Outcome::Response(Body::from_json(format!(r#"{{"routeTable":{table}}}"#)))
    }

    /// The answer states the revision that is held afterwards (ING-07).
    pub(super) fn pushed(&mut self, body: &Body, now: Now, actions: &mut Vec<Action>) -> Outcome {
        let taken = carried(body).and_then(|table| table.ok_or_else(|| InvalidTable::at("routeTable")));
        match taken {
            Ok(table) => {
                let revision = self.offer(table, now, actions);
                Outcome::Response(Body::of(&StatedRevision { revision }))
            }
            Err(InvalidTable { path }) => {
                let refusal = route_table_invalid(&path);
                actions.push(Action::Note(Note::Invalid { path }));
                refusal
            }
        }
    }

    /// Adopts a newer table and hints the bound ingress at it; gives the revision that is held afterwards.
    fn offer(&mut self, table: RouteTable, now: Now, actions: &mut Vec<Action>) -> Generation {
        self.again = None;
        let (revision, routes, certificates) = (table.revision(), table.routes(), table.certificates());
        if !self.custody.offer(table) {
            let held = self.custody.revision().expect("what is not newer is compared with a held table");
            actions.push(Action::Note(Note::NotNewer { held: held.get() }));
            return held;
        }
        actions.push(Action::Note(Note::Adopted { revision: revision.get(), routes, certificates }));
        self.hint(revision, now, actions);
        revision
    }

    /// Only an acceptance is followed by reads: before it Cloudly would refuse one (ING-12). An earlier read has
    /// nothing left to say.
    pub(super) fn read(&mut self, now: Now, actions: &mut Vec<Action>) {
        if !self.session {
            return;
        }
        self.again = None;
        self.up.end_where(Up::is_read);
        let read = Up::Read { asked: self.custody.stated() };
        let frame =
            self.up.open("getClusterRouteTable".to_owned(), Body::empty(), now.mono + CALL_BUDGET, read);
        actions.push(Action::SendUp(frame));
    }

    pub(super) fn was_read(&mut self, asked: u64, outcome: &Outcome, now: Now, actions: &mut Vec<Action>) {
        let body = match outcome {
            Outcome::Response(body) => body,
            Outcome::Error(error) => {
                return self.not_read(asked, Note::NotRead { class: refusal_name(error) }, now, actions);
            }
        };
        match carried(body) {
            Ok(Some(table)) => {
                self.offer(table, now, actions);
            }
            Ok(None) => {
                if self.custody.none(asked) {
                    actions.push(Action::Note(Note::NoTable));
                }
            }
            Err(InvalidTable { path }) => self.not_read(asked, Note::Invalid { path }, now, actions),
        }
    }

    /// A read told nothing. A relay that has just started holds no table until one succeeds, so that it is made again,
    /// unless Cloudly has pushed a table since or reads no more are answered.
    pub(super) fn not_read(&mut self, asked: u64, why: Note, now: Now, actions: &mut Vec<Action>) {
        actions.push(Action::Note(why));
        if self.accepted && self.custody.stated() == asked {
            self.again = Some(now.mono + ROUTE_TABLE_RETRY);
        }
    }
}

/// The table that a body carries, validated; `None` for `null`.
fn carried(body: &Body) -> Result<Option<RouteTable>, InvalidTable> {
    let carried: CarriedRouteTable<'_> = body.read().map_err(|_| InvalidTable::at("routeTable"))?;
    match carried.route_table.get() {
        "null" => Ok(None),
        _ => validate_cluster_route_table(carried.route_table).map(Some),
    }
}
