//! The metrics that running programs export.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Stdio;

use larder_testkit::dns;
use larder_testkit::http::fetch;
use larder_testkit::process::Program;
use larder_testkit::skip::skip;
use larder_testkit::wait::until;

use crate::common::Scratch;
use crate::common::server::Server;

/// The labels of a metric, with their values.
pub type Labels = BTreeMap<String, BTreeSet<String>>;

/// Metrics by name.
#[derive(Debug, Default)]
pub struct Exported(BTreeMap<String, Labels>);

impl Exported {
    /// Those of the three programs, with the optional ones of boards and rules: of interfaces, the
    /// packet store, logs, and an upstream that was measured. Prints SKIP and returns `None` if
    /// this machine permits no capture.
    pub fn of_programs(test: &str) -> Option<Exported> {
        let mut exported = Exported::default();
        exported.add(&of_annotate(test)?);
        exported.add(&of_dns());
        exported.add(&of_http());
        Some(exported)
    }

    /// The labels of a metric; `None`: there is none of this name.
    pub fn labels(&self, metric: &str) -> Option<&Labels> {
        self.0.get(metric)
    }

    /// Adds metrics in Prometheus' text format.
    fn add(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, _) = line.rsplit_once(' ').expect("a value");
            let (name, label) = series.split_once('{').unwrap_or((series, ""));
            let labels = self.0.entry(name.to_owned()).or_default();
            if let Some((label, value)) = label.trim_end_matches('}').split_once('=') {
                let values = labels.entry(label.to_owned()).or_default();
                values.insert(value.trim_matches('"').to_owned());
            }
        }
    }
}

/// The address of the metrics of a program that begins.
fn place(program: &mut Program) -> SocketAddr {
    let said = program.wait_for("metrics listening url=http://");
    let at = said.split("http://").nth(1).and_then(|at| at.strip_suffix("/metrics"));
    at.expect("a URL").parse().expect("an address")
}

fn metrics(place: SocketAddr) -> String {
    fetch(place, "/metrics").text().to_owned()
}

/// A capture of the loopback that takes no packet, with a packet store.
fn of_annotate(test: &str) -> Option<String> {
    let scratch = Scratch::new();
    let tried = scratch.run("annotate -i lo -o flows --no-progress -- nonsense");
    if tried.err.contains("this process may not see frames") {
        skip(test, "a capture needs CAP_NET_RAW");
        return None;
    }
    let line = "annotate -i lo -o flows -w packets --store 16MiB --no-progress \
                --metrics 127.0.0.1:0 -- udp port 9";
    let mut command = scratch.larder();
    command.args(line.split_whitespace()).stdout(Stdio::null());
    let mut program = Program::start(&mut command);
    let text = metrics(place(&mut program));
    program.stop();
    Some(text)
}

/// A server that has measured its upstream.
fn of_dns() -> String {
    let (scratch, upstream) = (Scratch::new(), dns::Server::of_address([192, 0, 2, 1]));
    let upstream = upstream.address.to_string();
    let more = ["--upstream", &upstream, "--query-log", "queries", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&scratch, more);
    let place = place(&mut server);
    assert_eq!(server.last_byte("a"), 1);
    until("a measured upstream", || {
        Some(metrics(place)).filter(|text| text.contains("\nlarder_dns_upstream_round_trip_"))
    })
}

fn of_http() -> String {
    let scratch = Scratch::new();
    let line = "http --listen 127.0.0.1:0 --origin http://127.0.0.1:9 --cores 1 \
                --access-log requests --metrics 127.0.0.1:0";
    let mut server = Server::spawn(scratch.larder().args(line.split_whitespace()));
    metrics(place(&mut server))
}
