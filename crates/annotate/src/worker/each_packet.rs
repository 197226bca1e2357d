//! `--lookup packet`: names are looked up for every packet.

use std::time::Instant;

use larder_wire::Addr;
use larder_wire::scope::Scope;

use super::{BatchInput, WorkerState};
use crate::flow::Event;
use crate::names::{Key, View};

/// One group of lookups in this many is timed: too few to slow the others down.
const TIMED_GROUPS: u64 = 1024;

/// `--lookup packet`: both addresses of every packet, as the paper's system does.
///
/// With `TIMED`, each lookup of one group in [`TIMED_GROUPS`] is timed by itself, with the lines that its
/// group prefetched; the figure includes reading the clock.
pub(super) fn look_up_each<const TIMED: bool>(
    events: &[Event],
    input: &BatchInput<'_>,
    view: View<'_>,
    state: &mut WorkerState,
) {
    const GROUP: usize = 16;
    for group in events.chunks(GROUP) {
        let mut keys = [Key::address(Scope::NONE, Addr::UNSPECIFIED); 2 * GROUP];
        for (at, event) in group.iter().enumerate() {
            keys[2 * at] = Key::address(event.key.scope.network(), event.key.low);
            keys[2 * at + 1] = Key::address(event.key.scope.network(), event.key.high);
        }
        let keys = &keys[..2 * group.len()];
        let mut hashes = [view.cache.hash(keys[0].as_bytes()); 2 * GROUP];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = view.cache.hash(key.as_bytes());
            view.reader.prefetch(*hash);
        }
        let timed = TIMED && state.lookup_groups.is_multiple_of(TIMED_GROUPS);
        state.lookup_groups += u64::from(TIMED);
        for (at, (key, hash)) in keys.iter().zip(hashes).enumerate() {
            let packet = input.packets_before + u64::from(group[at / 2].packet);
            let started = timed.then(Instant::now);
            let hit = view.candidates_hashed(hash, key, packet).is_some();
            if let Some(started) = started {
                state.lookup_times.add(started.elapsed().as_nanos() as u64);
            }
            state.lookups += 1;
            state.lookup_hits += u64::from(hit);
        }
    }
}
