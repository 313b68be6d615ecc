//! How relayd and pulld stand, in a status: what they answered, cut to its bounds, and the lines of the text. Their
//! numbers are their own word; nothing here is judged by them.

use coreflow_ipc::messages::standing::{
    CertificateStanding, EscrowStanding, IngressStanding, NODES_OF_PAGE, NodePage, NodesStanding,
    PulldStanding, RelaydStanding, SessionStanding,
};

use super::{Status, vpn_hub::moment};
use crate::constants::{STATUS_LINE, STATUS_NAME};

/// As much of an answer as a status has room for.
pub fn bounded_standing(mut standing: RelaydStanding) -> RelaydStanding {
    let cut = |text: &mut String, characters: usize| *text = text.chars().take(characters).collect();
    cut(&mut standing.escrow.custody, STATUS_LINE);
    if let Some(certificate) = &mut standing.certificate {
        cut(&mut certificate.domain, STATUS_LINE);
    }
    standing
}

/// Whether a node can be named so: the rule of the contract's ids.
fn is_id(id: &str) -> bool {
    (1..=STATUS_NAME).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
}

/// The page, if it is one that follows `after`: no longer than a page, with ids that a node can have, each after the
/// one before it, so that whoever asks for one page after the other comes to an end.
pub fn bounded_page(page: NodePage, after: Option<&str>) -> Option<NodePage> {
    let mut before = after;
    for node in &page.nodes {
        if !is_id(&node.id) || before.is_some_and(|before| node.id.as_str() <= before) {
            return None;
        }
        before = Some(&node.id);
    }
    let goes_on = page.nodes.len() <= NODES_OF_PAGE && (!page.more || !page.nodes.is_empty());
    goes_on.then_some(page)
}

/// The lines of the text; a dash where nobody answered.
pub(super) fn told(status: &Status) -> Vec<String> {
    let relayd = status.relayd.as_ref();
    let of = |tell: fn(&RelaydStanding) -> String| relayd.map_or_else(|| "-".to_owned(), tell);
    vec![
        format!("session       {}", of(|relayd| session(&relayd.session))),
        format!("certificate   {}", of(|relayd| certificate(relayd.certificate.as_ref()))),
        format!("nodes         {}", of(|relayd| nodes(&relayd.nodes))),
        format!("escrow        {}", of(|relayd| escrow(&relayd.escrow))),
        format!("ingress       {}", of(|relayd| ingress(&relayd.ingress))),
        format!("pulls         {}", pulls(relayd, status.pulld.as_ref())),
    ]
}

fn session(session: &SessionStanding) -> String {
    let dispatchable = if session.dispatchable { "dispatchable" } else { "not dispatchable" };
    let ends = session
        .identity_ends_at
        .map_or_else(|| "no identity".to_owned(), |ends| format!("identity until {}", moment(ends)));
    format!("{dispatchable}, connection {}, {ends}", session.connections)
}

fn certificate(certificate: Option<&CertificateStanding>) -> String {
    let Some(CertificateStanding { domain, ends_at, renewed_at }) = certificate else {
        return "none".to_owned();
    };
    let renewed =
        renewed_at.map_or_else(|| "no renewal is set".to_owned(), |at| format!("renewed at {}", moment(at)));
    format!("{domain} until {}, {renewed}", moment(*ends_at))
}

fn nodes(nodes: &NodesStanding) -> String {
    let NodesStanding { sockets, carried, awaiting, requests, pushes } = nodes;
    format!(
        "{carried} carried, of which {awaiting} await registration; {sockets} sockets, {requests} requests and \
         {pushes} pushes under way"
    )
}

fn escrow(escrow: &EscrowStanding) -> String {
    let EscrowStanding { custody, runs, windows, due, offers, last_ends_at } = escrow;
    let last = last_ends_at.map(|ends| format!(", the last until {}", moment(ends))).unwrap_or_default();
    format!("{custody}; runs {runs} ({due} due), windows {windows}{last}, offers {offers}")
}

fn ingress(ingress: &IngressStanding) -> String {
    let bound = if ingress.bound { "bound" } else { "not bound" };
    let table = ingress.revision.map_or_else(
        || "no route table".to_owned(),
        |revision| format!("revision {revision}, {} routes", ingress.routes),
    );
    format!("{bound}, {table}")
}

fn pulls(relayd: Option<&RelaydStanding>, pulld: Option<&PulldStanding>) -> String {
    let relayd = relayd.map_or_else(|| "-".to_owned(), |relayd| relayd.pulls.to_string());
    let pulld = pulld.map_or_else(
        || "-".to_owned(),
        |pulld| format!("{} exchanges, {} connections", pulld.exchanges, pulld.connections),
    );
    format!("{relayd} under way; pulld: {pulld}")
}

#[cfg(test)]
pub(super) mod tests;
