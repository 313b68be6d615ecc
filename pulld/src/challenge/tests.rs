use proptest::prelude::*;

use super::*;

const REGISTRY: &str = "https://registry.test";
const RELAY: &str = "https://relay.test:8443";

fn rewrite(line: &str) -> (String, Vec<Realm>) {
    let registry = Origin::parse(REGISTRY).unwrap();
    let (out, found) = rewritten(line.as_bytes(), &registry, RELAY);
    (String::from_utf8(out).unwrap(), found)
}

fn own() -> Vec<Realm> {
    vec![Realm::Own { served: true }]
}

fn foreign(origin: &str) -> Vec<Realm> {
    vec![Realm::Foreign(Origin::parse(origin).unwrap())]
}

/// PULL-10, PULL-11, PULL-12: the realm's origin moves, the rest of the realm, `service` and the scope stay.
#[test]
fn the_realms_origin_moves_and_nothing_else() {
    let line = r#"Bearer realm="https://registry.test/v2/token?x=1",service="https://registry.test",scope="repository:a/b:pull,push""#;
    let moved = r#"Bearer realm="https://relay.test:8443/v2/token?x=1",service="https://registry.test",scope="repository:a/b:pull,push""#;
    assert_eq!(rewrite(line), (moved.to_owned(), own()));
}

/// PULL-10: whatever the order, the letter case, the spaces and the escapes.
#[test]
fn a_realm_is_found_in_every_form() {
    for (line, moved) in [
        (
            r#"bearer service="s", Realm="https://registry.test/v2/t""#,
            r#"bearer service="s", Realm="https://relay.test:8443/v2/t""#,
        ),
        (
            r#"Basic realm="files", Bearer realm = "HTTPS://Registry.Test:443/v2/t" ,service=s"#,
            r#"Basic realm="files", Bearer realm = "https://relay.test:8443/v2/t" ,service=s"#,
        ),
        (
            r#"Negotiate abc/d==, ,Bearer REALM="https:\/\/registry.test\/v2\/t", x="a\"b, realm=c""#,
            r#"Negotiate abc/d==, ,Bearer REALM="https://relay.test:8443\/v2\/t", x="a\"b, realm=c""#,
        ),
        (
            r#"Negotiate,Basic realm="https://registry.test/v2/t",Bearer realm="https://registry.test:0443/v2/u""#,
            r#"Negotiate,Basic realm="https://relay.test:8443/v2/t",Bearer realm="https://relay.test:8443/v2/u""#,
        ),
    ] {
        assert_eq!(rewrite(line).0, moved);
    }
}

/// PULL-13: a realm of another origin stays, and is named with its origin alone.
#[test]
fn a_foreign_realm_stays() {
    for (line, origin) in [
        (r#"Bearer realm="https://auth.test/token?secret",service="s""#, "https://auth.test"),
        (r#"Bearer realm="https://registry.test.evil.test/v2/t""#, "https://registry.test.evil.test"),
        (r#"Bearer realm="https://registry.test:4430/v2/t""#, "https://registry.test:4430"),
        (r#"Bearer realm="http://registry.test/v2/t""#, "http://registry.test"),
        (r#"Bearer realm="https://auth.test/?https://registry.test/v2/t""#, "https://auth.test"),
    ] {
        assert_eq!(rewrite(line), (line.to_owned(), foreign(origin)), "{line}");
    }
}

/// PULL-11, PULL-13: what names no URL, or one with a user, or is no challenge at all, passes as it is.
#[test]
fn what_is_no_url_or_no_challenge_stays() {
    for line in [
        r#"Basic realm="Registry Realm""#,
        r#"Bearer realm="https://registry.test@evil.test/v2/t""#,
        r#"Bearer realm="https://user@registry.test/v2/t""#,
        r#"Bearer realm="/v2/token",service="https://registry.test""#,
        r#"Bearer xrealm="https://registry.test/v2/t""#,
        r#"Bearer realm="https://registry.test/v2/t"#,
        r#"Bearer realm=https://registry.test/v2/t"#,
        r#"realm="https://registry.test/v2/t""#,
        r#"Bearer note="x" realm="https://registry.test/v2/t""#,
        r#"Bearer"realm="https://registry.test/v2/t""#,
        r#"Bearer note="realm=\"https://registry.test/v2/t\"""#,
        "",
        "=",
        "Bearer =",
        "Bearer realm=\"\\",
    ] {
        assert_eq!(rewrite(line), (line.to_owned(), Vec::new()), "{line}");
    }
}

/// PULL-10, PULL-11: a fault in the line stops the reading there; the realm before it moves, because clients keep
/// what stands before a fault too.
#[test]
fn a_realm_before_a_fault_moves() {
    for rest in [
        " service=\"x\"",
        "x",
        ",error=",
        ",scope=",
        ",=x",
        ",service=\"x\";",
        ",error=insufficient/scope",
        ",service=\"x",
        ",service=\"x\\",
        ",Bearer",
        ", Bearer realm=\"https://registry.test/v2/t",
        " realm=\"https://registry.test/v2/t\"",
    ] {
        let (moved, found) = rewrite(&format!("Bearer realm=\"{REGISTRY}/v2/t\"{rest}"));
        assert_eq!(moved, format!("Bearer realm=\"{RELAY}/v2/t\"{rest}"));
        assert_eq!(found, own(), "{rest}");
    }
    let line = |origin: &str| format!("Basic realm=\"{origin}/v2/t\", Bearer realm=\"{origin}/v2/u\" x");
    assert_eq!(rewrite(&line(REGISTRY)).0, line(RELAY));
}

/// PULL-31: a realm that the listener does not serve is moved all the same, and told apart.
#[test]
fn a_realm_outside_v2_is_told_apart() {
    for path in ["/token", "", "?x=/v2/", "/v2", "/v2/../t", "/v2/a;b", "/v2/%2e%2e/t", "/v2/./t"] {
        let (moved, found) = rewrite(&format!("Bearer realm=\"{REGISTRY}{path}\""));
        assert_eq!(moved, format!("Bearer realm=\"{RELAY}{path}\""));
        assert_eq!(found, [Realm::Own { served: false }], "{path}");
    }
    for path in ["/v2/token", "/v2/token?a=%2e;..", "/v2/a..b#/../x"] {
        assert_eq!(rewrite(&format!("Bearer realm=\"{REGISTRY}{path}\"")).1, own(), "{path}");
    }
}

prop_compose! {
    /// A list of challenges; the realm's place is marked by what no other part has.
    fn line()(
        before in "((Basic realm=\"x\"|Negotiate|Digest abc==|Foo a=b, c=\"d\\\\\"e\")[ ]?,[ ]?)?",
        scheme in "[Bb]earer|BASIC|X-Y",
        first in "(service=\"https://registry\\.test\"[ ]?,[ ]?)?",
        name in "realm|Realm|REALM",
        after in "(, ?scope=\"repository:a/b:pull,push\")?( ?, Basic)?",
    ) -> (String, String) {
        (format!("{before}{scheme} {first}{name}=\""), format!("\"{after}"))
    }
}

proptest! {
    /// PULL-10, PULL-11: of any challenge the origin in the realm moves and every other byte stays; done
    /// again, nothing moves.
    #[test]
    fn every_byte_outside_the_origin_stays((before, after) in line(), path in "(/v2/[a-z?=&]{0,20})?") {
        let (moved, _) = rewrite(&format!("{before}{REGISTRY}{path}{after}"));
        prop_assert_eq!(&moved, &format!("{before}{RELAY}{path}{after}"));
        let (again, found) = rewrite(&moved);
        prop_assert_eq!(again, moved);
        prop_assert!(found.contains(&Realm::Foreign(Origin::parse(RELAY).unwrap())));
    }

    /// PULL-10, PULL-11: whatever follows a challenge and its realm, that moves.
    #[test]
    fn a_realm_moves_whatever_follows((before, after) in line(), rest in "[ ,;=\"\\\\/a-z]{0,20}") {
        let (moved, _) = rewrite(&format!("{before}{REGISTRY}/v2/t{after}{rest}"));
        prop_assert_eq!(moved, format!("{before}{RELAY}/v2/t{after}{rest}"));
    }

    /// Any bytes pass without a panic, and those that do not name the registry pass unchanged.
    #[test]
    fn any_bytes_pass(line in prop::collection::vec(any::<u8>(), 0..200)) {
        let registry = Origin::parse(REGISTRY).unwrap();
        prop_assert_eq!(rewritten(&line, &registry, RELAY).0, line);
    }

    /// The same of what is made of the grammar's own pieces, in any order: what comes out differs from what
    /// came in by moved origins alone.
    #[test]
    fn any_pieces_pass(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "Bearer", "Basic", " ", ",", "=", "\"", "\\", "realm", "service", REGISTRY, "/v2/t", "x", "@", ":",
            ]),
            0..24,
        ),
    ) {
        let line = pieces.concat();
        let (moved, _) = rewrite(&line);
        prop_assert_eq!(moved.replace(RELAY, REGISTRY), line);
    }
}
