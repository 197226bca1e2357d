//! The captures, each with our records and with those of the folder `truth`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use larder_annotate::options::{Endpoint, NameSources, Options, OutputFormat};
use larder_annotate::{Progress, Summary, run};
use serde_json::Value;

use larder_testkit::captures as list;

/// A 5-tuple without direction. The folder `truth` gives the ports in the order of the flow's first
/// packet but the addresses in the order of initiator and responder, so they can't be paired up.
pub type Key = (String, [IpAddr; 2], [u64; 2]);

/// One of our records.
pub struct Ours {
    pub start_us: i64,
    pub transport: String,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub ports: Option<[u64; 2]>,
    pub packets: u64,
    /// The destination's name, by `--names`.
    pub name: Option<String>,
    /// That name was learned after the flow's first packet.
    pub late: bool,
    /// All names of the destination.
    pub candidates: Vec<String>,
    /// Names and candidates of both ends.
    pub all_names: Vec<String>,
    /// Every host in the record, also the one that the flow states.
    pub hosts: Vec<String>,
    pub server_name: Option<String>,
    pub http_host: Option<String>,
}

impl Ours {
    pub fn key(&self) -> Option<Key> {
        Some(key(&self.transport, [self.source, self.destination], self.ports?))
    }

    /// The name at the flow's first packet.
    pub fn name_at_start(&self) -> Option<&str> {
        self.name.as_deref().filter(|_| !self.late)
    }
}

/// A flow of the folder `truth`.
pub struct Theirs {
    pub id: String,
    pub start_us: i64,
    pub transport: String,
    pub client: IpAddr,
    pub server: IpAddr,
    pub ports: [u64; 2],
    pub packets: u64,
    /// The name that the flow states, if it is a name and no address.
    pub name: Option<String>,
    /// The protocol that states it: `tls`, `quic`, `http`; `http-ip` for an address.
    pub source: Option<String>,
    /// The name by DNS at the first packet.
    pub by_dns: Option<String>,
}

impl Theirs {
    pub fn key(&self) -> Key {
        key(&self.transport, [self.client, self.server], self.ports)
    }
}

fn key(transport: &str, mut ends: [IpAddr; 2], mut ports: [u64; 2]) -> Key {
    ends.sort();
    ports.sort_unstable();
    (transport.to_owned(), ends, ports)
}

/// What a run of ours wrote, and its summary.
pub struct Run {
    pub log: Vec<u8>,
    pub answers: Vec<u8>,
    pub names: Vec<u8>,
    pub summary: Summary,
}

pub struct Capture {
    pub file: String,
    /// A public capture, and no recording of the repository.
    pub is_public: bool,
    pub path: PathBuf,
    /// Records with `--names dns`.
    pub by_dns: Vec<Ours>,
    /// Records with every source.
    pub by_all: Vec<Ours>,
    pub theirs: Vec<Theirs>,
    /// Packets, as `tshark` counts them.
    pub packets: u64,
    /// ICMP and ICMPv6 packets, as `tshark` counts them.
    pub icmp: u64,
    /// What the folder says of the names by DNS: `truth`, `cov`, `d_exact`, `d_rd`.
    pub counts: HashMap<String, u64>,
    /// Every name that DNS teaches.
    pub learned: HashSet<String>,
    /// Runs with every source, on one core and on three.
    pub runs: [Run; 2],
    /// Runs with `--names dns`, on one core and on three.
    pub dns_runs: [Run; 2],
}

impl Capture {
    /// The record of ours that is their flow: of those with its 5-tuple the last that began not
    /// after it. (Ours may begin earlier: at a fragment.)
    pub fn record_of<'o>(ours: &'o [Ours], theirs: &Theirs) -> Option<&'o Ours> {
        let key = theirs.key();
        ours.iter()
            .filter(|flow| flow.start_us <= theirs.start_us + 1)
            .filter(|flow| flow.key().as_ref() == Some(&key))
            .max_by_key(|flow| flow.start_us)
    }
}

static CAPTURES: LazyLock<Vec<Capture>> = LazyLock::new(|| {
    let recorded = list::recorded().into_iter().map(|path| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (list::recorded_folder().join("truth").join(name + ".json"), path)
    });
    let public = list::public().into_iter().map(|path| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (list::public_folder().join("truth").join(name + ".json"), path)
    });
    // Not of every public capture there is an opinion; of every recording there must be one.
    recorded.chain(public.filter(|(truth, _)| truth.exists())).map(|(t, p)| open(p, &t)).collect()
});

/// The recordings, and the public captures where they are.
pub fn captures() -> &'static [Capture] {
    &CAPTURES
}

fn open(path: PathBuf, truth: &Path) -> Capture {
    let file = path.file_name().expect("a file").to_string_lossy().into_owned();
    let truth = std::fs::read_to_string(truth)
        .unwrap_or_else(|error| panic!("{}: {error}; run truth.py", truth.display()));
    let truth: Value = serde_json::from_str(&truth).expect("JSON");
    let list = |what: &str| truth[what].as_array().cloned().unwrap_or_default();
    let counts = truth["stats"].as_object().into_iter().flatten();
    let dns = NameSources::parse("dns").expect("a list of sources");
    let dns_runs = [1, 3].map(|cores| annotate(&path, dns, cores));
    let runs = [1, 3].map(|cores| annotate(&path, NameSources::all(), cores));
    Capture {
        by_dns: records(&dns_runs[0].log),
        by_all: records(&runs[0].log),
        theirs: list("flows").iter().map(theirs).collect(),
        packets: truth["packets"].as_u64().expect("a count"),
        icmp: truth["icmp"].as_u64().unwrap_or_default(),
        counts: counts.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect(),
        learned: list("learned")
            .iter()
            .filter_map(|observation| text(observation, "name"))
            .collect(),
        runs,
        dns_runs,
        is_public: path.starts_with(list::public_folder()),
        file,
        path,
    }
}

fn annotate(path: &Path, names: NameSources, cores: usize) -> Run {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let log = directory.path().join("flows.ndjson");
    let options = Options {
        read: vec![Endpoint::Path(path.to_owned())],
        output: Endpoint::Path(log.clone()),
        format: OutputFormat::Ecs,
        directory: Some(directory.path().to_owned()),
        names,
        cores,
        names_budget_bytes: 8 << 20,
        ..Options::default()
    };
    let summary = run(&options, &Arc::new(Progress::default())).expect("a run");
    let read = |name: &str| std::fs::read(directory.path().join(name)).expect("a log");
    Run { log: read("flows.ndjson"), answers: read("dns.log"), names: read("names.log"), summary }
}

fn text(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().map(str::to_lowercase)
}

fn ip(value: &Value, key: &str) -> IpAddr {
    value[key].as_str().and_then(|text| text.parse().ok()).expect("an address")
}

fn records(log: &[u8]) -> Vec<Ours> {
    let log = std::str::from_utf8(log).expect("ECS is ASCII");
    log.lines().map(|line| ours(&serde_json::from_str(line).expect("JSON"))).collect()
}

fn ours(record: &Value) -> Ours {
    let strings = |key: &str| -> Vec<String> {
        let list = record[key].as_array().into_iter().flatten();
        list.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let mut all_names = Vec::new();
    for side in ["source", "destination"] {
        all_names.extend(text(record, &format!("{side}.domain")));
        all_names.extend(strings(&format!("larder.{side}.candidates")));
    }
    let ports = [&record["source.port"], &record["destination.port"]];
    Ours {
        start_us: microseconds(record["event.start"].as_str().expect("a time")),
        transport: text(record, "network.transport").unwrap_or_default(),
        source: ip(record, "source.ip"),
        destination: ip(record, "destination.ip"),
        ports: ports[0].as_u64().zip(ports[1].as_u64()).map(|(a, b)| [a, b]),
        packets: record["network.packets"].as_u64().expect("a count"),
        name: text(record, "destination.domain"),
        late: record["larder.destination.name_late"] == Value::Bool(true),
        candidates: strings("larder.destination.candidates"),
        all_names,
        hosts: strings("related.hosts"),
        server_name: text(record, "tls.client.server_name"),
        http_host: text(record, "url.domain"),
    }
}

fn theirs(flow: &Value) -> Theirs {
    let id = flow["id"].as_str().expect("an id").to_owned();
    let number = |key: &str| flow[key].as_u64().expect("a number");
    Theirs {
        start_us: (flow["first_time"].as_f64().expect("a time") * 1e6).round() as i64,
        transport: id.trim_end_matches(|digit: char| digit.is_ascii_digit()).to_owned(),
        client: ip(flow, "client"),
        server: ip(flow, "server"),
        ports: [number("ap"), number("bp")],
        packets: number("packets"),
        name: text(flow, "name").filter(|name| name.parse::<IpAddr>().is_err()),
        source: text(flow, "source"),
        by_dns: text(flow, "dns_d"),
        id,
    }
}

/// Microseconds since 1970 of `2020-02-23T10:46:09.772338000Z`.
fn microseconds(rfc3339: &str) -> i64 {
    let number = |from: usize, to: usize| -> i64 { rfc3339[from..to].parse().expect("digits") };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    // Days of the years and months before: February comes last, so that leap days do not matter.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days_to_1970 = 719_468;
    let seconds = number(11, 13) * 3600 + number(14, 16) * 60 + number(17, 19);
    ((days - days_to_1970) * 86_400 + seconds) * 1_000_000 + number(20, 26)
}

/// Three cores give the same as one: the log, the answers and the known names.
#[test]
fn cores_change_nothing() {
    for capture in captures() {
        for [one, three] in [&capture.runs, &capture.dns_runs] {
            let file = &capture.file;
            assert!(one.log == three.log, "{file}: the log depends on the number of cores");
            assert!(one.answers == three.answers, "{file}: dns.log depends on it");
            assert!(one.names == three.names, "{file}: names.log depends on it");
            assert_eq!(one.summary.to_json(), three.summary.to_json(), "{file}: the summary does");
        }
    }
}
