//! One core's own cache, of which no other core knows: caches side by side, or shards of one.
//!
//! Each is a simulation of its own, which leaves out the requests of others; the results of all are added up.

use larder::policy::Replacement;

use super::stream::Access;
use super::table::Table;
use super::{Outcome, Settings, Simulation};
use crate::request::Op;

pub(super) struct Lone<P> {
    core: u32,
    cores: u32,
    /// Whether a request is handed to the core that its name belongs to.
    is_shard: bool,
    fills: bool,
    table: Table<P>,
    outcome: Outcome,
}

impl<P: Replacement> Lone<P> {
    pub fn new(policy: P, capacity: u32, core: u32, is_shard: bool, settings: &Settings) -> Self {
        let Settings { cores, fills, .. } = *settings;
        let table = Table::new(policy, u64::from(capacity));
        Lone { core, cores, is_shard, fills, table, outcome: Outcome::default() }
    }

    fn request(&mut self, access: &Access) {
        let came_to = access.core(self.cores);
        let core = if self.is_shard { access.home(self.cores) } else { came_to };
        if core != self.core {
            return;
        }
        if access.counts {
            self.outcome.requests += 1;
            self.outcome.moved += u64::from(core != came_to);
        }
        let Access { name, version, .. } = *access;
        match access.op {
            Op::Get => {
                let found = self.table.get(name);
                if access.counts {
                    self.outcome.got(found, version);
                }
                match found {
                    Some(_) => self.table.hit(name, 0),
                    None if self.fills => self.table.store(name, version, 1, |_| ()),
                    None => {}
                }
            }
            Op::Set => self.table.store(name, version, 1, |_| ()),
            Op::Remove => self.table.remove(name, |_| ()),
        }
    }
}

impl<P: Replacement + Send> Simulation for Lone<P> {
    fn feed(&mut self, batch: &[Access]) {
        batch.iter().for_each(|access| self.request(access));
    }

    fn finish(&mut self) -> Outcome {
        self.outcome
    }
}
