//! The figures of a real relay, read by a strict reader of OpenMetrics 1.0 that knows nothing of how they were
//! written.

use std::collections::{BTreeMap, BTreeSet};

use super::opened;

/// The samples of a text, by their name with its labels; a text that is no OpenMetrics is what is wrong with it.
fn read(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end with # EOF")?;
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let mut family: Option<(String, String)> = None;
    let mut told = BTreeSet::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let [word, name, rest] = comment.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                return Err(format!("no descriptor: {line}"));
            };
            if family.as_ref().is_none_or(|(current, _)| current != name) {
                if word != "TYPE" || !families.insert(name.to_owned()) || !is_name(name) {
                    return Err(format!("a family that begins wrongly, or twice: {line}"));
                }
                told.clear();
            }
            if !told.insert(word.to_owned()) {
                return Err(format!("twice: {line}"));
            }
            match word {
                "TYPE" if ["gauge", "counter", "info"].contains(&rest) => {
                    family = Some((name.to_owned(), rest.to_owned()));
                }
                "HELP" if !rest.is_empty() => {}
                "UNIT" if name.ends_with(&format!("_{rest}")) => {}
                _ => return Err(format!("no descriptor: {line}")),
            }
            continue;
        }
        let (of, value) = line.rsplit_once(' ').ok_or(format!("no value: {line}"))?;
        let (name, labels) = of.split_once('{').map_or((of, None), |(name, labels)| (name, Some(labels)));
        let (current, kind) = family.as_ref().ok_or(format!("a sample of no family: {line}"))?;
        let suffix = match kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        if name != format!("{current}{suffix}") {
            return Err(format!("a sample of another family: {line}"));
        }
        if let Some(labels) = labels {
            are_labels(labels).ok_or(format!("no labels: {line}"))?;
        }
        let value: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
        if !value.is_finite() || kind != "gauge" && value < 0.0 || kind == "info" && value != 1.0 {
            return Err(format!("a value that none may have: {line}"));
        }
        if samples.insert(of.to_owned(), value).is_some() {
            return Err(format!("a sample twice: {line}"));
        }
    }
    Ok(samples)
}

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    first && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// `name="value",…}` with values in which nothing stands that has to be escaped.
fn are_labels(labels: &str) -> Option<()> {
    for label in labels.strip_suffix('}')?.split(',') {
        let (name, value) = label.split_once('=')?;
        let value = value.strip_prefix('"')?.strip_suffix('"')?;
        let plain = !value.is_empty() && !value.contains(['"', '\\', '\n']);
        (is_name(name) && plain).then_some(())?;
    }
    Some(())
}

/// The reader refuses what is none, so that what it takes is one.
#[test]
fn the_reader_of_figures_refuses_what_is_none() {
    let family = "# TYPE a counter\n# HELP a Help.\n";
    let good = format!(
        "{family}a_total{{b=\"c\"}} 1\n# TYPE d_seconds gauge\n# UNIT d_seconds seconds\nd_seconds 1.5\n# EOF\n"
    );
    assert_eq!(read(&good).unwrap().len(), 2);
    for wrong in [
        family.to_owned(),
        format!("{family}a 1\n# EOF\n"),
        format!("{family}a_total 1\na_total 2\n# EOF\n"),
        format!("{family}a_total -1\n# EOF\n"),
        format!("{family}a_total one\n# EOF\n"),
        format!("{family}a_total{{b=\"c}} 1\n# EOF\n"),
        format!("{family}{family}# EOF\n"),
        format!("{family}# UNIT a seconds\n# EOF\n"),
        "a_total 1\n# EOF\n".to_owned(),
        format!("{family}a_total 1\n\n# EOF\n"),
    ] {
        assert!(read(&wrong).is_err(), "{wrong}");
    }
}

/// OPS-02: the figures of a relay that serves are OpenMetrics, tell what is so, and name no node; a restart by command
/// is counted as what it is.
#[tokio::test]
async fn the_figures_are_open_metrics() {
    let (scene, _) = opened().await;
    let _nodes = [scene.node("node-1").await, scene.node("node-2").await];
    assert_eq!(scene.relay.ctl(&["restart", "pulld"]).await.code, Some(0));
    let said = scene.relay.ctl(&["metrics"]).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let samples = read(&said.stdout).unwrap_or_else(|wrong| panic!("{wrong}\n{}", said.stdout));
    for (name, value) in [
        ("coreflow_ready", 1.0),
        ("coreflow_build_info{version=\"33.1.0\"}", 1.0),
        ("coreflow_nodes_carried", 2.0),
        ("coreflow_session_dispatchable", 1.0),
        ("coreflow_restarts_by_command_total", 1.0),
        ("coreflow_worker_restarts_total{worker=\"pulld\"}", 0.0),
        ("coreflow_worker_answering{worker=\"relayd\"}", 1.0),
        ("coreflow_worker_running{worker=\"vpnd\"}", 1.0),
        ("coreflow_registrations_total", 2.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}\n{}", said.stdout);
    }
    assert!(samples["coreflow_worker_resident_memory_bytes{worker=\"relayd\"}"] > 1e6);
    assert!(samples["coreflow_identity_exchanges_total{outcome=\"granted\"}"] >= 1.0);
    assert!(!said.stdout.contains("node-1"));
}
