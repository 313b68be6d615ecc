//! The listener's certificate, as DER in PEM: what is served names the domain and is valid now, and what is not is
//! refused without any of it in the words (LIS-12, LIS-13, LIS-14, LIS-15, LIS-16).
#![no_main]

use coreflow_fuzz::memory::peak_of;
use coreflow_relayd::{
    certificate::{Loaded, Serving, server_config},
    contract::cluster::Certificate,
    refusals::CERTIFICATE_REFUSED,
};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use zeroize::Zeroizing;

const DOMAIN: &str = "relay.test";
/// The relay's clock in Unix milliseconds, by which the seeds are valid.
const WALL: u64 = 1_800_000_000_000;
/// Bytes that a chain costs in memory, in multiples of its own: PEM of it, DER, and what is parsed of that.
const MULTIPLE: usize = 64;
const LEAST: usize = 64 << 10;

/// Pieces, each after its length in two bytes; what is left over is the last one.
fn pieces(mut input: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (piece, behind) = rest.split_at(length);
        pieces.push(piece);
        input = behind;
    }
    pieces
}

fn pem(label: &str, der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for group in der.chunks(3) {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text + &format!("\n-----END {label}-----\n")
}

fn names_the_domain(leaf: &[u8]) -> bool {
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return false };
    let Ok(Some(names)) = leaf.subject_alternative_name() else { return false };
    names
        .value
        .general_names
        .iter()
        .any(|name| matches!(name, GeneralName::DNSName(dns) if dns.eq_ignore_ascii_case(DOMAIN)))
}

fuzz_target!(|input: &[u8]| {
    let mut chain = pieces(input);
    let Some(key) = chain.pop() else { return };
    let certificate = Certificate {
        id: "c".to_owned(),
        domain_name: DOMAIN.to_owned(),
        created: 0,
        valid_until: u64::MAX,
        private_key: Zeroizing::new(pem("PRIVATE KEY", key)),
        public_key: chain.iter().map(|der| pem("CERTIFICATE", der)).collect(),
        csr: String::new(),
    };
    let (checked, peak) = peak_of(|| Loaded::check(&certificate, DOMAIN, WALL));
    assert!(peak <= MULTIPLE * input.len() + LEAST, "{peak} bytes for {}", input.len());
    match checked {
        Ok(loaded) => {
            let term = loaded.chain().term;
            assert!(term.begins <= WALL && WALL < term.ends);
            assert!(names_the_domain(chain[0]));
            assert!(!loaded.chain().renews(&loaded.chain(), WALL));
            server_config(Arc::new(Serving::new(&loaded)));
        }
        Err(refused) => {
            let words = refused.to_string();
            assert!(words.starts_with(&format!("{CERTIFICATE_REFUSED}: {DOMAIN}: ")) && words.len() < 160);
        }
    }
});
