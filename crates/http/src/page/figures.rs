//! The numbers of a server, for operators: what the control socket, the metrics endpoint and the page state.

use larder_serve::metrics::{Fields, Metric, metric_fields, write_build_info, write_metrics};

use crate::common::Common;
use crate::counts::{Counts, PREFIX};

/// The numbers of this server's event loops, its store and its origins.
#[derive(Debug, Clone)]
pub struct Figures(pub(crate) Common);

/// An origin.
#[derive(Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its name.
    pub name: String,
    /// It is used: reachable, and its health checks succeed.
    pub is_good: bool,
    /// Connections that failed, and why the last one did.
    pub failures: u64,
    /// See there.
    pub why: String,
}

impl Figures {
    /// The counters of all event loops.
    pub fn counts(&self) -> Counts {
        self.0.shared.counts.sum()
    }

    /// Time since the start, milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.0.clock.us() / 1_000
    }

    /// All origins.
    pub fn origins(&self) -> Vec<Origin> {
        let health = self.0.config_watch.current().health;
        let good: Vec<bool> = health.all(self.now_ms()).map(|(_, is_good)| is_good).collect();
        let origins = health.failures().zip(good).map(|(failures, is_good)| Origin {
            name: failures.origin.to_owned(),
            is_good,
            failures: failures.count,
            why: if failures.count > 0 { failures.why } else { String::new() },
        });
        origins.collect()
    }

    /// A metric of the store, by its name; 0: there is none.
    pub fn of_store(metrics: &[Metric], name: &str) -> u64 {
        metrics.iter().find(|metric| metric.name == name).map_or(0, |metric| metric.value as u64)
    }

    /// Metrics of the store.
    pub fn store(&self) -> Vec<Metric> {
        self.0.store.metrics()
    }

    /// What is not counted by loops.
    pub fn other_metrics(&self) -> Vec<Metric> {
        let common = &self.0;
        let mut metrics = self.store();
        let up_s = common.clock.us() as f64 / 1e6;
        metrics.push(Metric::new("uptime_seconds", "Time since the start", up_s));
        if let Some(meter) = common.config_watch.log_meter() {
            let (written, lost) = meter.counts();
            for (name, help, value) in [
                ("log_lines_written_total", "Lines of the access log written", written),
                ("log_lines_lost_total", "Lines of the access log that could not be written", lost),
            ] {
                metrics.push(Metric::new(name, help, value as f64));
            }
        }
        let health = common.config_watch.current().health;
        metrics.extend(health.all(self.now_ms()).map(|(origin, is_good)| {
            let help = "Whether the origin is used: reachable, and its health checks succeed";
            Metric::new("origin_up", help, f64::from(u8::from(is_good))).of("origin", origin)
        }));
        metrics.extend(common.tls_bridge.iter().flat_map(|bridge| bridge.metrics()));
        metrics
    }

    /// All metrics in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        write_build_info(&mut text);
        self.counts().write_text(&mut text);
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
