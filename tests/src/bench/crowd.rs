//! Many nodes at once: registering them, with a bound on how many dial at the same time.

use std::ops::Range;

use tokio::task::JoinSet;

use super::contestant::Contestant;
use super::node::Node;

/// Dials that are under way at the same time.
const DIALS: usize = 64;

/// Registers the nodes `numbers` with the contestant.
///
/// # Errors
/// Why the first that failed did, with the relay's last lines.
pub async fn register_all(contestant: &Contestant, numbers: Range<usize>) -> Result<Vec<Node>, String> {
    let mut registered = Vec::new();
    let mut registering = JoinSet::new();
    for number in numbers {
        if registering.len() == DIALS {
            registered.extend(registering.join_next().await);
        }
        let dial = contestant.dial.clone();
        registering.spawn(async move { Node::register(&dial, number).await });
    }
    registered.extend(registering.join_all().await.into_iter().map(Ok));
    let nodes = registered.into_iter().map(|node| node.expect("a node's task does not panic"));
    nodes.collect::<Result<_, _>>().map_err(|why| contestant.blame(&why))
}
