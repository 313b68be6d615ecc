//! The reader, the launch facts and the files, from temporary directories: no test touches the process
//! environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

const AUTHORIZATION: &str = "SERVEZONE_CLUSTER_RELAY_AUTHORIZATION";
const BOTH: [(&str, &str); 2] =
    [("CLOUDLY_URL", "https://cloudly.example.com"), (AUTHORIZATION, "marked-bearer")];

fn environment(values: &[(&str, &str)]) -> Environment {
    Environment::snapshot(|name| {
        values.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value))
    })
}

/// A reader that has these variables and no file.
pub(super) fn reader(values: &[(&str, &str)]) -> ConfigurationReader {
    Host::new().reader(values)
}

/// The directories of a host.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    fn reader(&self, values: &[(&str, &str)]) -> ConfigurationReader {
        ConfigurationReader::open(Sources {
            environment: environment(values),
            qenv_directory: self.path("work"),
            overlay: Some(self.path("work/.nogit")),
            credentials_directory: Some(self.path("credentials")),
            secrets_directory: self.path("secrets"),
        })
    }

    fn node_id(&self, values: &[(&str, &str)]) -> Option<(String, Source)> {
        let found = self.reader(values).text(Variable::NodeId).unwrap();
        found.map(|(text, source)| (text.to_string(), source))
    }

    fn refusal(&self, values: &[(&str, &str)]) -> ConfigurationError {
        self.reader(values).launch_facts().err().unwrap()
    }

    fn bearer(&self, values: &[(&str, &str)]) -> Vec<u8> {
        let facts = self.reader(&[&BOTH[..1], values].concat()).launch_facts();
        facts.map_err(|error| error.to_string()).ok().unwrap().bearer.expose().to_vec()
    }
}

/// CFG-01, CFG-03, CFG-04, CFG-35: environment, overlay (env.json, env.yml, env.yaml), credential, secret,
/// secret object; the first that holds the name wins, an empty value is none, and a `.env` file is never
/// read.
#[test]
fn the_sources_have_one_order() {
    let host = Host::new();
    host.write("secrets/service", r#"{"COREFLOW_NODE_ID": "from-object", "OTHER": {"nested": true}}"#)
        .write("secrets/COREFLOW_NODE_ID", "from-secret")
        .write("credentials/COREFLOW_NODE_ID", "from-credential")
        .write("work/.nogit/env.yaml", "COREFLOW_NODE_ID: from-yaml\n")
        .write("work/.nogit/env.yml", "COREFLOW_NODE_ID: from-yml\n")
        .write("work/.nogit/env.json", r#"{"COREFLOW_NODE_ID": "from-json"}"#)
        .write("work/.nogit/.env", "COREFLOW_NODE_ID=from-dotenv\n")
        .write("work/.env", "COREFLOW_NODE_ID=from-dotenv\n");
    let mut values: &[(&str, &str)] = &[("COREFLOW_NODE_ID", "from-environment")];
    for (expected, source, emptied) in [
        ("from-environment", Source::Environment, None),
        (
            "from-json",
            Source::Overlay("env.json"),
            Some(("work/.nogit/env.json", r#"{"COREFLOW_NODE_ID": ""}"#)),
        ),
        ("from-yml", Source::Overlay("env.yml"), Some(("work/.nogit/env.yml", "COREFLOW_NODE_ID:\n"))),
        ("from-yaml", Source::Overlay("env.yaml"), Some(("work/.nogit/env.yaml", ""))),
        ("from-credential", Source::Credential, Some(("credentials/COREFLOW_NODE_ID", ""))),
        ("from-secret", Source::Secret, Some(("secrets/COREFLOW_NODE_ID", ""))),
        ("from-object", Source::Secret, Some(("secrets/service", "{}"))),
    ] {
        assert_eq!(host.node_id(values), Some((expected.to_owned(), source)));
        match emptied {
            Some((name, content)) => drop(host.write(name, content)),
            None => values = &[("COREFLOW_NODE_ID", "")],
        }
    }
    assert_eq!(host.node_id(values), None);
}

/// CFG-04, CFG-13, CFG-16: the credential by its exact name, byte for byte.
#[test]
fn a_bearer_is_used_as_it_is_stored() {
    let host = Host::new();
    host.write("credentials/SERVEZONE_CLUSTER_RELAY_AUTHORIZATION", " from\tcredential\n");
    assert_eq!(host.bearer(&[]), b" from\tcredential\n");
    assert_eq!(host.bearer(&[(AUTHORIZATION, "from-environment\n")]), b"from-environment\n");
    let host = Host::new();
    host.write("secrets/SERVEZONE_CLUSTER_RELAY_AUTHORIZATION", "from-secret\r\n");
    assert_eq!(host.bearer(&[]), b"from-secret\r\n");
    let host = Host::new();
    host.write(
        "secrets/coreflowSecret",
        r#" {"SERVEZONE_CLUSTER_RELAY_AUTHORIZATION": "from-object\n", "JUMPCODE": "x"}"#,
    );
    assert_eq!(host.bearer(&[]), b"from-object\n");
}

/// CFG-13, CFG-15: the bearer is read once; a later look finds nothing, whichever source holds it.
#[test]
fn a_bearer_is_read_once() {
    let host = Host::new();
    host.write("work/.nogit/env.json", r#"{"SERVEZONE_CLUSTER_RELAY_AUTHORIZATION": "b"}"#)
        .write("credentials/SERVEZONE_CLUSTER_RELAY_AUTHORIZATION", "c")
        .write("secrets/SERVEZONE_CLUSTER_RELAY_AUTHORIZATION", "d")
        .write("secrets/object", r#"{"SERVEZONE_CLUSTER_RELAY_AUTHORIZATION": "e"}"#);
    let mut reader = host.reader(&BOTH);
    assert!(reader.launch_facts().is_ok());
    assert_eq!(reader.launch_facts().err().unwrap().missing, [Variable::Authorization]);
    assert_eq!(reader.environment().value(Variable::Authorization), None);
}

/// CFG-06, CFG-07, CFG-14, CFG-33: one refusal names all that is missing; `JUMPCODE` does not replace the
/// bearer.
#[test]
fn one_refusal_names_everything_missing() {
    let error = Host::new().refusal(&[("JUMPCODE", "x")]);
    assert_eq!((&error.missing[..], &error.mistakes[..]), (&Variable::REQUIRED[..], &[][..]));
    assert_eq!(
        error.to_string(),
        "missing CLOUDLY_URL, SERVEZONE_CLUSTER_RELAY_AUTHORIZATION \
         (set in the environment, the overlay, a systemd credential or a Docker secret)"
    );
    assert_eq!(Host::new().refusal(&BOTH[..1]).missing, [Variable::Authorization]);
    assert_eq!(Host::new().refusal(&BOTH[1..]).missing, [Variable::CloudlyUrl]);
    assert_eq!(Host::new().refusal(&[BOTH[0], (AUTHORIZATION, "")]).missing, [Variable::Authorization]);
}

/// CFG-05: the list this tree ships names exactly the two.
#[test]
fn the_shipped_launch_list_names_exactly_two() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("qenv.yml");
    let text = std::fs::read_to_string(path).unwrap();
    let list: serde_norway::Value = serde_norway::from_str(&text).unwrap();
    let expected = format!("required:\n- CLOUDLY_URL\n- {AUTHORIZATION}\n");
    assert_eq!(serde_norway::to_string(&list).unwrap(), expected);
}

/// CFG-08, CFG-09: with the shipped list, with none and with an empty one, the same set is refused and
/// accepted.
#[test]
fn a_boot_without_the_launch_list_refuses_the_same_set() {
    let shipped =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("qenv.yml")).unwrap();
    let (none, full, empty) = (Host::new(), Host::new(), Host::new());
    full.write("work/qenv.yml", shipped);
    empty.write("work/qenv.yml", "required: []\n");
    for values in [&[][..], &BOTH[..1], &BOTH[1..]] {
        let refusal = none.refusal(values);
        assert_eq!(full.refusal(values), refusal);
        assert_eq!(empty.refusal(values), refusal);
    }
    for host in [none, full, empty] {
        assert!(host.reader(&BOTH).launch_facts().is_ok());
    }
}

/// CFG-09, CFG-34: a list cannot require what no reader requires on every boot, and a broken one is named.
#[test]
fn a_launch_list_is_judged() {
    let host = Host::new();
    let judged = |content: &str| host.write("work/qenv.yml", content).refusal(&BOTH).to_string();
    let text = judged("required: [CLOUDLY_URL, JUMPCODE, 'marked secret']\n");
    assert!(text.starts_with("qenv.yml requires JUMPCODE, which"), "{text}");
    assert!(text.contains("; qenv.yml requires a text that is no variable's name, which"), "{text}");
    assert!(!text.contains("marked"), "{text}");
    for content in ["required: [", "requires: []", "required: marked", "- a"] {
        let text = judged(content);
        assert!(text.starts_with("qenv.yml cannot be parsed") && !text.contains("marked"), "{text}");
    }
}

fn documentation() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/configuration.md");
    std::fs::read_to_string(path).unwrap()
}

/// CFG-03, CFG-34, CFG-46, CFG-47, CFG-48: the document names every variable, the order of the sources, the
/// restart of a changed pair, and how the bearer is given and never given.
#[test]
fn the_documentation_is_complete() {
    let text = documentation();
    for variable in Variable::ALL {
        assert!(text.contains(&format!("| `{variable}` |")), "{variable}");
    }
    let order = [
        "1. The process environment",
        "2. The `.nogit` overlay",
        "3. The systemd credential",
        "4. The Docker secret",
    ];
    let places: Vec<_> =
        order.iter().map(|line| text.find(line).unwrap_or_else(|| panic!("{line}"))).collect();
    assert!(places.is_sorted(), "{places:?}");
    for part in [
        "Setting, changing or removing the pair takes a restart",
        "LoadCredentialEncrypted=SERVEZONE_CLUSTER_RELAY_AUTHORIZATION\n",
        "LoadCredential=SERVEZONE_CLUSTER_RELAY_AUTHORIZATION:",
        "Never pass it through `Environment=`",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

/// CFG-36: the example of the documentation boots from an overlay alone, in each of the three files.
#[test]
fn an_overlay_boots_a_relay() {
    let yaml = "CLOUDLY_URL: https://cloudly.example.com\n\
                SERVEZONE_CLUSTER_RELAY_AUTHORIZATION: the-bearer-of-this-cluster-relay-credential\n\
                COREFLOW_NODE_ID: node-a\nCOREFLOW_RELAY_BIND_HOSTNAME: 192.0.2.15\nCOREFLOW_RELAY_BIND_PORT: 9443\n\
                SOMETHING_ELSE: 1.5\n";
    let json = r#"{"CLOUDLY_URL": "https://cloudly.example.com", "COREFLOW_RELAY_BIND_PORT": 9443,
        "SERVEZONE_CLUSTER_RELAY_AUTHORIZATION": "the-bearer-of-this-cluster-relay-credential",
        "COREFLOW_NODE_ID": "node-a", "COREFLOW_RELAY_BIND_HOSTNAME": "192.0.2.15"}"#;
    let text = documentation();
    let example = text.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let example = format!("{example}COREFLOW_RELAY_BIND_PORT: \"9443\"\n");
    for (name, content) in [("env.yml", &*example), ("env.yml", yaml), ("env.yaml", yaml), ("env.json", json)]
    {
        let host = Host::new();
        let mut reader = host.write(&format!("work/.nogit/{name}"), content).reader(&[]);
        let facts = reader.launch_facts().ok().unwrap();
        assert_eq!(facts.cloudly_url.origin(), "https://cloudly.example.com");
        assert_eq!(facts.bearer.expose(), b"the-bearer-of-this-cluster-relay-credential");
        let listener = reader.listener_facts().unwrap();
        assert_eq!(
            (&*listener.node_id, &*listener.bind_hostname, listener.bind_port),
            ("node-a", "192.0.2.15", 9443)
        );
    }
}

/// CFG-36, LOG-01: a broken or nested overlay is refused by its name, never by a value.
#[test]
fn an_overlay_that_is_no_flat_map_is_refused() {
    for (name, content, fault) in [
        (
            "env.json",
            "{\"A\": \"marked\",\n marked}",
            "env.json cannot be parsed at line 2, column 2; mend it",
        ),
        ("env.json", "\"marked\"", "env.json cannot be parsed at line 1, column 8; mend it"),
        ("env.json", r#"{"A": ["marked"]}"#, "env.json is not flat; give each name one plain value"),
        ("env.yml", "A:\n  marked: 1\n", "env.yml is not flat; give each name one plain value"),
        ("env.yaml", "CLOUDLY_URL: a\nCLOUDLY_URL: b\n", "env.yaml holds CLOUDLY_URL twice; keep one"),
    ] {
        let host = Host::new();
        let text = host.write(&format!("work/.nogit/{name}"), content).refusal(&BOTH).to_string();
        assert_eq!(text, fault);
    }
    let host = Host::new();
    for content in ["a: [marked", "marked", "A: !marked b\n", "A: *marked\n"] {
        let text = host.write("work/.nogit/env.yml", content).refusal(&BOTH).to_string();
        assert!(text.starts_with("env.yml cannot be parsed") && !text.contains("marked"), "{text}");
    }
    let long = format!("A: {}\n", "a".repeat(64 * 1024));
    let text = host.write("work/.nogit/env.yml", long).refusal(&BOTH).to_string();
    assert_eq!(text, "env.yml is longer than 65536 bytes; shorten it");
}

/// CFG-16: a bearer written as a number would lose its notation, so it is refused.
#[test]
fn a_bearer_in_an_overlay_is_a_string() {
    for value in ["0123", "12", "1e5", "true"] {
        let host = Host::new();
        host.write("work/.nogit/env.yml", format!("{AUTHORIZATION}: {value}\n"));
        let result = host.reader(&BOTH[..1]).launch_facts();
        match (value, result) {
            // A leading zero makes it a string in YAML.
            ("0123", Ok(facts)) => assert_eq!(facts.bearer.expose(), b"0123"),
            (_, Ok(_)) => panic!("{value} was accepted"),
            (_, Err(error)) => assert_eq!(
                error.to_string(),
                format!("{AUTHORIZATION} (from env.yml) is not written as a string; put it in quotes")
            ),
        }
    }
}

/// CFG-07: a mistake in every source at once, each with its name; a present value that cannot be used does
/// not fall through to the next source.
#[test]
fn all_mistakes_are_reported_at_once() {
    let host = Host::new();
    host.write("work/.nogit/env.json", "{")
        .write("work/qenv.yml", "[]")
        .write("credentials/SERVEZONE_CLUSTER_RELAY_AUTHORIZATION", b"marked\xff")
        .write("secrets/SERVEZONE_CLUSTER_RELAY_AUTHORIZATION", "good");
    let error = host.refusal(&[("CLOUDLY_URL", "http://marked.example.com")]);
    assert_eq!((error.missing.len(), error.mistakes.len()), (0, 4));
    let text = error.to_string();
    for part in [
        "env.json cannot be parsed",
        "qenv.yml cannot be parsed",
        "CLOUDLY_URL (from the environment) is http to a host that is not loopback; use https",
        "SERVEZONE_CLUSTER_RELAY_AUTHORIZATION (from the systemd credential) is not UTF-8 text",
    ] {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
    assert!(!text.contains("marked"), "{text}");
    assert!(!format!("{error:?}").contains("marked"));
}

/// CFG-10, CFG-16: text variables are not trimmed either, and not silently mended.
#[test]
fn a_text_with_a_line_break_or_foreign_bytes_is_refused() {
    let host = Host::new();
    host.write("credentials/CLOUDLY_URL", "https://cloudly.example.com\n");
    assert_eq!(
        host.refusal(&BOTH[1..]).to_string(),
        "CLOUDLY_URL (from the systemd credential) holds a line break or another control character; \
         store the value without it"
    );
    let mut reader = ConfigurationReader::open(Sources {
        environment: Environment::snapshot(|_| Some(OsString::from_vec(b"\xff".to_vec()))),
        qenv_directory: host.path("work"),
        overlay: None,
        credentials_directory: None,
        secrets_directory: host.path("absent"),
    });
    let mistake = reader.text(Variable::NodeId).err().unwrap();
    assert_eq!(
        mistake.to_string(),
        "COREFLOW_NODE_ID (from the environment) is not UTF-8 text; store it as UTF-8"
    );
}

/// CFG-04: a credential that is there and cannot be used is named; its size is bounded.
#[test]
fn a_credential_file_is_judged() {
    let host = Host::new();
    let name = "credentials/SERVEZONE_CLUSTER_RELAY_AUTHORIZATION";
    host.write(name, vec![b'a'; 16 * 1024 + 1]);
    let text = host.refusal(&BOTH[..1]).to_string();
    assert!(text.contains("(from the systemd credential) is longer than 16384 bytes"), "{text}");
    std::fs::remove_file(host.path(name)).unwrap();
    std::fs::create_dir(host.path(name)).unwrap();
    let text = host.refusal(&BOTH[..1]).to_string();
    assert!(text.contains("(from the systemd credential) is not a regular file"), "{text}");

    let mut reader = ConfigurationReader::open(Sources {
        environment: environment(&BOTH),
        qenv_directory: host.path("work"),
        overlay: None,
        credentials_directory: Some("credentials".into()),
        secrets_directory: host.path("secrets"),
    });
    assert_eq!(reader.launch_facts().err().unwrap().mistakes, [Mistake::CredentialsDirectory]);
}

/// CFG-01: secrets of others in the same directory do not disturb, and their number and size are bounded.
#[test]
fn foreign_secrets_are_passed_over() {
    let host = Host::new();
    host.write("secrets/a-directory/x", "")
        .write("secrets/b-broken", "{ not json")
        .write("secrets/c-list", "[1]")
        .write(
            "secrets/d-long",
            format!("{{\"COREFLOW_NODE_ID\": \"d\", \"x\": \"{}\"}}", "x".repeat(64 * 1024)),
        )
        .write("secrets/e-locked", r#"{"OTHER": "e"}"#)
        .write("secrets/f-good", r#"{"COREFLOW_NODE_ID": "f"}"#)
        .write("secrets/g-later", r#"{"COREFLOW_NODE_ID": "g"}"#);
    std::fs::set_permissions(host.path("secrets/e-locked"), PermissionsExt::from_mode(0o000)).unwrap();
    assert_eq!(host.node_id(&[]), Some(("f".into(), Source::Secret)));

    let host = Host::new();
    for place in 0..64 {
        host.write(&format!("secrets/a{place:02}"), "{}");
    }
    host.write("secrets/b", r#"{"COREFLOW_NODE_ID": "beyond"}"#);
    assert_eq!(host.node_id(&[]), None);
    std::fs::remove_file(host.path("secrets/a00")).unwrap();
    assert_eq!(host.node_id(&[]), Some(("beyond".into(), Source::Secret)));
}

/// CFG-28, CFG-29: without a relay block only the launch facts are read, so half a pair does not fail that
/// boot; with one it does.
#[test]
fn the_pair_is_judged_with_the_listener_only() {
    let mut reader = reader(&[&BOTH[..], &[("COREFLOW_VPN_QUIC_PORT", "nonsense")]].concat());
    assert!(reader.launch_facts().is_ok());
    let error = reader.listener_facts().unwrap_err();
    assert_eq!(error.missing, [Variable::NodeId, Variable::RelayBindHostname]);
    assert_eq!(error.mistakes.len(), 2);
}

/// CFG-39, START-31: a mode without overlay reads none.
#[test]
fn without_an_overlay_directory_none_is_read() {
    let host = Host::new();
    host.write(
        "work/.nogit/env.yml",
        "CLOUDLY_URL: https://a.example.com\nSERVEZONE_CLUSTER_RELAY_AUTHORIZATION: b\n",
    );
    assert!(host.reader(&[]).launch_facts().is_ok());
    let options = crate::options::Options::new(Some(host.path("work")), None, None).unwrap();
    let mut sources = Sources::of(&options, &host.path("bin"), &host.path("work"), Environment::default());
    sources.secrets_directory = host.path("secrets");
    let error = ConfigurationReader::open(sources).launch_facts().err().unwrap();
    assert_eq!(error.missing, Variable::REQUIRED);
}
