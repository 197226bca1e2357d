//! Interfaces as input: opened with rights that are dropped afterwards, then read by the same
//! pipeline as files.
//!
//! ```text
//! open(input)         sockets and rings; the only part that needs CAP_NET_RAW
//! run_live(capture)   until it is stopped; what was received by then is written
//! ```
//!
//! The kernel counts the packets that it drops; larder reports them in the summary, in metrics and
//! in `larder top`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_io::live::{Live, LiveCounts, LiveOptions};
use larder_serve::metrics::Metric;
use larder_store::Interface;
use larder_wire::filter::{self, LinkType, Origin};

use crate::Error;
use crate::figures::Others;
use crate::options::{Dropped, Summary};

/// The interfaces and the filter of a capture.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Options of the capture; its filter is made from `filter`.
    pub capture: LiveOptions,
    /// Packets to capture, in the language of tcpdump; empty: all.
    pub filter: String,
}

/// Interfaces that are open.
#[derive(Debug)]
pub struct LiveCapture {
    live: Live,
    stats: CaptureStats,
}

/// Counters and names of the interfaces.
#[derive(Debug)]
pub struct CaptureStats {
    counts: Arc<LiveCounts>,
    interfaces: Vec<Interface>,
    names: Vec<String>,
}

/// Opens interfaces. The error says what to do next.
pub fn open(input: &Input) -> Result<LiveCapture, Error> {
    let names = &input.capture.interfaces;
    let failed = |error: larder_io::live::LiveError| Error::Options(format!("-i: {error}"));
    let mut interfaces = Vec::with_capacity(names.len());
    for name in names {
        let link_type = larder_io::live::link_type(name).map_err(failed)?;
        let snap_bytes = input.capture.snap_bytes;
        interfaces.push(Interface { name: name.clone(), link_type, snap_bytes });
    }
    let filter = compile(&input.filter, &interfaces, input.capture.snap_bytes)?;
    let live = Live::open(&LiveOptions { filter, ..input.capture.clone() }).map_err(failed)?;
    let stats = CaptureStats { counts: live.counts(), interfaces, names: names.clone() };
    Ok(LiveCapture { live, stats })
}

/// The filter for the kernel; all interfaces share one.
fn compile(
    text: &str,
    interfaces: &[Interface],
    snap_bytes: u32,
) -> Result<Vec<filter::Instruction>, Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let first = interfaces.first().map_or(1, |interface| interface.link_type);
    if let Some(other) = interfaces.iter().find(|interface| interface.link_type != first) {
        return Err(Error::Options(format!(
            "the filter is for one kind of link, and {} is of another than {}; capture them apart",
            other.name, interfaces[0].name
        )));
    }
    LinkType::of(first)
        .and_then(|link| filter::compile(text, link, Origin::Live, snap_bytes))
        .map_err(|error| Error::Options(format!("the filter {text:?}: {error}")))
}

impl LiveCapture {
    /// Options that could not be applied.
    pub fn notes(&self) -> &[String] {
        self.live.notes()
    }

    pub(crate) fn split(self) -> (Live, CaptureStats) {
        (self.live, self.stats)
    }
}

impl CaptureStats {
    /// The interfaces in the form of the packet store.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(crate) fn name(&self) -> String {
        self.names.join(",")
    }

    pub(crate) fn status(&self) -> String {
        format!("captures from {}", self.name())
    }

    /// Adds the kernel's final counts.
    pub(crate) fn add_to(&self, summary: &mut Summary) {
        self.counts.refresh();
        summary.captured = self
            .counts
            .interfaces()
            .iter()
            .map(|interface| Dropped {
                interface: interface.name.clone(),
                received: interface.received.load(Ordering::Relaxed),
                dropped: interface.dropped.load(Ordering::Relaxed),
            })
            .collect();
    }
}

/// Metrics of the kernel, and of the packet store and its budget in bytes.
pub(crate) fn others(
    capture: Option<&CaptureStats>,
    store: Option<(&Arc<larder_store::Counts>, u64)>,
) -> Others {
    let live = capture.map(|capture| Arc::clone(&capture.counts));
    let store = store.map(|(counts, budget_bytes)| (Arc::clone(counts), budget_bytes));
    Box::new(move |metrics| {
        if let Some(live) = &live {
            live.refresh();
            of_interfaces(live, metrics);
        }
        if let Some((store, budget_bytes)) = &store {
            let help = "Packet store: limit of the bytes kept";
            metrics.push(Metric::new("store_bytes_kept_max", help, *budget_bytes as f64));
            for (name, value) in store.all() {
                let help = format!("Packet store: {}", name.replace('_', " "));
                let end = if name == "bytes_kept" { "" } else { "_total" };
                metrics.push(Metric::new(format!("store_{name}{end}"), help, value as f64));
            }
        }
    })
}

/// The kernel's counters of each interface.
fn of_interfaces(live: &LiveCounts, metrics: &mut Vec<Metric>) {
    let steps = live.clock_steps.load(Ordering::Relaxed);
    metrics.push(Metric::new("clock_steps_total", "Times the clock was set", steps as f64));
    let all = live.interfaces();
    let mut each = |name: &'static str,
                    help: &'static str,
                    value: &dyn Fn(&larder_io::live::InterfaceCounts) -> u64| {
        metrics.extend(
            all.iter()
                .map(|one| Metric::new(name, help, value(one) as f64).of("interface", &one.name)),
        );
    };
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    each("kernel_received_total", "Packets that the kernel put into rings", &|one| {
        load(&one.received)
    });
    each("kernel_dropped_total", "Packets for which the rings had no room", &|one| {
        load(&one.dropped)
    });
    each("kernel_freezes_total", "Times the rings were full", &|one| load(&one.freezes));
    each("interface_downs_total", "Times the interface went down", &|one| load(&one.downs));
    each("interface_reopened_total", "Times it was made again, and found", &|one| {
        load(&one.reopened)
    });
    metrics.extend(all.iter().map(|one| {
        let is_up = f64::from(u8::from(one.is_up.load(Ordering::Relaxed)));
        Metric::new("interface_up", "Whether it is there, and up", is_up).of("interface", &one.name)
    }));
}
