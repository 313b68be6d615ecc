//! A hold's validation, member by member.

use super::*;

const NOW: u64 = 1_800_000_000_000;
/// The longest window, in milliseconds.
const QUARTER: u64 = 15 * 60 * 1000;
const SESSION: &str = r#"{"sessionId":"s","nodeId":"n","clusterId":"c","generation":1}"#;

fn projection() -> String {
    format!(r#"{{"id":"p","generation":3,"digest":"sha256:{}"}}"#, "0f".repeat(32))
}

/// Two renewals that are valid, as one text each.
fn renewals() -> [String; 2] {
    [(4, 0), (9, 600_000)].map(|(sequence, from)| {
        let (not_before, expires_at) = (NOW + from, NOW + from + QUARTER);
        format!(
            r#"{{"projection":{},"nodeId":"n","clusterId":"c","sequence":{sequence},"notBefore":{not_before},"expiresAt":{expires_at},"signature":"c2lnbg=="}}"#,
            projection()
        )
    })
}

fn hold(renewals: &[String]) -> String {
    format!(r#"{{"session":{SESSION},"projection":{},"renewals":[{}]}}"#, projection(), renewals.join(","))
}

fn validate(body: &str) -> Result<Hold, String> {
    validate_hold(&Body::from_json(body.to_owned()), NOW).map_err(|invalid| invalid.to_string())
}

fn path(body: &str) -> String {
    validate(body).map(|_| "valid".to_owned()).unwrap_or_else(|path| path)
}

/// ESC-02, ESC-03: each renewal is kept as the text that arrived.
#[test]
fn a_valid_hold_keeps_each_renewal_as_it_arrived() {
    let [first, second] = renewals();
    let second = second.replace(r#""sequence":9"#, r#" "sequ\u0065nce" :  9 "#);
    let hold = validate(&hold(&[first.clone(), second.clone()])).ok().unwrap();
    let texts: Vec<&str> = hold.run.renewals.iter().map(|renewal| renewal.text.text()).collect();
    assert_eq!(texts, [first, second]);
    let sequences: Vec<u64> = hold.run.renewals.iter().map(|renewal| renewal.sequence.get()).collect();
    assert_eq!((sequences, hold.session.node_id.as_str()), (vec![4, 9], "n"));
}

/// ESC-08: exact keys, at each place, and the path of what is not.
#[test]
fn a_member_that_is_missing_unknown_or_unreadable_is_named_by_its_path() {
    let [first, second] = renewals();
    let valid = hold(&[first.clone(), second.clone()]);
    for (from, to, expected) in [
        ("\"session\":{", "\"session\":[{", "request"),
        ("{\"session\"", "{\"more\":1,\"session\"", "request"),
        ("{\"session\"", "{\"projection\":1,\"session\"", "request"),
        ("\"sessionId\":\"s\",", "", "session"),
        ("\"sessionId\":\"s\",", "\"sessionId\":\"s\",\"more\":1,", "session"),
    ] {
        assert_eq!(path(&valid.replacen(from, to, 1)), expected, "{to}");
    }
    assert_eq!(path("[]"), "request");
    let without_projection = format!(r#"{{"session":{SESSION},"renewals":[]}}"#);
    assert_eq!(path(&without_projection), "projection");
    assert_eq!(path(&format!(r#"{{"session":{SESSION},"projection":{}}}"#, projection())), "renewals");
    assert_eq!(path(&hold(&["1".into()])), "renewals[0]");
    for digest in ["sha256:0F", "sha512:0f", "sha256:0g"] {
        assert_eq!(path(&valid.replacen("sha256:0f", digest, 1)), "projection", "{digest}");
    }
    for (from, to, expected) in [
        ("\"nodeId\":\"n\"", "\"nodeId\":\"n\",\"more\":1", "renewals[1]"),
        ("\"nodeId\":\"n\"", "\"nodeId\":\"n\",\"nodeId\":\"n\"", "renewals[1]"),
        ("\"nodeId\":\"n\",", "", "renewals[1].nodeId"),
        ("\"nodeId\":\"n\"", "\"nodeId\":\"é\"", "renewals[1].nodeId"),
        ("\"clusterId\":\"c\"", "\"clusterId\":null", "renewals[1].clusterId"),
        ("\"sequence\":9", "\"sequence\":9007199254740992", "renewals[1].sequence"),
        ("\"sequence\":9", "\"sequence\":9.0", "renewals[1].sequence"),
        ("\"signature\":\"c2lnbg==\"", "\"signature\":\"c2lnbg\"", "renewals[1].signature"),
        ("\"signature\":\"c2lnbg==\"", "\"signature\":1", "renewals[1].signature"),
        (",\"signature\":\"c2lnbg==\"", "", "renewals[1].signature"),
        ("\"generation\":3", "\"generation\":4", "renewals[1].projection"),
        ("\"id\":\"p\"", "\"id\":\"q\"", "renewals[1].projection"),
        ("sha256:0f", "sha256:1f", "renewals[1].projection"),
    ] {
        let changed = second.replacen(from, to, 1);
        assert_ne!(changed, second, "{from}");
        assert_eq!(path(&hold(&[first.clone(), changed])), expected, "{to}");
    }
}

/// ESC-08, ESC-24: a digest is 64 lower-case hex digits, of which each counts.
#[test]
fn a_digest_is_64_lower_case_hex_digits() {
    for byte in 0..=255_u8 {
        let digest = Digest::parse(&format!("sha256:{}{byte:02x}", "3c".repeat(31))).unwrap();
        assert_eq!((digest.0[30], digest.0[31]), (0x3c, byte));
    }
    for digits in ["", &"0f".repeat(31), &"0f".repeat(33), &format!("{}0", "0f".repeat(31)), &"0F".repeat(32)]
    {
        assert_eq!(Digest::parse(&format!("sha256:{digits}")), None, "{digits}");
    }
}

/// ESC-08, ESC-60: `sequence` and `notBefore` rise strictly, and no window is empty or longer than 15 minutes.
#[test]
fn windows_and_sequences_rise() {
    let [first, second] = renewals();
    let of = |name: &str, from: u64, to: u64| {
        path(&hold(&[
            first.clone(),
            second.replace(&format!(r#""{name}":{from}"#), &format!(r#""{name}":{to}"#)),
        ]))
    };
    let (start, end) = (NOW + 600_000, NOW + 600_000 + QUARTER);
    assert_eq!(of("sequence", 9, 4), "renewals[1].sequence");
    assert_eq!(of("sequence", 9, 3), "renewals[1].sequence");
    assert_eq!(of("sequence", 9, 5), "valid");
    assert_eq!(of("notBefore", start, NOW), "renewals[1].notBefore");
    assert_eq!(of("notBefore", start, NOW - 1), "renewals[1].notBefore");
    assert_eq!(of("notBefore", start, start - 1), "renewals[1].expiresAt", "a window of over 15 minutes");
    assert_eq!(of("notBefore", start, start + 1), "valid");
    assert_eq!(of("expiresAt", end, start), "renewals[1].expiresAt");
    assert_eq!(of("expiresAt", end, start + 1), "valid");
    assert_eq!(of("expiresAt", end, end + 1), "renewals[1].expiresAt");
    assert_eq!(of("expiresAt", end, start - 1), "renewals[1].expiresAt");
    assert_eq!(of("notBefore", start, 1 << 53), "renewals[1].notBefore");
    assert_eq!(of("notBefore", start, (1 << 53) - 1), "renewals[1].expiresAt", "no window ends later");
    let third = |sequence: u64, from: u64| {
        let text = second.replace(r#""sequence":9"#, &format!(r#""sequence":{sequence}"#));
        let text = text.replace(&format!(r#""notBefore":{start}"#), &format!(r#""notBefore":{from}"#));
        path(&hold(&[first.clone(), second.clone(), text]))
    };
    assert_eq!(third(8, start + 1), "renewals[2].sequence", "the one before counts, not the first");
    assert_eq!(third(10, start), "renewals[2].notBefore");
    assert_eq!(third(10, start + 1), "valid");
}

/// ESC-09, ESC-10: 32 renewals, and four hours from the relay's clock.
#[test]
fn a_run_has_at_most_32_renewals_within_the_horizon() {
    let [first, _] = renewals();
    let many = |count: u64| -> Vec<String> {
        (0..count)
            .map(|index| {
                first
                    .replace(r#""sequence":4"#, &format!(r#""sequence":{index}"#))
                    .replace(&format!(r#""notBefore":{NOW}"#), &format!(r#""notBefore":{}"#, NOW + index))
            })
            .collect()
    };
    assert_eq!(path(&hold(&[])), "valid");
    assert_eq!(path(&hold(&many(32))), "valid");
    assert_eq!(path(&hold(&many(33))), "renewals");
    let (start, end) = (NOW + ESCROW_HORIZON_MS - 1000, NOW + ESCROW_HORIZON_MS);
    let at = |end: u64| {
        let window = format!(r#""notBefore":{start},"expiresAt":{end}"#);
        let old = format!(r#""notBefore":{NOW},"expiresAt":{}"#, NOW + QUARTER);
        path(&hold(&[first.replace(&old, &window)]))
    };
    assert_eq!((at(end), at(end + 1)), ("valid".into(), "renewals[0].expiresAt".into()));
}
