//! The part of a worker in the statistics of a run that goes on: counts of a batch, and samples of its
//! packets.

use std::sync::atomic::Ordering;

use super::Worker;
use crate::flow::{Event, Shard, shard_of};
use crate::live_stats::{LiveStats, PAGE_SAMPLES, Party, SAMPLES, Tally};

impl Worker {
    /// Adds the counts of a batch to `live_stats`.
    pub fn report(&mut self, events: &[Event], time_ns: i64, live_stats: &LiveStats) {
        live_stats.add(&mut self.reported, &self.state.summary);
        let live = self.shards.iter().map(Shard::live).sum::<usize>();
        let more = live as i64 - self.reported_live as i64;
        live_stats.totals.flows_live.fetch_add(more, Ordering::Relaxed);
        self.reported_live = live;
        if live_stats.is_observed() {
            let bytes = events.iter().map(|event| u64::from(event.ip_bytes)).sum();
            live_stats.totals.ip_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let second = time_ns / 1_000_000_000;
        if live_stats.is_watched(time_ns) {
            self.sample::<true>(events, second, live_stats);
        } else if live_stats.is_observed() {
            self.sample::<false>(events, second, live_stats);
        }
    }

    /// Counts a sample of the packets of a batch by destination, and `BY_FLOW` too.
    fn sample<const BY_FLOW: bool>(
        &mut self,
        events: &[Event],
        second: i64,
        live_stats: &LiveStats,
    ) {
        if self.second.number != second {
            live_stats.merge(std::mem::take(&mut self.second));
            self.second.number = second;
        }
        let samples = if BY_FLOW { SAMPLES } else { PAGE_SAMPLES };
        let step = events.len().div_ceil(samples).max(1);
        for event in events.iter().step_by(step) {
            let shard = &self.shards[usize::from(self.place_of[shard_of(event.hash)])];
            let Some(flow) = shard.get(&event.key, event.hash) else { continue };
            let party = match flow.user.known.as_ref().and_then(|known| known.name()) {
                Some(name) => Party::Name(name.clone()),
                None => Party::Addr(flow.destination().0),
            };
            let (bytes, weight) = (u64::from(event.ip_bytes), step as u64);
            if BY_FLOW {
                let one = Tally { packets: 1, bytes };
                self.second.add(event.key, flow.source_is_low, party, one, weight);
            } else {
                self.second.add_party(party, Tally { packets: weight, bytes: bytes * weight });
            }
        }
    }
}
