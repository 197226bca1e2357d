//! The numbers of a server, for operators: what the control socket, the metrics endpoint and the page state.

use std::sync::Arc;

use larder::Cache;
use larder_serve::metrics::{Fields, metric_fields, write_build_info, write_metrics};
use larder_serve::writer::Meter;

use crate::backend::Backend;
use crate::clock::Clock;
use crate::metrics::{Counts, Metric, PREFIX, Shared, cache_metrics};
use crate::side_query::Running;

/// Where the numbers are.
pub struct Figures {
    /// The cache.
    pub cache: Cache,
    /// The clock of the cores.
    pub clock: Clock,
    /// What the cores publish.
    pub published: Arc<Shared>,
    /// The writers of dnstap and of the query log, if configured.
    pub meters: Vec<Meter>,
    /// Upstreams that are not servers.
    pub backends: Vec<Arc<dyn Backend>>,
    /// Encrypted transports, which run next to the cores.
    pub beside: Option<Arc<dyn Running>>,
}

impl Figures {
    /// The counters of all cores.
    pub fn counts(&self) -> Counts {
        self.published.counts.sum()
    }

    /// Cached responses; 0 if the cache is broken, which its users see.
    pub fn entries(&self) -> u64 {
        self.cache.stats().map_or(0, |stats| stats.entries)
    }

    /// Time since the start.
    pub fn up_s(&self) -> f64 {
        self.clock.now().us as f64 / 1e6
    }

    /// What is not counted by cores.
    pub fn other_metrics(&self) -> Vec<Metric> {
        // Statistics fail only for a cache that is broken, which its users see.
        let mut metrics = self.cache.stats().map_or_else(|_| Vec::new(), |it| cache_metrics(&it));
        metrics.push(Metric::new("uptime_seconds", "Time since the start", self.up_s()));
        let counts = || self.meters.iter().map(|meter| (meter.name(), meter.counts()));
        metrics.extend(counts().map(|(name, (written, _))| {
            let help = "dnstap records and lines of the query log written";
            Metric::new("records_written_total", help, written as f64).of("of", name)
        }));
        metrics.extend(counts().map(|(name, (_, lost))| {
            let help = "dnstap records and lines of the query log that could not be written";
            Metric::new("records_lost_total", help, lost as f64).of("of", name)
        }));
        metrics.extend(self.published.upstreams.metrics());
        metrics.extend(self.beside.iter().flat_map(|beside| beside.metrics()));
        metrics.extend(self.backend_metrics());
        metrics
    }

    /// Metrics of backends; those of one name, one after the other.
    pub fn backend_metrics(&self) -> Vec<Metric> {
        let backends = self.backends.iter();
        let mut metrics: Vec<_> = backends.flat_map(|backend| backend.metrics()).collect();
        metrics.sort_by(|one, other| one.name.cmp(&other.name));
        metrics
    }

    /// All metrics in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        write_build_info(&mut text);
        let counts = self.counts();
        counts.write_text(&mut text);
        write_metrics(&mut text, PREFIX, &self.other_metrics());
        text
    }

    /// All numbers, for `larder ctl stats`.
    pub fn fields(&self) -> Fields {
        let mut fields = self.counts().fields();
        fields.extend(metric_fields(&self.other_metrics()));
        fields
    }
}
