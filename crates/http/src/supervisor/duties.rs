//! What the server is asked for while it runs, and what that takes.

use larder_io::service::figures::{Gauge, write_gauges};

use crate::counts::PREFIX;
use crate::server::Common;

/// What operators may ask for.
pub(crate) struct Duties {
    pub common: Common,
    pub is_stop_asked: bool,
}

impl Duties {
    pub fn now_ms(&self) -> u64 {
        self.common.clock.us() / 1_000
    }

    /// Figures that are not counted by loops.
    fn gauges(&self) -> Vec<Gauge> {
        let mut gauges = self.common.store.gauges();
        let up_s = self.common.clock.us() as f64 / 1e6;
        let (name, help) = ("uptime_seconds", "Time since the start");
        gauges.push(Gauge { name, help, label: None, value: up_s });
        gauges.extend(self.common.health.all(self.now_ms()).map(|(origin, is_good)| Gauge {
            name: "origin_up",
            help: "Whether an origin is asked: it could be reached, and checks found it well",
            label: Some(("origin", origin.to_owned())),
            value: f64::from(u8::from(is_good)),
        }));
        gauges
    }

    /// All of it for Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.common.shared.sum().write_text(&mut text);
        write_gauges(&mut text, PREFIX, &self.gauges());
        text
    }
}
