//! The files that a configuration is read from, all at once: the overlay, `qenv.yml`, a secret of its own and one that
//! is an object. A value is used as it is stored or refused, a refusal shows none, and every process takes what was
//! taken (CFG-05, CFG-10, CFG-13, CFG-16, CFG-17, CFG-21, CFG-35, CFG-36, LOG-01).
#![no_main]

use std::{fs, sync::LazyLock};

use coreflow_ipc::messages::pulld::PulldStart;
use coreflow_pulld::registry::Registry;
use coreflow_supervisor::configuration::{
    CloudlyUrl, ConfigurationError, ConfigurationReader, Environment, ListenerFacts, Sources, Variable,
};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// Parts the files of an input; none of them has a use for it.
const SEPARATOR: u8 = 0x1e;
/// A value with this in it may be in no words to an operator.
const MARK: &str = "marked";

static HOST: LazyLock<TempDir> = LazyLock::new(|| {
    let host = tempfile::tempdir().expect("there is a directory for temporary files");
    for directory in ["work", "overlay", "secrets"] {
        fs::create_dir(host.path().join(directory)).expect("the directory is new");
    }
    host
});

/// The files, in the order of an input's parts.
const FILES: [&str; 5] = [
    "overlay/env.json",
    "overlay/env.yml",
    "work/qenv.yml",
    "secrets/object",
    "secrets/SERVEZONE_CLUSTER_RELAY_AUTHORIZATION",
];

fn reader(input: &[u8]) -> ConfigurationReader {
    let mut parts = input.split(|byte| *byte == SEPARATOR);
    let at = |name: &str| HOST.path().join(name);
    for name in FILES {
        match parts.next().filter(|part| !part.is_empty()) {
            Some(part) => fs::write(at(name), part).expect("the file is this process's own"),
            None => drop(fs::remove_file(at(name))),
        }
    }
    ConfigurationReader::open(Sources {
        environment: Environment::default(),
        qenv_directory: at("work"),
        overlay: Some(at("overlay")),
        credentials_directory: None,
        secrets_directory: at("secrets"),
    })
}

fn shows_nothing(error: &ConfigurationError) {
    let words = error.to_string();
    assert!(!words.is_empty() && !words.contains(MARK) && !words.chars().any(char::is_control), "{words:?}");
}

fn is_taken(url: &CloudlyUrl) {
    let origin = url.origin();
    assert!(CloudlyUrl::parse(&origin).is_ok_and(|again| again == *url));
    assert!(url.port() != 0 && !url.host().is_empty() && origin.ends_with(&url.authority()));
    let start = PulldStart {
        registry_origin: origin.clone(),
        relay_origin: "https://relay.test".to_owned(),
        trust_anchors: Vec::new(),
    };
    let registry = Registry::new(start).unwrap_or_else(|| panic!("pulld takes {origin:?} as the registry's"));
    assert_eq!((registry.origin.tls(), registry.origin.host()), (url.is_tls(), url.host().as_str()));
    assert_eq!(registry.origin.authority(), url.authority());
}

fn is_sound(facts: &ListenerFacts) {
    let id = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    assert!((1..=128).contains(&facts.node_id.len()) && facts.node_id.bytes().all(id));
    assert!(facts.bind_port != 0 && !facts.bind_hostname.is_empty());
    if let Some(vpn) = &facts.vpn {
        assert!(vpn.quic_port != 0 && (1..224).contains(&vpn.address.octets()[0]));
    }
}

fuzz_target!(|input: &[u8]| {
    let mut reader = reader(input);
    match reader.launch_facts() {
        Ok(facts) => {
            is_taken(&facts.cloudly_url);
            assert!(!facts.bearer.expose().is_empty() && std::str::from_utf8(facts.bearer.expose()).is_ok());
            let again = reader.launch_facts().err().expect("the bearer is given out once");
            assert_eq!(again.missing, [Variable::Authorization]);
        }
        Err(error) => shows_nothing(&error),
    }
    match reader.listener_facts() {
        Ok(facts) => is_sound(&facts),
        Err(error) => shows_nothing(&error),
    }
});
