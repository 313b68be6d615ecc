//! What is a table, what is none and where, and that nothing of a table gets out.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const CHAIN: &str = "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0LWtleQ==\n-----END PRIVATE KEY-----\n";

fn table() -> Value {
    json!({
        "clusterId": "cluster-1",
        "revision": 7,
        "routes": [
            {"hostName": "a.example.com", "destinations": [{"address": "10.0.0.1", "port": 30_000}],
             "certificateId": "cert-1"},
            {"hostName": "*.example.com",
             "destinations": [{"address": "10.0.0.1", "port": 1}, {"address": "2001:db8::1", "port": 65_535}],
             "certificateId": "cert-1"},
            {"hostName": "plain.test", "destinations": [{"address": "::1", "port": 80}], "certificateId": null},
            {"hostName": "b.other.test", "destinations": [{"address": "::1", "port": 80}], "certificateId": "c2"},
        ],
        "certificates": [
            {"id": "cert-1", "domainNames": ["nobody.test", "*.Example.com"], "publicKey": CHAIN, "privateKey": KEY},
            {"id": "c2", "domainNames": ["b.other.test"], "publicKey": CHAIN,
             "privateKey": format!("-----BEGIN EC PARAMETERS-----\nBg==\n-----END EC PARAMETERS-----\n{}", KEY.replace("PRIVATE", "EC PRIVATE"))},
        ],
    })
}

fn read(text: &str) -> Result<RouteTable, InvalidTable> {
    validate_cluster_route_table(&RawValue::from_string(text.to_owned()).expect("the text is JSON"))
}

/// The path of what is wrong with the text of a table.
fn wrong(text: &str) -> String {
    read(text).err().map(|invalid| invalid.path).unwrap_or_else(|| "nothing".to_owned())
}

/// The path of what is wrong with the table in which what `pointer` points at is `value`.
fn changed(pointer: &str, value: Value) -> String {
    let mut table = table();
    *table.pointer_mut(pointer).expect("the pointer is of the table") = value;
    wrong(&table.to_string())
}

/// ING-02, ING-05: a valid table keeps its text as it was written, and states revision and size.
#[test]
fn a_valid_table_keeps_its_text() {
    let text = table().to_string().replacen("\"revision\":7", "\"revision\" : 7", 1);
    let table = read(&text).unwrap_or_else(|invalid| panic!("{}", invalid.path));
    assert_eq!(table.json_for_the_bound_ingress(), text);
    assert_eq!((table.revision().get(), table.routes(), table.certificates()), (7, 4, 2));
    let empty = r#"{"clusterId":"c","revision":9007199254740991,"routes":[],"certificates":[]}"#;
    assert!(read(empty).is_ok_and(|table| table.routes() == 0));
}

/// ING-09, ING-10: an escaped surrogate makes a text of PEM none, since no reader of the table could take it; any other
/// escape is how Cloudly wrote it, and stays.
#[test]
fn a_surrogate_is_in_no_pem() {
    let text = table().to_string();
    let with = |escape: &str| {
        text.replacen(r"-----END CERTIFICATE-----\n", &format!(r"-----END CERTIFICATE-----{escape}"), 1)
    };
    for surrogate in [r"\ud800", r"\uDFFF", r"\ud83d\ude00", r"\\\udb00"] {
        assert_eq!(wrong(&with(surrogate)), "certificates[0].publicKey", "{surrogate}");
    }
    for escape in [r"\n", r"\u000a", r"\\ud800", r"\\\\uD8", r"\uD7ff", r"\\"] {
        assert_eq!(wrong(&with(escape)), "nothing", "{escape}");
    }
}

/// ING-09, ING-10: each thing that can be wrong is named by its path.
#[test]
fn what_is_wrong_is_named_by_its_path() {
    let cases = [
        ("/clusterId", json!("a cluster"), "clusterId"),
        ("/revision", json!(-1), "revision"),
        ("/revision", json!(1.5), "revision"),
        ("/revision", json!("7"), "revision"),
        ("/revision", json!(1_u64 << 53), "revision"),
        ("/routes", json!({}), "routes"),
        ("/routes", json!(null), "routes"),
        ("/routes/1", json!(7), "routes[1]"),
        ("/routes/0/hostName", json!("A.example.com"), "routes[0].hostName"),
        ("/routes/0/hostName", json!("10.0.0.1:80"), "routes[0].hostName"),
        ("/routes/0/hostName", json!(""), "routes[0].hostName"),
        ("/routes/0/hostName", json!("*"), "routes[0].hostName"),
        ("/routes/0/hostName", json!("a.*.example.com"), "routes[0].hostName"),
        ("/routes/2/hostName", json!("a.example.com"), "routes[2].hostName"),
        ("/routes/1/destinations", json!([]), "routes[1].destinations"),
        ("/routes/1/destinations", json!("x"), "routes[1].destinations"),
        ("/routes/1/destinations/1", json!([]), "routes[1].destinations[1]"),
        ("/routes/1/destinations/1/address", json!("host.test"), "routes[1].destinations[1].address"),
        ("/routes/1/destinations/1/address", json!("[::1]"), "routes[1].destinations[1].address"),
        ("/routes/1/destinations/1/port", json!(0), "routes[1].destinations[1].port"),
        ("/routes/1/destinations/1/port", json!(65_536), "routes[1].destinations[1].port"),
        ("/routes/1/destinations/1/port", json!("80"), "routes[1].destinations[1].port"),
        ("/routes/3/certificateId", json!(7), "routes[3].certificateId"),
        ("/routes/3/certificateId", json!("absent"), "routes[3].certificateId"),
        ("/routes/3/certificateId", json!("cert-1"), "routes[3].certificateId"),
        ("/certificates", json!("x"), "certificates"),
        ("/certificates/1/id", json!(""), "certificates[1].id"),
        ("/certificates/1/id", json!("cert-1"), "certificates[1].id"),
        ("/certificates/1/domainNames", json!({}), "certificates[1].domainNames"),
        ("/certificates/1/domainNames", json!(["b.other.test", 7]), "certificates[1].domainNames[1]"),
        ("/certificates/1/publicKey", json!(KEY), "certificates[1].publicKey"),
        ("/certificates/1/publicKey", json!(null), "certificates[1].publicKey"),
        ("/certificates/0/privateKey", json!(CHAIN), "certificates[0].privateKey"),
        ("/certificates/0/privateKey", json!([KEY]), "certificates[0].privateKey"),
        (
            "/certificates/0/privateKey",
            json!(KEY.replacen("PRIVATE", "PUBLIC", 1)),
            "certificates[0].privateKey",
        ),
        ("/certificates/0/privateKey", json!(&KEY[..60]), "certificates[0].privateKey"),
    ];
    for (pointer, value, path) in cases {
        assert_eq!(changed(pointer, value.clone()), path, "{pointer} {value}");
    }
    for text in ["null", "7", "[]", "\"x\""] {
        assert_eq!(wrong(text), "routeTable", "{text}");
    }
}

/// ING-09: the objects are exact-key: a missing, an unknown and a repeated member are each named.
#[test]
fn a_missing_unknown_or_repeated_member_is_named() {
    let objects = [
        ("", "", vec!["clusterId", "revision", "routes", "certificates"]),
        ("/routes/0", "routes[0].", vec!["hostName", "destinations", "certificateId"]),
        ("/routes/0/destinations/0", "routes[0].destinations[0].", vec!["address", "port"]),
        ("/certificates/0", "certificates[0].", vec!["id", "domainNames", "publicKey", "privateKey"]),
    ];
    for (pointer, path, members) in objects {
        for member in members {
            let mut table = table();
            table.pointer_mut(pointer).and_then(Value::as_object_mut).unwrap().remove(member);
            assert_eq!(wrong(&table.to_string()), format!("{path}{member}"));
        }
        let mut table = table();
        table.pointer_mut(pointer).and_then(Value::as_object_mut).unwrap().insert("more".into(), json!(1));
        assert_eq!(wrong(&table.to_string()), format!("{path}more"));
    }
    let twice = table().to_string().replacen("\"revision\":7", "\"revision\":7,\"revision\":7", 1);
    assert_eq!(wrong(&twice), "revision");
    let foreign = table().to_string().replacen("\"port\":1}", "\"port\":1,\"a name\":1}", 1);
    assert_eq!(
        wrong(&foreign),
        "routes[1].destinations[0]",
        "what does not look like a name is not repeated"
    );
}

/// ING-09: of several things the first is named, in the contract's order.
#[test]
fn the_first_reason_is_given() {
    let mut table = table();
    table["certificates"][0]["privateKey"] = json!(1);
    assert_eq!(wrong(&table.to_string()), "certificates[0].privateKey");
    table["routes"][2]["hostName"] = json!(1);
    table["routes"][2]["destinations"] = json!([]);
    assert_eq!(wrong(&table.to_string()), "routes[2].hostName");
    table["revision"] = json!(null);
    assert_eq!(wrong(&table.to_string()), "revision");
}

/// ING-09: the certificate that a route names has to cover its host.
#[test]
fn a_wildcard_covers_one_label_and_itself() {
    for (domain, host, expected) in [
        ("a.test", "a.test", true),
        ("a.test", "b.test", false),
        ("a.test", "x.a.test", false),
        ("*.a.test", "x.a.test", true),
        ("*.a.test", "*.a.test", true),
        ("*.a.test", "y.x.a.test", false),
        ("*.a.test", "a.test", false),
        ("*.test", "test", false),
        ("*.test", "host", false),
        ("*.a.test", "*.x.a.test", false),
        ("x.a.test", "*.a.test", false),
    ] {
        assert_eq!(covers(&BTreeSet::from([domain.to_owned()]), host), expected, "{domain} {host}");
    }
}

/// Every text, number and member name of a JSON value.
fn contents(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| contents(value, found)),
        Value::Object(members) => members.values().for_each(|value| contents(value, found)),
        Value::Number(number) => found.push(number.to_string()),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Values whose texts occur in no path: they hold a character that none has.
fn material() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (1000..i64::MAX).prop_map(Value::from),
        "[a-z]{0,4}[~\u{e9} \n-][ -~]{4,60}".prop_map(Value::String),
        Just(Value::String(KEY.to_owned())),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map("[a-z]{1,8}[~ -][ -~]{1,40}", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

const POINTERS: [&str; 16] = [
    "/clusterId",
    "/revision",
    "/routes",
    "/routes/0",
    "/routes/1/hostName",
    "/routes/1/destinations",
    "/routes/1/destinations/0",
    "/routes/1/destinations/1/address",
    "/routes/1/destinations/1/port",
    "/routes/3/certificateId",
    "/certificates",
    "/certificates/0",
    "/certificates/1/id",
    "/certificates/0/domainNames",
    "/certificates/0/publicKey",
    "/certificates/0/privateKey",
];

proptest! {
    /// ING-04, ING-10: whatever stands in a table and wherever, its reason is a path of the contract's
    /// member names and positions, and holds nothing that the table holds.
    #[test]
    fn no_reason_quotes_material(
        places in prop::collection::vec((prop::sample::select(POINTERS.to_vec()), material()), 1..4),
        member in prop::option::of("[ -~]{0,80}"),
    ) {
        let mut table = table();
        for (pointer, value) in places {
            if let Some(place) = table.pointer_mut(pointer) {
                *place = value;
            }
        }
        if let (Some(member), Some(Value::Object(route))) = (&member, table.pointer_mut("/routes/2")) {
            route.insert(member.clone(), json!(1));
        }
        let Err(invalid) = read(&table.to_string()) else { return Ok(()) };
        let path = invalid.path;
        prop_assert!(path.len() <= 64, "{path}");
        prop_assert!(path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".[]".contains(&byte)), "{path}");
        let mut material = Vec::new();
        contents(&table, &mut material);
        for text in material.iter().filter(|text| text.len() > 3) {
            prop_assert!(!path.contains(text.as_str()), "{path} holds {text}");
        }
    }
}
