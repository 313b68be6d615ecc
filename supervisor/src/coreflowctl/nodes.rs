//! `coreflowctl nodes`: the local roster, page by page (XTR-19, XTR-20).

use coreflow_ipc::messages::standing::{NodePage, NodeStanding, NodeState};

use super::{Outcome, RunningRelay, looking};
use crate::{
    constants::ROSTER_NODES,
    control::{
        asking::AskError,
        protocol::{Answer, Command},
    },
    status::{bounded_page, json},
};

/// All nodes that are connected.
pub(super) fn look(relay: &RunningRelay, as_json: bool) -> Result<Outcome, AskError> {
    let mut nodes: Vec<NodeStanding> = Vec::new();
    loop {
        let after = nodes.last().map(|node| node.id.clone());
        let (Answer::Nodes(page), _) = relay.ask(Command::Nodes { after: after.clone() })? else {
            return Err(looking::another());
        };
        // One that does not go on from the one before would be asked for without end.
        let page = bounded_page(page, after.as_deref());
        let Some(NodePage { nodes: more, more: goes_on }) = page else {
            return Err(AskError::Unreadable(
                "a page of the roster does not go on from the one before".to_owned(),
            ));
        };
        nodes.extend(more);
        if nodes.len() > ROSTER_NODES {
            return Err(AskError::Unreadable(format!("the roster has more than {ROSTER_NODES} nodes")));
        }
        if !goes_on {
            break;
        }
    }
    let text = if as_json { json(&nodes) + "\n" } else { told(&nodes) };
    Ok(Outcome { text, so: true })
}

fn told(nodes: &[NodeStanding]) -> String {
    if nodes.is_empty() {
        return "no node is connected\n".to_owned();
    }
    let ids: Vec<String> = nodes.iter().map(|node| looking::escaped(&node.id)).collect();
    let width = ids.iter().map(|id| id.chars().count()).max().unwrap_or_default();
    let lines = nodes.iter().zip(&ids).map(|(node, id)| {
        let state = match node.state {
            NodeState::Registered => "registered",
            NodeState::Carried => "carried, without a session",
            NodeState::AwaitingRegistration => "awaiting registration",
        };
        format!("{id:<width$}  {state}\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each node has its line with its state, and a name acts on no terminal.
    #[test]
    fn each_node_has_a_line() {
        let node = |id: &str, state| NodeStanding { id: id.to_owned(), state };
        let nodes = [
            node("\u{1b}[2J", NodeState::Registered),
            node("node-b", NodeState::Carried),
            node("node-with-a-long-name", NodeState::AwaitingRegistration),
        ];
        let lines = "\
\\u{1b}[2J              registered
node-b                 carried, without a session
node-with-a-long-name  awaiting registration
";
        assert_eq!(told(&nodes), lines);
        assert_eq!(told(&[]), "no node is connected\n");
    }
}
