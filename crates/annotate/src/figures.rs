//! The numbers of a run that goes on, for operators: metrics, and the same as fields of JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use larder_serve::control::Fields;
use larder_serve::metrics::{Metric, metric_fields, write_build_info, write_metrics};

use crate::Progress;
use crate::live_stats::Totals;
use crate::record::{NameSource, UnnamedReason};

/// The beginning of each name of Prometheus.
const PREFIX: &str = "larder_annotate";

/// Adds what others count: rings, logs, the packet store.
pub type Others = Box<dyn Fn(&mut Vec<Metric>) + Send + Sync>;

/// See the module.
pub struct Figures {
    progress: Arc<Progress>,
    others: Others,
    started: Instant,
}

impl Figures {
    /// The figures of a run that starts now.
    pub fn new(progress: &Arc<Progress>, others: Others) -> Figures {
        Figures { progress: Arc::clone(progress), others, started: Instant::now() }
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// All metrics.
    pub fn metrics(&self) -> Vec<Metric> {
        let Progress { packets, input_bytes, live_stats, .. } = &*self.progress;
        let totals = &live_stats.totals;
        let gauge = |name: &'static str, help: &'static str, value| Metric::new(name, help, value);
        let counter =
            |name: &'static str, help: &'static str, value: u64| gauge(name, help, value as f64);
        let read_ns = totals.read_ns.load(Ordering::Relaxed);
        // Before the first packet there is no time.
        let behind_ns = read_ns.saturating_sub(totals.written_ns.load(Ordering::Relaxed)).max(0);
        let flows_live = totals.flows_live.load(Ordering::Relaxed);
        let load = |total: &std::sync::atomic::AtomicU64| total.load(Ordering::Relaxed);
        let mut metrics = vec![
            gauge("uptime_seconds", "Time since the start", self.started.elapsed().as_secs_f64()),
            counter("packets_total", "Packets read", load(packets)),
            counter("input_bytes_total", "Bytes of capture read", load(input_bytes)),
            counter("damaged_total", "Damaged packets", load(&totals.damaged)),
            counter(
                "flows_ended_total",
                "Flows whose record was written",
                load(&totals.flows_ended),
            ),
            counter(
                "flows_nameable_total",
                "Ended flows whose destination can have a name",
                load(&totals.flows_nameable),
            ),
            counter(
                "flows_named_total",
                "Ended flows whose destination has a name",
                load(&totals.flows_named),
            ),
            counter(
                "flows_evicted_total",
                "Flows evicted because the table was full",
                load(&totals.flows_evicted),
            ),
            gauge("flows", "Open flows", flows_live as f64),
            counter(
                "records_lost_total",
                "Records of rotated logs that could not be written",
                load(&totals.records_lost),
            ),
            counter(
                "page_records_lost_total",
                "Records that the page does not show, because there were too many at once",
                load(&totals.notes_lost),
            ),
            counter("answers_total", "Messages with names", load(&totals.answers)),
            gauge("names", "Addresses with a name", load(&totals.names_known) as f64),
            counter("names_evicted_total", "Names evicted", load(&totals.names_evicted)),
            gauge(
                "batches_behind",
                "Batches with names but without flows yet",
                load(&totals.batches_behind) as f64,
            ),
            gauge(
                "behind_seconds",
                "Packet time between the last packet read and the last record written",
                behind_ns as f64 / 1e9,
            ),
        ];
        metrics.extend(by_name(totals));
        (self.others)(&mut metrics);
        metrics
    }

    /// All of them for Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        write_build_info(&mut text);
        write_metrics(&mut text, PREFIX, &self.metrics());
        text
    }

    /// The same as fields.
    pub fn stats(&self) -> Fields {
        metric_fields(&self.metrics())
    }
}

/// Ended flows by source of their name, and by reason for none.
fn by_name(totals: &Totals) -> Vec<Metric> {
    let named = NameSource::ALL.iter().map(|it| it.as_str()).zip(&totals.flows_named_by);
    let unnamed = UnnamedReason::ALL.iter().map(|it| it.as_str()).zip(&totals.flows_unnamed_by);
    let family = |name: &'static str, help: &'static str, label, value: &str, total: &AtomicU64| {
        Metric::new(name, help, total.load(Ordering::Relaxed) as f64).of(label, value)
    };
    let named = named.map(|(source, total)| {
        let help = "Ended flows whose destination has a name, by its source";
        family("flows_named_by_total", help, "source", source, total)
    });
    let unnamed = unnamed.map(|(reason, total)| {
        let help = "Ended flows whose destination can have a name and has none, by reason";
        family("flows_unnamed_by_total", help, "reason", reason, total)
    });
    named.chain(unnamed).collect()
}
