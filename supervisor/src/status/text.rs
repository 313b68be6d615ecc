//! The status as plain text: ready or not, then what each refused build speaks and which one has to be
//! upgraded, then the facts. What peers wrote is escaped, so that it cannot act on a terminal.

use coreflow_ipc::{
    messages::{
        readiness::{Offers, Refusal, StatedOffer},
        relayd::Reference,
    },
    record::escape_into,
};

use super::{
    State, Status, standing,
    upgrade::{Upgrade, peer_of, upgrades},
    vpn_hub,
    worker::of_worker,
};

pub(super) fn render(status: &Status) -> String {
    let mut text = String::new();
    let readiness = &status.readiness;
    line(&mut text, if readiness.ready { "ready" } else { "not ready" });
    for refusal in &readiness.refusals {
        blocked(&mut text, refusal);
    }
    if let Some(what) = &status.waiting_for {
        line(&mut text, &format!("  waiting for {what}"));
    }
    line(&mut text, "");
    let up = uptime(status.uptime_ms);
    let state = match status.state {
        State::Starting => "starting",
        State::Open => "open for Cloudly dispatch",
        State::Restarting => "relayd is being restarted",
        State::Stopping => "stopping",
    };
    line(
        &mut text,
        &format!("relay         coreflow {}, pid {}, up {up}, {state}", status.version, status.pid),
    );
    let listener = status.listener.map_or_else(|| "not bound".to_owned(), |address| address.to_string());
    line(&mut text, &format!("listener      {listener}"));
    let registration = &status.registration;
    line(&mut text, &format!("credential    {}", reference(registration.credential.as_ref(), "none pinned")));
    line(&mut text, &format!("registration  {}", reference(registration.record.as_ref(), "none accepted")));
    for told in standing::told(status).into_iter().chain(vpn_hub::told(status)) {
        line(&mut text, &told);
    }
    for (place, worker) in status.workers.iter().enumerate() {
        let heading = if place == 0 { "workers" } else { "" };
        let silent = if status.unanswered.contains(&worker.role) { ", does not answer" } else { "" };
        line(&mut text, &format!("{heading:<12}  {}{silent}", of_worker(worker)));
    }
    text
}

/// One thing that blocks a hop: its line and, of a refused protocol, both offers and what to upgrade.
fn blocked(text: &mut String, refusal: &Refusal) {
    line(text, &format!("  {}: {}", refusal.hop.name(), refusal.line));
    let Some(offers) = &refusal.refusal else { return };
    let (peer, peers) = peer_of(refusal.hop);
    let Offers { own, peer: stated } = offers;
    line(text, &format!("    {:<20} {}", "this relay", offer(own)));
    let stated = stated.as_ref().map_or_else(|| "states no readable offer".to_owned(), offer);
    line(text, &format!("    {peer:<20} {stated}"));
    let upgrades = upgrades(offers);
    if upgrades.is_empty() {
        line(text, &format!("    no upgrade follows from these two offers; see the log of {peer}"));
    }
    for upgrade in upgrades {
        let (who, release) = match upgrade {
            Upgrade::Relay(release) => ("this relay", release),
            Upgrade::Peer(release) => (peers, release),
        };
        line(text, &format!("    upgrade {who} to at least {release}"));
    }
}

fn offer(offer: &StatedOffer) -> String {
    format!("speaks {}, accepts from {}", offer.release, offer.oldest_accepted_peer_release)
}

fn reference(reference: Option<&Reference>, none: &str) -> String {
    reference.map_or_else(
        || none.to_owned(),
        |reference| format!("{} generation {}", reference.id, reference.generation),
    )
}

/// A duration in its two largest units.
pub(super) fn uptime(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Adds a line, whatever stands in it.
fn line(text: &mut String, line: &str) {
    escape_into(text, line);
    text.push('\n');
}
