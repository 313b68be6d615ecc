//! Custody of the route table: adoption by revision, and nothing but the revision (ING-02, ING-06, ING-07,
//! ING-08, ING-10, ING-14, ING-16).

use crate::contract::{route_table::RouteTable, values::Generation};

/// What is known of the table.
#[derive(Default)]
enum Held {
    /// Cloudly has stated nothing yet.
    #[default]
    Unstated,
    /// Cloudly stated that it has computed none.
    None,
    /// The latest valid table.
    Table(RouteTable),
}

/// The held table.
#[derive(Default)]
pub(super) struct Custody {
    held: Held,
    stated: u64,
}

impl Custody {
    /// The held table.
    pub(super) fn table(&self) -> Option<&RouteTable> {
        match &self.held {
            Held::Table(table) => Some(table),
            Held::Unstated | Held::None => None,
        }
    }

    /// The held table's revision.
    pub(super) fn revision(&self) -> Option<Generation> {
        self.table().map(RouteTable::revision)
    }

    /// Counts the tables that Cloudly stated, also those that are no news: tells whether one lies between a question
    /// and its answer.
    pub(super) fn stated(&self) -> u64 {
        self.stated
    }

    /// Adopts a table that is newer than the held one; says whether it is. The former is wiped.
    pub(super) fn offer(&mut self, table: RouteTable) -> bool {
        self.stated += 1;
        let newer = self.revision().is_none_or(|held| table.revision() > held);
        if newer {
            self.held = Held::Table(table);
        }
        newer
    }

    /// Cloudly states that it has computed no table; says whether that is news. `asked` is
    /// [`Custody::stated`] when it was asked: a table that it pushed since is what it says now.
    pub(super) fn none(&mut self, asked: u64) -> bool {
        if asked != self.stated || matches!(self.held, Held::None) {
            return false;
        }
        self.held = Held::None;
        true
    }
}
