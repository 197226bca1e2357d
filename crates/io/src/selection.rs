//! Which records of captures are read, and what for.

use crate::frame_filter::FrameFilter;

/// What is read of several captures. By default all, for all purposes.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The frames that are read. It is not for inputs that are read for names only.
    pub filter: Option<FrameFilter>,
    /// Records before this time are read for names only, ns since 1970 UTC.
    pub from_ns: Option<i64>,
    /// Records at this time or later are not read, ns since 1970 UTC.
    pub to_ns: Option<i64>,
    /// Of the inputs for names, those that `larder extract` made are captures of what comes before the other inputs:
    /// flows of theirs go on ([`Purpose::Before`]).
    pub continues: bool,
}

/// What a record of several captures is read for: each link type has an interface for each purpose, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Everything.
    All,
    /// Its names only.
    Names,
    /// The same, and others of its capture are left out.
    ReducedNames,
    /// Its flows, which may go on; others of its capture are left out.
    Before,
}

impl Purpose {
    pub(crate) const COUNT: usize = 4;

    /// The purpose of an interface's records.
    pub(crate) fn of_interface(interface: u32) -> Purpose {
        match interface as usize % Purpose::COUNT {
            0 => Purpose::All,
            1 => Purpose::Names,
            2 => Purpose::ReducedNames,
            _ => Purpose::Before,
        }
    }

    /// Its flows are in no log.
    pub fn is_for_names(self) -> bool {
        matches!(self, Purpose::Names | Purpose::ReducedNames)
    }

    /// Others of its capture are left out; notes replace them ([`larder_wire::note`]).
    pub fn is_reduced(self) -> bool {
        matches!(self, Purpose::ReducedNames | Purpose::Before)
    }
}

impl Selection {
    /// True if it leaves nothing out.
    pub fn is_all(&self) -> bool {
        self.filter.is_none() && self.from_ns.is_none() && self.to_ns.is_none()
    }

    /// True if a record at this time is read for names only.
    pub(crate) fn is_early(&self, ts_ns: i64) -> bool {
        self.from_ns.is_some_and(|from_ns| ts_ns < from_ns)
    }

    /// True if a record at this time is read.
    pub(crate) fn is_in_time(&self, ts_ns: i64) -> bool {
        self.to_ns.is_none_or(|to_ns| ts_ns < to_ns)
    }
}
