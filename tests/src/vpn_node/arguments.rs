//! The command line of the node program: words of the form `name=value`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use coreflow_ipc::messages::vpn_network::Prefix;

use crate::vpn_stand::{keys, network};

/// The inner MTU that is wished for where the command line says nothing.
const MTU: u16 = 1380;
/// The longest name of a device (`IFNAMSIZ` without its zero byte).
const LONGEST_NAME: usize = 15;

/// What the node is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// Where the hub is.
    pub hub: SocketAddr,
    /// Its public key.
    pub hub_key: [u8; 32],
    /// The file of the node's private key, mode 0600.
    pub key: PathBuf,
    /// The name of the TUN device.
    pub tun: String,
    /// The wished inner MTU, bytes.
    pub mtu: u16,
    /// What to reach through the device beside the control prefix.
    pub routes: Vec<Prefix>,
    /// What to bind; any address and port by default.
    pub local: Option<SocketAddr>,
}

/// A command line the node cannot start by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\nusage: coreflow-vpn-node hub=<address:port> hub-key=<base64> key=<file> tun=<name> \
             [mtu=<bytes>] [route=<prefix>]… [local=<address:port>]",
            self.0
        )
    }
}

impl std::error::Error for Unusable {}

impl Arguments {
    /// Reads the command line without the program's name.
    ///
    /// # Errors
    /// [`Unusable`] at the first word that is unknown, missing or says nothing.
    pub fn read(words: impl IntoIterator<Item = String>) -> Result<Self, Unusable> {
        let (mut hub, mut hub_key, mut key, mut tun, mut local) = (None, None, None, None, None);
        let (mut mtu, mut routes) = (MTU, Vec::new());
        for word in words {
            let (name, value) =
                word.split_once('=').ok_or_else(|| Unusable(format!("{word:?} has no value")))?;
            let nothing = || Unusable(format!("the value of {name} is none"));
            match name {
                "hub" => hub = Some(value.parse().map_err(|_| nothing())?),
                "hub-key" => hub_key = Some(keys::decode(value).map_err(|_| nothing())?),
                "key" => key = Some(PathBuf::from(value)),
                "tun" if (1..=LONGEST_NAME).contains(&value.len()) => tun = Some(value.to_owned()),
                "tun" => return Err(nothing()),
                "mtu" => mtu = value.parse().map_err(|_| nothing())?,
                "route" => routes.push(network::prefix(value).map_err(|_| nothing())?),
                "local" => local = Some(value.parse().map_err(|_| nothing())?),
                _ => return Err(Unusable(format!("{name} is no option"))),
            }
        }
        let missing = |option: &str| Unusable(format!("{option} is missing"));
        Ok(Self {
            hub: hub.ok_or_else(|| missing("hub"))?,
            hub_key: hub_key.ok_or_else(|| missing("hub-key"))?,
            key: key.ok_or_else(|| missing("key"))?,
            tun: tun.ok_or_else(|| missing("tun"))?,
            mtu,
            routes,
            local,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "hub=192.0.2.1:5 hub-key=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= key=/k tun=t0 \
                         mtu=1300 route=10.1.0.0/16 route=10.2.0.0/16";

    fn read(line: &str) -> Result<Arguments, Unusable> {
        Arguments::read(line.split_whitespace().map(str::to_owned))
    }

    /// A whole line is read, with every route.
    #[test]
    fn a_whole_line_is_read() {
        let arguments = read(WHOLE).unwrap();
        assert_eq!((arguments.mtu, arguments.routes.len(), arguments.local), (1300, 2, None));
        assert_eq!(arguments.hub_key, [0; 32]);
    }

    /// What is missing, misspelt or says nothing starts no node.
    #[test]
    fn what_says_nothing_is_refused() {
        for (from, to) in [
            ("hub=192.0.2.1:5", ""),
            ("192.0.2.1:5", "hub"),
            ("AAAA=", "AAA="),
            ("tun=t0", "tun="),
            ("tun=t0", "tun=a-name-of-16-byte"),
            ("mtu=1300", "mtu"),
            ("route=10.1", "routes=10.1"),
            ("10.1.0.0/16", "10.1.0.0/40"),
        ] {
            assert!(read(&WHOLE.replace(from, to)).is_err(), "{from} as {to}");
        }
    }
}
