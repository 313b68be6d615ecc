//! The route table of the ingress: a valid one keeps its text and is what a plain reading of the contract calls valid;
//! what is wrong is named by a short path (ING-05, ING-09, ING-10).
#![no_main]

use std::{collections::BTreeSet, net::IpAddr};

use coreflow_fuzz::memory::peak_of;
use coreflow_relayd::contract::route_table::validate_cluster_route_table;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, value::RawValue};

/// Bytes that a table costs in memory, in multiples of its own text: it is kept once, and names of it are copied.
const MULTIPLE: usize = 24;
const LEAST: usize = 8 << 10;
/// Longest path of what is wrong: two positions and a name.
const LONGEST_PATH: usize = 120;

fn has_exactly(object: &Value, names: &[&str]) -> bool {
    let found: BTreeSet<&str> =
        object.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    found == names.iter().copied().collect()
}

fn is_valid(table: &Value) {
    assert!(has_exactly(table, &["clusterId", "revision", "routes", "certificates"]));
    assert!(table["revision"].as_u64().is_some_and(|revision| revision < 1 << 53));
    let certificates = table["certificates"].as_array().expect("a list");
    let ids: BTreeSet<&str> =
        certificates.iter().filter_map(|certificate| certificate["id"].as_str()).collect();
    assert_eq!(ids.len(), certificates.len());
    for certificate in certificates {
        assert!(has_exactly(certificate, &["id", "domainNames", "publicKey", "privateKey"]));
    }
    let routes = table["routes"].as_array().expect("a list");
    let hosts: BTreeSet<&str> = routes.iter().filter_map(|route| route["hostName"].as_str()).collect();
    assert_eq!(hosts.len(), routes.len());
    for route in routes {
        assert!(has_exactly(route, &["hostName", "destinations", "certificateId"]));
        assert!(route["certificateId"].as_str().is_none_or(|id| ids.contains(id)));
        let destinations = route["destinations"].as_array().expect("a list");
        assert!(!destinations.is_empty());
        for destination in destinations {
            assert!(has_exactly(destination, &["address", "port"]));
            assert!(destination["address"].as_str().is_some_and(|address| address.parse::<IpAddr>().is_ok()));
            assert!(destination["port"].as_u64().is_some_and(|port| (1..=65_535).contains(&port)));
        }
    }
}

fuzz_target!(|text: &str| {
    let Ok(raw) = serde_json::from_str::<&RawValue>(text) else { return };
    let (read, peak) = peak_of(|| validate_cluster_route_table(raw));
    assert!(peak <= MULTIPLE * text.len() + LEAST, "{peak} bytes for a table of {}", text.len());
    match read {
        Ok(table) => {
            assert_eq!(table.json_for_the_bound_ingress(), raw.get());
            let value: Value = serde_json::from_str(text).expect("a valid table has no depth");
            is_valid(&value);
            assert_eq!(Some(table.routes()), value["routes"].as_array().map(Vec::len));
            assert_eq!(Some(table.certificates()), value["certificates"].as_array().map(Vec::len));
            assert_eq!(Some(table.revision().get()), value["revision"].as_u64());
        }
        Err(invalid) => {
            let path = invalid.path;
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".[]".contains(&byte);
            assert!((1..=LONGEST_PATH).contains(&path.len()) && path.bytes().all(plain), "{path:?}");
        }
    }
});
