//! What each worker may do, for a reviewer to read in a minute. Every worker may compute, allocate, run
//! threads, wait, read and write what it holds, and receive descriptors over its links; nobody may open a
//! file, execute, fork, bind or listen (ARC-11, ARC-12, ARC-21). Beyond that:
//!
//! | worker | outbound TCP | accepts | socket pairs | datagrams | open files |
//! | --- | --- | --- | --- | --- | --- |
//! | relayd | Cloudly's port | yes | yes | no | 65536 |
//! | pulld | no | no | yes | no | 8192 |
//! | vpnd | no | no | yes | on the socket it was handed | 64 |

/// The rights of one worker. Everything not named here is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The worker, as logs name it.
    pub worker: &'static str,
    /// The TCP ports it may connect to, any host; empty means no new socket of any family.
    pub connect_ports: Vec<u16>,
    /// Accepts connections on a listener it was handed.
    pub accepts: bool,
    /// Makes pairs of connected Unix stream sockets: relayd hands one end to another worker, and the
    /// runtime of any worker may make one for itself. A pair reaches nobody who was not given an end.
    pub socket_pairs: bool,
    /// Sends and receives datagrams, one or many per call, on a socket it was handed.
    pub datagrams: bool,
    /// The most open files; the hard limit where that is lower.
    pub open_files: u64,
}

impl Profile {
    /// `coreflow-relayd`: the session with Cloudly on `cloudly_port`, and everybody who dials the relay.
    pub fn relayd(cloudly_port: u16) -> Self {
        Self {
            worker: "relayd",
            connect_ports: vec![cloudly_port],
            accepts: true,
            socket_pairs: true,
            datagrams: false,
            open_files: 65536,
        }
    }

    /// `coreflow-pulld`: it makes no socket. The supervisor connects to the registry and hands it the connections,
    /// and relayd hands it an end for each body, so that its open files are its pulls (ARC-15).
    pub fn pulld() -> Self {
        Self {
            worker: "pulld",
            connect_ports: Vec::new(),
            accepts: false,
            socket_pairs: true,
            datagrams: false,
            open_files: 8192,
        }
    }

    /// `coreflow-vpnd`: the UDP socket it was handed.
    pub fn vpnd() -> Self {
        Self {
            worker: "vpnd",
            connect_ports: Vec::new(),
            accepts: false,
            socket_pairs: true,
            datagrams: true,
            open_files: 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The profile as a row of the tables that people read.
    fn row(profile: &Profile) -> String {
        let yes = |right: bool| if right { "yes" } else { "no" };
        // relayd's one port is known at its start.
        let dials = match profile.connect_ports.as_slice() {
            [] => "no",
            [_] => "Cloudly's port",
            _ => "ports",
        };
        let datagrams = if profile.datagrams { "on the socket it was handed" } else { "no" };
        let (accepts, pairs) = (yes(profile.accepts), yes(profile.socket_pairs));
        format!(
            "| {} | {dials} | {accepts} | {pairs} | {datagrams} | {} |",
            profile.worker, profile.open_files
        )
    }

    /// ARC-21: what the document and this file's head say of each worker is what it may do.
    #[test]
    fn the_tables_say_what_the_profiles_allow() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/isolation.md");
        let document = std::fs::read_to_string(document).unwrap();
        for profile in [Profile::relayd(443), Profile::pulld(), Profile::vpnd()] {
            let row = row(&profile);
            assert!(document.contains(&row), "docs/isolation.md lacks {row}");
            assert!(include_str!("profile.rs").contains(&format!("//! {row}")), "the head lacks {row}");
        }
    }
}
