//! What an operator has to know of a deployment is stated where an operator reads, and the license ships
//! (OPS, LIS-21). A statement that is reworded away fails here by its number.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

/// A file's text with every run of white space as one space, so that line breaks do not matter.
fn read(path: &str) -> String {
    let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text of the guide's section under `heading`, up to the next heading of its level or above.
fn section(heading: &str) -> String {
    let guide = fs::read_to_string(root().join("docs/operator-guide.md")).expect("the guide is text");
    let level = heading.split(' ').next().expect("a heading begins with its level").len();
    let mut lines = guide.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "the guide has no section {heading}");
    let ends = |line: &str| {
        line.starts_with('#') && line.split(' ').next().is_some_and(|marks| marks.len() <= level)
    };
    let text: Vec<&str> = lines.take_while(|line| !ends(line)).flat_map(str::split_whitespace).collect();
    text.join(" ")
}

#[track_caller]
fn assert_states(text: &str, statements: &[&str]) {
    for statement in statements {
        assert!(text.contains(statement), "not stated: {statement}\nin: {text}");
    }
}

/// OPS-01: no upgrade in place from 3.5.x; cluster and Cloudly together, one cluster after the other; Cloudly 32
/// first. OPS-02: what a relay does that faces an older Cloudly.
#[test]
fn the_upgrade_from_the_reconciler_is_a_cutover() {
    assert_states(
        &section("## Upgrading"),
        &[
            "**From 3.5.x:** not in place",
            "Cluster and Cloudly move together, one cluster after the other",
            "Cloudly 32 first, then this relay and the cluster's nodes",
            "stays up, is not ready, and its status shows the refused protocol",
        ],
    );
}

/// OPS-03, OPS-05, OPS-06: `spark asdaemon` cannot start this relay; whoever has the bearer deploys the image,
/// with the variable in the secret of the service; without Docker the host release runs as a unit.
#[test]
fn who_deploys_the_relay_and_how_is_stated() {
    assert_states(
        &section("### Where there is Docker and no systemd"),
        &[
            "The path `spark asdaemon` cannot start this relay",
            "its secret `coreflowSecret` holds `SERVEZONE_ENVIRONMENT`, `CLOUDLY_URL` and `JUMPCODE` only",
            "the start fails naming `SERVEZONE_CLUSTER_RELAY_AUTHORIZATION`",
            "the bearer as the secret `SERVEZONE_CLUSTER_RELAY_AUTHORIZATION` of the service; whoever holds the \
             bearer deploys it",
        ],
    );
    assert_states(
        &section("## Install"),
        &[
            "Where there is no Docker, this host release runs as a unit and gets the bearer as a systemd credential",
        ],
    );
    assert_states(
        &section("## The credential"),
        &["`LoadCredentialEncrypted=SERVEZONE_CLUSTER_RELAY_AUTHORIZATION`"],
    );
}

/// OPS-07, OPS-08, OPS-09: one relay for each cluster, enrollment past the relay, and the variables that Spark
/// does not pass.
#[test]
fn the_place_of_the_relay_in_its_cluster_is_stated() {
    let install = section("## Install");
    assert_states(
        &install,
        &[
            "There is one relay for each cluster",
            "A node is enrolled through Spark, which talks to Cloudly directly and not through the relay",
            "Spark passes none of `COREFLOW_NODE_ID`, `COREFLOW_RELAY_BIND_HOSTNAME` and `COREFLOW_RELAY_BIND_PORT` \
             yet; a relayed cluster needs them placed in the service's environment",
        ],
    );
    for variable in ["COREFLOW_NODE_ID=", "COREFLOW_RELAY_BIND_HOSTNAME=", "COREFLOW_RELAY_BIND_PORT="] {
        assert!(install.contains(variable), "{variable} is in the example");
    }
}

/// ESC-62, ESC-63, ESC-64, ESC-65, ESC-66: what the escrow covers and what it does not.
#[test]
fn what_the_escrow_covers_is_stated() {
    assert_states(
        &section("## When Cloudly is away"),
        &[
            "an unreachable Cloudly with a reachable internet: a node without a sample of its NTS-qualified clock \
             accepts no new window",
            "It extends DNS only: no managed-VPN credential is renewed",
            "A restart of the relay during an outage loses what it held, and a node that restarts cannot register",
            "keeps its DNS authority until the last held window ends, at most four hours; until then Cloudly may \
             not give its addresses and names to anybody else",
            "Two live relays of a cluster can only offer the same signed renewals, which nodes treat as replays",
        ],
    );
}

/// OUT-21: what of a cluster goes on without Cloudly, and what is not offered.
#[test]
fn what_continues_without_cloudly_is_stated() {
    assert_states(
        &section("## When Cloudly is away"),
        &[
            "Continuity of DNS comes from the escrow",
            "Continuity of managed tunnels is not offered, because only Cloudly can issue the next credential after a \
             carrier left",
        ],
    );
}

/// LIS-21: a changed relay block takes a restart, which is Spark's, and a node follows a moved relay only after
/// Spark rewrote its identity.
#[test]
fn what_adopts_a_changed_relay_block_is_stated() {
    assert_states(
        &section("## Restart, stop, exit codes"),
        &[
            "A restart is what adopts a change",
            "a changed relay block (Spark restarts the relay and rewrites the nodes' identity; a node follows a \
             moved relay only then)",
        ],
    );
}

/// OPS-10, OPS-11: private and part of the platform; MIT, with the license file where it ships.
#[test]
fn the_package_is_private_and_its_source_is_mit() {
    let statements = ["The package is private and ships with the serve.zone platform"];
    assert_states(
        &section("## License"),
        &["The source is under the MIT license, and its text ships as `license`"],
    );
    assert_states(&section("## License"), &statements);
    assert_states(&read("README.md"), &statements);
    let license = read("LICENSE");
    assert_states(
        &license,
        &[
            "MIT License Copyright (c)",
            "Permission is hereby granted, free of charge, to any person obtaining a copy",
            "The above copyright notice and this permission notice shall be included in all copies",
            "THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND",
        ],
    );
    assert!(license.starts_with("MIT License"));
    // Every package says so too, and none can be published.
    let workspace = read("Cargo.toml");
    assert_states(&workspace, &["license = \"MIT\"", "publish = false"]);
    let members =
        workspace.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).expect("members");
    let mut packages = 0;
    for member in
        members.split(',').map(|member| member.trim().trim_matches('"')).filter(|name| !name.is_empty())
    {
        assert_states(
            &read(&format!("{member}/Cargo.toml")),
            &["license.workspace = true", "publish.workspace = true"],
        );
        packages += 1;
    }
    assert!(packages >= 6, "{packages} packages");
    // The commands of an installation take the whole release directory, in which the license is.
    let copied = "cp --recursive --preserve=mode --no-target-directory dist_relay/linux-amd64 /opt/coreflow";
    assert_states(&read("README.md"), &[copied]);
    assert_states(&read("release/src/declared.rs"), &["(\"license\", \"LICENSE\")"]);
}

/// VPN-38, VPN-39, VPN-43: where the hub's address has to lie, what has to reach it, and what losing the hub is and is not.
#[test]
fn what_the_managed_vpn_needs_and_costs_is_stated() {
    assert_states(
        &section("## The managed VPN"),
        &[
            "has to lie in the plan's `vpn.hubPrefix`, which Cloudly sets with `configureManagedVpn`",
            "A hub outside of it registers all the same, but is not selected, and its nodes get no membership",
            "Every node needs UDP to that address and port: open firewalls and routes for it, and publish the port as UDP \
             where a container has a network of its own",
            "until then the nodes have no data plane among each other, and what runs on them runs on",
            "they fetch their credential again at their next reconcile",
        ],
    );
}

/// REL-02, REL-03: Spark supervises the release as a unit, and the image remains the second way: it is the staged release,
/// runs as a user without a name, and is started without arguments.
#[test]
fn the_two_ways_to_ship_the_relay_are_stated() {
    assert_states(
        &section("## Install"),
        &["Spark installs the release and supervises it as a systemd unit"],
    );
    let docker = section("### Where there is Docker and no systemd");
    assert_states(&docker, &["The image remains a second way to ship the relay"]);
    let recipe = fs::read_to_string(root().join("Containerfile")).expect("the recipe is text");
    let steps: Vec<&str> = recipe.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    for step in [
        "FROM scratch",
        "COPY . /opt/coreflow/",
        "USER 65532:65532",
        "ENTRYPOINT [\"/opt/coreflow/coreflow\"]",
    ] {
        assert!(steps.contains(&step), "{step}");
    }
    assert!(!steps.iter().any(|step| step.starts_with("RUN ") || step.starts_with("CMD ")), "{steps:?}");
}
