//! How the workers stand, as text, and what of a page is taken.

use coreflow_ipc::messages::standing::{NodeStanding, NodeState};

use super::*;
use crate::status::{Memory, Status, tests::ready};

/// A relayd that has something of each.
pub(in crate::status) fn relayd() -> RelaydStanding {
    RelaydStanding {
        session: SessionStanding {
            dispatchable: true,
            connections: 3,
            identity_ends_at: Some(1_769_817_600_999),
        },
        certificate: Some(CertificateStanding {
            domain: "relay.example.com".to_owned(),
            ends_at: 1_769_904_000_000,
            renewed_at: Some(1_769_821_200_000),
        }),
        nodes: NodesStanding { sockets: 14, carried: 12, awaiting: 1, requests: 3, pushes: 2 },
        escrow: EscrowStanding {
            custody: "open".to_owned(),
            runs: 2,
            windows: 5,
            due: 1,
            offers: 1,
            last_ends_at: Some(1_769_904_000_000),
        },
        ingress: IngressStanding { bound: true, revision: Some(7), routes: 12 },
        pulls: 4,
        ..RelaydStanding::default()
    }
}

fn standing_lines(status: &Status) -> Vec<String> {
    let text = status.text();
    let from = text.lines().skip_while(|line| !line.starts_with("session"));
    from.take_while(|line| !line.starts_with("vpn hub")).map(str::to_owned).collect()
}

/// OPS-02: how the workers stand: session, certificate, nodes, escrow, ingress and pulls, a line each; a worker that
/// did not answer is told once, by its own line, and all the rest is there.
#[test]
fn the_text_tells_how_the_workers_stand() {
    let pulld = PulldStanding { exchanges: 4, connections: 6, ..PulldStanding::default() };
    let mut status = Status { relayd: Some(relayd()), pulld: Some(pulld), ..ready() };
    let told = "\
session       dispatchable, connection 3, identity until 2026-01-31T00:00:00Z
certificate   relay.example.com until 2026-02-01T00:00:00Z, renewed at 2026-01-31T01:00:00Z
nodes         12 carried, of which 1 await registration; 14 sockets, 3 requests and 2 pushes under way
escrow        open; runs 2 (1 due), windows 5, the last until 2026-02-01T00:00:00Z, offers 1
ingress       bound, revision 7, 12 routes
pulls         4 under way; pulld: 4 exchanges, 6 connections";
    assert_eq!(standing_lines(&status), told.lines().collect::<Vec<_>>());
    status.workers[0].memory = Some(Memory { resident_bytes: 9 << 20, proportional_bytes: Some(3 << 20) });
    status.unanswered = vec!["relayd".to_owned()];
    status.relayd = None;
    let text = status.text();
    assert!(text.contains("relayd  running   pid 18, up 59 s, 3.0 MiB, does not answer\n"), "{text}");
    assert_eq!(text.matches("does not answer").count(), 1, "{text}");
    assert!(
        text.contains("session       -\n") && text.contains("pulls         - under way; pulld: 4 "),
        "{text}"
    );

    let bare = Status { relayd: Some(RelaydStanding::default()), ..ready() };
    let told = standing_lines(&bare);
    assert_eq!(told[0], "session       not dispatchable, connection 0, no identity");
    assert_eq!(
        (told[1].as_str(), told[4].as_str()),
        ("certificate   none", "ingress       not bound, no route table")
    );
}

fn page(ids: &[&str], more: bool) -> NodePage {
    let node = |id: &&str| NodeStanding { id: (*id).to_owned(), state: NodeState::Registered };
    NodePage { nodes: ids.iter().map(node).collect(), more }
}

/// XTR-19, XTR-20: a page goes on from the one before, in the order of the ids, and says whether there are more.
#[test]
fn a_page_that_goes_on_is_taken_as_it_is() {
    for (ids, more, after) in [
        (&[][..], false, None),
        (&[], false, Some("z")),
        (&["a", "b"], true, None),
        (&["b"], true, Some("a")),
    ] {
        let page = page(ids, more);
        assert_eq!(bounded_page(page.clone(), after), Some(page));
    }
}

/// A page that repeats, goes back, is too long, or promises more without going on would keep whoever asks busy
/// for ever; a relayd that gives one has broken a rule.
#[test]
fn a_page_that_does_not_go_on_is_none() {
    let long = "n".repeat(STATUS_NAME + 1);
    for (ids, more, after) in [
        (&["a", "a"][..], false, None),
        (&["b", "a"], false, None),
        (&["a"], false, Some("a")),
        (&["a", "b"], true, Some("b")),
        (&[long.as_str()], false, None),
        (&["\u{202e}a"], false, None),
        (&[""], false, None),
        (&[], true, None),
    ] {
        assert_eq!(bounded_page(page(ids, more), after), None, "{ids:?} after {after:?}");
    }
    let ids: Vec<String> = (0..=NODES_OF_PAGE).map(|number| format!("{number:04}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert!(bounded_page(page(&ids, false), None).is_none());
    assert!(bounded_page(page(&ids[..NODES_OF_PAGE], true), None).is_some());
}
