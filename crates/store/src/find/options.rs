//! What restricts a search besides its query.

use crate::flow_event::NameRole;

/// Restrictions of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FindOptions {
    /// Packets from this time on, ns since 1970.
    pub from_ns: Option<i64>,
    /// Packets before this time.
    pub to_ns: Option<i64>,
    /// Also names that are rivals of the chosen one ([`NameRole::Candidate`]).
    pub candidates: bool,
    /// Also names that DNS flows queried ([`NameRole::Lookup`]).
    pub lookups: bool,
}

impl FindOptions {
    pub(super) fn wants_time(&self, ts_ns: i64) -> bool {
        self.from_ns.is_none_or(|from| from <= ts_ns) && self.to_ns.is_none_or(|to| ts_ns < to)
    }

    pub(super) fn wants_role(&self, role: u8) -> bool {
        match role {
            role if role == NameRole::Candidate as u8 => self.candidates,
            role if role == NameRole::Lookup as u8 => self.lookups,
            _ => true,
        }
    }
}
