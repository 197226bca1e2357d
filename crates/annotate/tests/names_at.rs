//! The names that addresses had at a moment are those of flows that began then.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use larder_annotate::options::{AddressQuery, Endpoint, NameSources, OutputFormat};
use larder_annotate::{Options, Progress, run};
use larder_testkit::captures;
use larder_wire::Addr;

type Row = BTreeMap<String, String>;

fn rows(options: Options) -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("out.csv");
    let options = Options {
        format: OutputFormat::Csv,
        output: Endpoint::Path(output.clone()),
        names: NameSources::parse("dns,mdns,ptr").expect("known words"),
        ignore_vlan: true,
        ..options
    };
    run(&options, &Arc::new(Progress::default())).expect("a run");
    let mut reader = csv::Reader::from_path(output).expect("a log");
    reader.deserialize().map(|row| row.expect("a row")).collect()
}

fn of_capture(capture: &str) -> Options {
    let path: PathBuf = captures::recorded_folder().join(format!("{capture}.pcap"));
    Options { read: vec![Endpoint::Path(path)], ..Options::default() }
}

fn query(time_ns: i64, client: Option<Addr>, addr: Addr) -> Option<AddressQuery> {
    Some(AddressQuery { time_ns, client, addrs: vec![addr] })
}

fn ns(time: &str) -> i64 {
    larder_annotate::feeds::parse_time_ns(time.as_bytes()).expect("a time")
}

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<std::net::IpAddr>().expect("an address"))
}

/// For each flow of the recordings: the client's name of the destination at the start of the flow is the name
/// in the record, with its source, candidates, age and flags. Names that came later are not known then.
#[test]
fn names_are_those_of_flows_that_begin_then() {
    let mut named = 0;
    for capture in
        ["r1-as-asked", "r2-head", "r2-pair", "r3-newer", "r4-candidates", "r5-stale", "r7-late"]
    {
        for flow in rows(of_capture(capture)) {
            let (client, server) = (addr(&flow["source.ip"]), addr(&flow["destination.ip"]));
            let names_at = query(ns(&flow["event.start"]), Some(client), server);
            let found = rows(Options { names_at, ..of_capture(capture) });
            let [found] = &found[..] else { panic!("{capture}: {found:?}") };
            let is_late = flow["larder.destination.name_late"] == "true";
            assert_eq!(found["@timestamp"], flow["event.start"]);
            for (field, value) in found.iter().filter(|(field, _)| *field != "@timestamp") {
                let expected = match field.as_str() {
                    "destination.ip" => &flow[field],
                    _ if is_late => continue,
                    _ => &flow[field],
                };
                assert_eq!(value, expected, "{capture}: {field} of {server:?} for {client:?}");
            }
            assert!(!is_late || found["destination.domain"].is_empty(), "{capture}: {found:?}");
            named += usize::from(!found["destination.domain"].is_empty());
        }
    }
    assert!(named >= 10, "{named} names");
}

/// Without a client, what any client looked up last counts; before the first lookup there is no name.
#[test]
fn the_moment_and_the_client_decide() {
    let flows = rows(of_capture("r2-pair"));
    let flow =
        |name: &str| flows.iter().find(|flow| flow["destination.domain"] == name).expect(name);
    let (red, blue) = (flow("red.example"), flow("blue.example"));
    let server = addr(&red["destination.ip"]);
    let end_ns = ns(&red["event.end"]).max(ns(&blue["event.end"]));
    let name = |names_at| {
        rows(Options { names_at, ..of_capture("r2-pair") })[0]["destination.domain"].clone()
    };
    assert_eq!(name(query(end_ns, Some(addr(&red["source.ip"])), server)), "red.example");
    assert_eq!(name(query(end_ns, Some(addr(&blue["source.ip"])), server)), "blue.example");
    assert_eq!(name(query(end_ns, None, server)), "blue.example");
    assert_eq!(name(query(0, None, server)), "");
}

/// A log does not state when it began, so an address without a lookup in it was not looked up.
#[test]
fn logs_name_addresses_too() {
    let dnstap = captures::recorded_folder().join("dnstap-unbound.fstrm");
    let of_log = |text: &str| {
        let names_at = query(i64::MAX, None, addr(text));
        let dnstap = Some(Endpoint::Path(dnstap.clone()));
        let [row] = &rows(Options { dnstap, names_at, ..Options::default() })[..] else {
            panic!("one row")
        };
        (row["destination.domain"].clone(), row["larder.destination.unnamed_reason"].clone())
    };
    assert_eq!(of_log("203.0.113.20"), ("www.green.example".to_owned(), String::new()));
    assert_eq!(of_log("203.0.113.99"), (String::new(), "no_lookup_seen".to_owned()));
}

/// Each format has a line for each address, in the order of the query, twice for the same address; formats for
/// flows are refused.
#[test]
fn a_line_for_each_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let flow = &rows(of_capture("r1-as-asked"))
        .into_iter()
        .find(|flow| !flow["destination.domain"].is_empty())
        .expect("a named flow");
    let addrs = ["::1", &flow["destination.ip"], "::1"].map(addr).to_vec();
    let names_at = Some(AddressQuery { time_ns: ns(&flow["event.end"]), client: None, addrs });
    let run = |format| {
        let output = Endpoint::Path(out.clone());
        let options =
            Options { format, output, names_at: names_at.clone(), ..of_capture("r1-as-asked") };
        run(&options, &Arc::new(Progress::default()))
            .map(|_| std::fs::read_to_string(&out).expect("text"))
    };
    let text = run(OutputFormat::Text).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (3, "::1 - [local]", "::1 - [local]"));
    let wanted = format!("{} {} [dns_", flow["destination.ip"], flow["destination.domain"]);
    assert!(lines[1].starts_with(&wanted), "{text}");
    let ecs = run(OutputFormat::Ecs).expect("JSON");
    let objects: Vec<serde_json::Value> =
        ecs.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(objects.len(), 3);
    assert_eq!(objects[1]["destination.domain"], flow["destination.domain"].as_str());
    assert_eq!(objects[0]["larder.destination.unnamed_reason"], "local");
    assert!(run(OutputFormat::Zeek).is_err());
}
