//! What is said about a registry that leads nodes elsewhere or fails them, and how often. A line names an
//! origin or a class and nothing that an exchange carried (LOG-04, PULL-14, PULL-27, PULL-28, PULL-31).

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use coreflow_ipc::{line_budget::LineBudget, messages::pulls::RegistryFailure};
use tracing::{debug, info, warn};

use crate::{challenge::Realm, constants::FOREIGN_ORIGINS, origin::Origin};

/// What was said already; one for the life of the process.
#[derive(Default)]
pub struct Notices {
    foreign: Mutex<Foreign>,
    unserved: AtomicBool,
    location: AtomicBool,
    link: AtomicBool,
    failures: LineBudget,
    cut: LineBudget,
}

#[derive(Default)]
struct Foreign {
    named: BTreeSet<Origin>,
    full: bool,
}

/// What to say about a foreign origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// It is new.
    Name,
    /// It is new, and the first of those that are not remembered.
    MoreAreNotNamed,
    /// Nothing.
    Nothing,
}

impl Foreign {
    fn met(&mut self, origin: &Origin) -> Said {
        if self.named.contains(origin) {
            return Said::Nothing;
        }
        if self.named.len() < FOREIGN_ORIGINS {
            self.named.insert(origin.clone());
            return Said::Name;
        }
        if std::mem::replace(&mut self.full, true) { Said::Nothing } else { Said::MoreAreNotNamed }
    }
}

impl Notices {
    /// A challenge had this realm.
    pub(crate) fn realm(&self, realm: &Realm) {
        match realm {
            Realm::Own { served: true } => {}
            Realm::Own { served: false } => {
                if !self.unserved.swap(true, Ordering::Relaxed) {
                    warn!(
                        "the registry's token endpoint does not lie under /v2/, which is all that the listener \
                         serves: nodes get no token through the relay"
                    );
                }
            }
            Realm::Foreign(origin) => {
                let said = self.foreign.lock().expect("no holder of the set panics").met(origin);
                match said {
                    Said::Name => info!(
                        "the registry's challenge leads to {origin}: nodes fetch their tokens there, not through \
                         the relay"
                    ),
                    Said::MoreAreNotNamed => {
                        info!("the registry's challenges lead to further origins, which are not named");
                    }
                    Said::Nothing => {}
                }
            }
        }
    }

    /// A `location` names the registry's own origin.
    pub(crate) fn own_location(&self, registry: &Origin) {
        if !self.location.swap(true, Ordering::Relaxed) {
            warn!("a location header of the registry names {registry} itself: it leads nodes past the relay");
        }
    }

    /// A `link` names the registry's own origin.
    pub(crate) fn own_link(&self, registry: &Origin) {
        if !self.link.swap(true, Ordering::Relaxed) {
            warn!("a link header of the registry names {registry} itself: it leads nodes past the relay");
        }
    }

    /// A pull got no answer.
    pub(crate) fn failed(&self, failure: RegistryFailure) {
        if let Some(suppressed) = self.failures.admit() {
            warn!(suppressed, "an image pull failed: {failure}");
        }
    }

    /// The body of a pull was not carried to its end.
    pub(crate) fn cut(&self, failure: RegistryFailure) {
        if let Some(suppressed) = self.cut.admit() {
            warn!(suppressed, "the body of an image pull was cut: {failure}");
        }
    }

    /// The node left, which is ordinary.
    pub(crate) fn left(&self) {
        debug!("an image pull was left by its node");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PULL-14: each origin is said once, and a registry that invents origins fills neither memory nor log.
    #[test]
    fn each_foreign_origin_is_said_once() {
        let mut foreign = Foreign::default();
        let origin = |number| Origin::parse(&format!("https://auth{number}.test")).unwrap();
        for number in 0..FOREIGN_ORIGINS {
            assert_eq!(foreign.met(&origin(number)), Said::Name);
            assert_eq!(foreign.met(&origin(number)), Said::Nothing);
        }
        assert_eq!(foreign.met(&origin(FOREIGN_ORIGINS)), Said::MoreAreNotNamed);
        assert_eq!(foreign.met(&origin(FOREIGN_ORIGINS + 1)), Said::Nothing);
        assert_eq!(foreign.named.len(), FOREIGN_ORIGINS);
    }
}
