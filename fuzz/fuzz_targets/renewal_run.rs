//! A hold of DNS lease renewals: what is valid keeps the contract's bounds, and each renewal is delivered as the text
//! that arrived (ESC-02, ESC-08, ESC-09, ESC-10, ESC-15, ESC-31, ESC-33).
#![no_main]

use coreflow_fuzz::memory::peak_of;
use coreflow_ipc::typedrequest::Body;
use coreflow_relayd::{
    constants::{ESCROW_HORIZON_MS, ESCROWED_RENEWALS, LEASE_WINDOW_MS},
    contract::{
        renewal::{
            Hold,
            binders::{
                bind_apply_renewal_request, bind_projection_acknowledgement, binds_apply_renewal_response,
                in_scope,
            },
            validate_hold,
        },
        runtime::{Addressed, Bound},
    },
};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, value::RawValue};

/// The relay's clock in Unix milliseconds, by which the seeds are valid.
const WALL: u64 = 1_800_000_000_000;
/// Bytes that a run costs in memory, in multiples of its text.
const MULTIPLE: usize = 12;
const LEAST: usize = 16 << 10;

fn is_within_bounds(hold: &Hold, text: &str) {
    let renewals = &hold.run.renewals;
    assert!(renewals.len() <= ESCROWED_RENEWALS);
    assert!(
        renewals.is_sorted_by(|one, next| one.sequence < next.sequence && one.not_before < next.not_before)
    );
    for renewal in renewals {
        assert!(renewal.not_before < renewal.expires_at && renewal.expires_at < 1 << 53);
        assert!(renewal.expires_at - renewal.not_before <= LEASE_WINDOW_MS);
        assert!(renewal.expires_at <= WALL + ESCROW_HORIZON_MS);
        assert!(text.contains(renewal.text.text()), "a renewal is the text that arrived");
    }
}

fn is_delivered(hold: &Hold, value: &Value) {
    let (session, projection) = (&hold.session, &hold.run.projection);
    for renewal in &hold.run.renewals {
        let scope = renewal.node_id == session.node_id && renewal.cluster_id == session.cluster_id;
        assert_eq!(in_scope(session, renewal), scope);
        let delivery = bind_apply_renewal_request(session, renewal);
        assert_eq!(delivery.is_some(), scope);
        let Some(delivery) = delivery else { continue };
        assert!(delivery.text().ends_with(&format!(r#","renewal":{}}}"#, renewal.text.text())));
        assert!(delivery.read::<&RawValue>().is_ok(), "a delivery is JSON");
        assert!(delivery.read::<Bound>().is_ok_and(|bound| bound.session == *session));
        assert!(delivery.read::<Addressed>().is_ok_and(|to| to.session.node_id == session.node_id));
        let answer = |sequence: u64| {
            let renewal = serde_json::json!({ "projection": value["projection"], "sequence": sequence });
            Body::of(&serde_json::json!({ "session": value["session"], "renewal": renewal }))
        };
        let sequence = renewal.sequence.get();
        assert!(binds_apply_renewal_response(&answer(sequence), session, projection, renewal.sequence));
        assert!(!binds_apply_renewal_response(&answer(sequence ^ 1), session, projection, renewal.sequence));
    }
}

fuzz_target!(|text: &str| {
    let body = Body::from_json(text.to_owned());
    let (hold, peak) = peak_of(|| validate_hold(&body, WALL));
    assert!(peak <= MULTIPLE * text.len() + LEAST, "{peak} bytes for a run of {}", text.len());
    match hold {
        Ok(hold) => {
            is_within_bounds(&hold, text);
            let value: Value = serde_json::from_str(text).expect("a valid hold has no depth");
            is_delivered(&hold, &value);
        }
        Err(invalid) => {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".[]".contains(&byte);
            assert!(invalid.0.len() <= 64 && invalid.0.bytes().all(plain), "{invalid}");
        }
    }
    // Whatever a push and its answer are, one text cannot acknowledge more than it states.
    if let Some((session, projection)) = bind_projection_acknowledgement(&body, &body) {
        assert!(body.read::<Bound>().is_ok_and(|bound| bound.session == session));
        assert!(projection.generation.get() < 1 << 53);
    }
});
