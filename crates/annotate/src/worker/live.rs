//! The part of a worker in the statistics of a run that goes on: counts of a batch, and samples of its
//! packets.

use std::sync::atomic::Ordering;

use super::Worker;
use crate::flow::{Event, Shard, shard_of};
use crate::live_stats::{LiveStats, Party, SAMPLES, Tally};

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
        if live_stats.is_watched(time_ns) {
            self.sample(events, time_ns / 1_000_000_000, live_stats);
        }
    }

    /// Counts a sample of the packets of a batch by destination and by flow.
    fn sample(&mut self, events: &[Event], second: i64, live_stats: &LiveStats) {
        if self.second.number != second {
            live_stats.merge(std::mem::take(&mut self.second));
            self.second.number = second;
        }
        let step = events.len().div_ceil(SAMPLES).max(1);
        for event in events.iter().step_by(step) {
            let shard = &self.shards[usize::from(self.place_of[shard_of(event.hash)])];
            let Some(flow) = shard.get(&event.key, event.hash) else { continue };
            let party = match flow.user.known.as_ref().and_then(|known| known.name()) {
                Some(name) => Party::Name(name.clone()),
                None => Party::Addr(flow.destination().0),
            };
            let one = Tally { packets: 1, bytes: u64::from(event.ip_bytes) };
            self.second.add(event.key, flow.source_is_low, party, one, step as u64);
        }
    }
}
