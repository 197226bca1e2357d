//! What happens between packets: idle flows end, records are cut.

use super::FlowState;
use super::lane::Lane;
use crate::decode::Tick;
use crate::flow::{SHARDS, Shard, next_cut_ns};

/// Shards between the prefetch of the flows that may be due in a shard, then of their names, and their
/// end.
const PREFETCH_DUE: usize = 4;
const PREFETCH_DUE_USERS: usize = 2;

/// Ends the flows that have been idle too long at `tick`, and cuts the records of the others if it says so. Returns the
/// time of the next cut.
pub(super) fn take_tick(
    shards: &mut [Shard<FlowState>],
    tick: Tick,
    lane: &mut Lane<'_, '_>,
) -> i64 {
    lane.is_between_packets = true;
    end_idle(shards, tick, lane);
    let next_ns = next_cut_ns(tick.time_ns, lane.input.cut_every_ns);
    if tick.is_cut {
        let cut_ns = next_ns.saturating_sub(lane.input.cut_every_ns);
        for (at, shard) in shards.iter_mut().enumerate() {
            lane.state.shard = at;
            shard.cut(cut_ns, tick.time_ns, tick.packet, lane);
        }
        let number = lane.input.packets_before + u64::from(tick.packet);
        lane.is_early &= number < lane.input.logged_after;
    }
    lane.is_between_packets = false;
    next_ns
}

/// Ends the flows that have been idle too long at `tick`, of which no packet from `tick.packet` on is counted.
fn end_idle(shards: &mut [Shard<FlowState>], tick: Tick, lane: &mut Lane<'_, '_>) {
    let (mut due, mut count) = ([0; SHARDS], 0);
    for (shard, at) in shards.iter_mut().zip(0..) {
        // A store that is overwritten if there is nothing due: cheaper than a branch that is hard to predict.
        due[count] = at;
        count += usize::from(shard.tick(tick.time_ns));
        if count == SHARDS {
            break;
        }
    }
    let due = &due[..count];
    for (at, &shard) in due.iter().enumerate() {
        if let Some(&ahead) = due.get(at + PREFETCH_DUE) {
            shards[ahead].prefetch_due(tick.time_ns);
        }
        if let Some(&ahead) = due.get(at + PREFETCH_DUE_USERS) {
            shards[ahead].prefetch_due_users(tick.time_ns, lane);
        }
        lane.state.shard = shard;
        shards[shard].expire(tick.time_ns, tick.packet, lane);
    }
}
