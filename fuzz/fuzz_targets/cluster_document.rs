//! The cluster document and the origin of its relay block: every process reads the same origin out of it (LIS-07,
//! LIS-09, LIS-10).
#![no_main]

use coreflow_ipc::{messages::pulld::PulldStart, typedrequest::Body};
use coreflow_pulld::{origin, registry::Registry};
use coreflow_relayd::{
    cluster::{self, Origin, Published},
    contract::values::is_dns_name,
};
use libfuzzer_sys::fuzz_target;
use url::Url;

fn is_the_same_everywhere(origin: &Origin) {
    let text = origin.to_string();
    let url = Url::parse(&text).expect("an origin is a URL");
    assert_eq!((url.scheme(), url.host_str(), url.path()), ("https", Some(origin.host()), "/"));
    assert!(is_dns_name(origin.host()) && url.query().is_none() && url.fragment().is_none());
    assert!(url.username().is_empty() && url.password().is_none());
    assert!(Origin::parse(&text).is_ok_and(|again| again == *origin));
    let port = url.port_or_known_default().expect("https has a port");
    if origin.names_port() {
        assert!(origin.check_port(port).is_ok());
        assert!(origin.check_port(port.wrapping_add(1)).is_err());
    }
    let theirs = origin::Origin::parse(&text).expect("pulld reads the relay's origin");
    assert_eq!((theirs.tls(), theirs.host()), (true, origin.host()));
    let start = PulldStart { registry_origin: text.clone(), relay_origin: text, trust_anchors: Vec::new() };
    assert!(Registry::new(start).is_some(), "pulld starts with it");
}

fuzz_target!(|text: &str| {
    match cluster::read(&Body::from_json(text.to_owned())) {
        Ok(Published::Relay(origin)) => is_the_same_everywhere(&origin),
        Ok(Published::Invalid(reason)) => assert!(reason.starts_with("relay") && reason.len() < 100),
        Ok(Published::Nothing) => {}
        Err(error) => assert!(error.len() < 100, "an error states no value"),
    }
    if let Ok(origin) = Origin::parse(text) {
        assert_eq!(origin.to_string(), text);
        is_the_same_everywhere(&origin);
    }
});
