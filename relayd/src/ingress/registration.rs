//! An ingress registration: judged, validated, carried to Cloudly, and bound by its acceptance (ING-22,
//! ING-23, ING-24, ING-25, ING-31, ING-32, ING-33, ING-34).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Body, Ids, Outcome, Request, write_answer},
};

use super::{Action, Bound, Ingress, Note, Socket, Up};
use crate::{
    constants::{FORWARD_BUDGET, INGRESS_REGISTRATION_BYTES, INGRESS_REGISTRATIONS},
    contract::{
        ingress::{IngressRegistered, IngressRegistration},
        runtime::Offered,
        values::{Generation, Id, Reference},
    },
    protocol::{Kind, judge},
    refusals::{IngressRefused, refusal_name},
};

/// A registration that is on its way to Cloudly.
#[derive(Clone)]
pub(super) struct Registering {
    pub(super) socket: Socket,
    node: Id,
    ids: Ids,
}

impl Ingress {
    /// The offer first, then the body, then the session (PROT-12).
    pub(super) fn register(&mut self, socket: Socket, request: Request, now: Now, actions: &mut Vec<Action>) {
        match self.admit(socket, &request, actions) {
            Ok(node) => {
                let Request { method, ids, body } = request;
                self.registering.insert(socket);
                let registering = Up::Registration(Registering { socket, node, ids });
                let frame = self.up.open(method, body, now.mono + FORWARD_BUDGET, registering);
                actions.push(Action::SendUp(frame));
            }
            Err(refusal) => {
                let frame = write_answer(&request.method, &request.ids, &refusal);
                actions.push(Action::SendDown { socket, frame });
            }
        }
    }

    fn admit(&self, socket: Socket, request: &Request, actions: &mut Vec<Action>) -> Result<Id, Outcome> {
        let offered: Option<Offered<'_>> = request.body.read().ok();
        match judge(Kind::ClusterIngress, offered.and_then(|offered| offered.protocol)) {
            Ok(_) => actions.push(Action::OfferServed),
            Err(disagreement) => {
                actions.push(Action::OfferRefused(disagreement));
                return Err(disagreement.refusal());
            }
        }
        let bytes = request.body.len();
        let read = request.body.read::<IngressRegistration>().ok();
        let Some(registration) = read.filter(|_| bytes <= INGRESS_REGISTRATION_BYTES) else {
            return Err(refused(IngressRefused::RegistrationInvalid, actions));
        };
        let room = self.registering.len() < INGRESS_REGISTRATIONS && !self.registering.contains(&socket);
        if self.session && room {
            Ok(registration.node_id)
        } else {
            Err(refused(IngressRefused::NotReady, actions))
        }
    }

    /// What Cloudly answered reaches the ingress as it is; an acceptance binds its connection and is told
    /// which table there is to read.
    pub(super) fn registered(
        &mut self,
        method: &str,
        registering: &Registering,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        let outcome = match outcome {
            Outcome::Response(body) => match body.read::<IngressRegistered>() {
                Ok(registered) if !registered.states_revision => {
                    if self.bind(registering, registered.ingress, actions) {
                        Outcome::Response(with_revision(&body, self.custody.revision()))
                    } else {
                        IngressRefused::NotReady.refusal()
                    }
                }
                Ok(_) | Err(_) => {
                    actions.push(Action::Note(Note::NotBound { class: "unreadable".to_owned() }));
                    IngressRefused::NotReady.refusal()
                }
            },
            Outcome::Error(error) => {
                actions.push(Action::Note(Note::NotBound { class: refusal_name(&error) }));
                Outcome::Error(error)
            }
        };
        self.answer_registration(method, registering, &outcome, actions);
    }

    /// The registration could not be carried: there is no answer of Cloudly.
    pub(super) fn not_carried(
        &mut self,
        method: &str,
        registering: &Registering,
        class: &str,
        actions: &mut Vec<Action>,
    ) {
        actions.push(Action::Note(Note::NotBound { class: class.to_owned() }));
        self.answer_registration(method, registering, &IngressRefused::NotReady.refusal(), actions);
    }

    fn answer_registration(
        &mut self,
        method: &str,
        registering: &Registering,
        outcome: &Outcome,
        actions: &mut Vec<Action>,
    ) {
        let socket = registering.socket;
        self.registering.remove(&socket);
        actions.push(Action::SendDown { socket, frame: write_answer(method, &registering.ids, outcome) });
    }

    /// Binds the connection; says whether it is. Two registrations may be answered out of order: in one session the
    /// later generation of an ingress stays. A hint that is under way to a superseded connection is nobody's any more.
    fn bind(&mut self, registering: &Registering, ingress: Reference, actions: &mut Vec<Action>) -> bool {
        let session = self.sessions;
        let later = |bound: &Bound| {
            bound.session == session
                && bound.ingress.id == ingress.id
                && bound.ingress.generation > ingress.generation
        };
        if self.bound.as_ref().is_some_and(later) {
            actions.push(Action::Note(Note::NotBound { class: "superseded".to_owned() }));
            return false;
        }
        let (socket, node) = (registering.socket, registering.node.clone());
        let former = self.bound.replace(Bound { socket, node: node.clone(), ingress, session });
        let former = former.map(|former| former.socket).filter(|former| *former != socket);
        if let Some(former) = former {
            self.forget_hint();
            actions.push(Action::Superseded(former));
        }
        actions.push(Action::Note(Note::Bound { node, superseded: former.is_some() }));
        true
    }
}

fn refused(why: IngressRefused, actions: &mut Vec<Action>) -> Outcome {
    actions.push(Action::Note(Note::NotBound { class: why.reason().to_owned() }));
    why.refusal()
}

/// Cloudly's answer, byte for byte, with one member more.
fn with_revision(answer: &Body, revision: Option<Generation>) -> Body {
    let text = answer.text().trim_end();
    let open = text.strip_suffix('}').expect("an answer with members is an object");
    let revision = revision.map_or_else(|| "null".to_owned(), |revision| revision.get().to_string());
    Body::from_json(format!("{open},\"routeTableRevision\":{revision}}}"))
}
