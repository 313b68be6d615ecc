//! The largest network that there is, on its whole way to vpnd.

use std::{fmt::Write as _, net::Ipv4Addr};

use base64::{Engine, engine::general_purpose::STANDARD};
use coreflow_ipc::{
    frame::HEADER,
    messages::{
        Message,
        peers::RelaydToVpnd,
        vpn_network::{MOST_GRANTS, MOST_MEMBERS, MOST_PREFIXES},
    },
};

use super::*;

/// An id of the longest.
fn id(member: usize) -> String {
    format!("{member:0>128}")
}

/// Every member has the longest id and as many prefixes as fit, and every word of the square has its last bit set, which is
/// its longest form.
fn largest() -> String {
    let mut text = format!(
        r#"{{"authority":{{"id":"{}","generation":9007199254740991}},"revision":9007199254740991,"controlPrefix":"10.0.0.0/16","members":["#,
        id(0)
    );
    let from =
        |first: [u8; 4], at: usize| Ipv4Addr::from(u32::from_be_bytes(first) + u32::try_from(at).unwrap());
    let behind = MOST_PREFIXES / MOST_MEMBERS;
    for member in 0..MOST_MEMBERS {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&member.to_be_bytes());
        let prefixes: Vec<String> = (member * behind..(member + 1) * behind)
            .map(|prefix| format!("\"{}/32\"", from([172, 16, 0, 0], prefix)))
            .collect();
        let comma = if member == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}{{"nodeId":"{}","publicKey":"{}","address":"{}","prefixes":[{}],"expiresAt":9007199254740991}}"#,
            id(member),
            STANDARD.encode(key),
            from([10, 0, 0, 2], member),
            prefixes.join(",")
        )
        .unwrap();
    }
    text.push_str(r#"],"grants":["#);
    let to: Vec<String> = (63..MOST_MEMBERS).step_by(64).map(id).collect();
    for member in 0..MOST_MEMBERS {
        let from = id(member);
        for (at, to) in to.iter().enumerate() {
            let comma = if member + at == 0 { "" } else { "," };
            write!(text, r#"{comma}{{"from":"{from}","to":"{to}"}}"#).unwrap();
        }
    }
    text.push_str("]}");
    text
}

/// VPN-14, ARC-13: the largest network is one message of Cloudly's, is admitted, and is one message to vpnd, which decodes
/// it as it was.
#[test]
fn the_largest_network_reaches_vpnd_whole() {
    let mut script = Script::new();
    let body = carrying(&largest());
    assert!(body.text().len() + 1024 < crate::constants::CLOUDLY_MESSAGE_LIMIT);
    let mut seen = script.push_on(1, "p", body);
    let (Some(Seen::Apply(1, id, snapshot)), None) = (seen.pop(), seen.pop()) else {
        panic!("it is admitted")
    };
    assert_eq!(
        (snapshot.members.len(), snapshot.grants.count()),
        (MOST_MEMBERS, MOST_MEMBERS * MOST_MEMBERS / 64)
    );
    assert!(snapshot.grants.count() <= MOST_GRANTS);
    assert_eq!(snapshot.members.iter().map(|member| member.prefixes.len()).sum::<usize>(), MOST_PREFIXES);
    let apply = RelaydToVpnd::Apply { id, snapshot };
    let mut frames = Vec::new();
    apply.append(&mut frames).expect("it is below the limit of its link");
    let decoded = RelaydToVpnd::of_bytes(&Bytes::from(frames.split_off(HEADER)));
    let Ok(RelaydToVpnd::Apply { snapshot: decoded, .. }) = decoded else { panic!("it is not decoded") };
    let RelaydToVpnd::Apply { snapshot, .. } = apply else { panic!("it is an apply") };
    assert!(decoded == snapshot, "it is another one");
}
