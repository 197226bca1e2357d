//! `--format ipfix`: what is in the messages is what the CSV log of the same run says, as a reader of RFC 7011
//! alone, tshark, nfdump and larder itself read it.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_annotate::format::ipfix::{ENTERPRISE, MESSAGE_BYTES_MAX, OWN, camel_case};
use larder_annotate::options::{Endpoint, OutputFormat};
use larder_annotate::{Options, Progress, run};
use larder_testkit::frames::{Pcap, udp_frame};
use larder_testkit::nfcapd::Nfcapd;
use larder_testkit::{captures, process, skip};

type Row = BTreeMap<String, String>;

fn recordings() -> Vec<PathBuf> {
    let names = ["r1-as-asked", "r2-pair", "r3-newer", "r7-late", "r9-answers-only"];
    names.map(|name| captures::recorded_folder().join(format!("{name}.pcap"))).to_vec()
}

fn annotate(options: Options) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("out");
    let options = Options { output: Endpoint::Path(output.clone()), ..options };
    run(&options, &Arc::new(Progress::default())).expect("a run");
    std::fs::read(output).expect("a log")
}

fn log(capture: &Path, format: OutputFormat) -> Vec<u8> {
    annotate(Options { read: vec![Endpoint::Path(capture.into())], format, ..Options::default() })
}

fn csv(bytes: &[u8]) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(bytes);
    reader.deserialize().map(|record| record.expect("a record")).collect()
}

fn split_messages(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (message, rest) = bytes.split_at(number(&bytes[2..4]) as usize);
        assert!(message.len() <= MESSAGE_BYTES_MAX, "{}", message.len());
        messages.push(message);
        bytes = rest;
    }
    messages
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A reader of RFC 7011, section 3: knows the templates of the file, and no others.
#[derive(Default)]
struct Reader {
    /// By template: element, bytes, enterprise.
    templates: BTreeMap<u16, Vec<(u16, u16, u32)>>,
    /// By element of larder: data type and name.
    types: BTreeMap<u16, (u8, String)>,
    records: Vec<BTreeMap<(u32, u16), Vec<u8>>>,
    /// Records so far, those of types too: a message states how many came before it.
    count: u64,
}

impl Reader {
    fn read(bytes: &[u8]) -> Reader {
        let mut reader = Reader::default();
        for message in split_messages(bytes) {
            assert_eq!((number(&message[..2]), number(&message[8..12])), (10, reader.count));
            let mut sets = &message[16..];
            while !sets.is_empty() {
                let (set, rest) = sets.split_at(number(&sets[2..4]) as usize);
                reader.set(number(&set[..2]) as u16, &set[4..]);
                sets = rest;
            }
        }
        reader
    }

    fn set(&mut self, kind: u16, mut body: &[u8]) {
        while !body.is_empty() {
            body = match kind {
                2 | 3 => self.template(body, if kind == 2 { 4 } else { 6 }),
                _ => self.record(kind, body),
            };
        }
    }

    fn template<'b>(&mut self, body: &'b [u8], head: usize) -> &'b [u8] {
        let (mut elements, mut rest) = (Vec::new(), &body[head..]);
        for _ in 0..number(&body[2..4]) {
            let (kind, bytes) = (number(&rest[..2]) as u16, number(&rest[2..4]) as u16);
            let is_own = kind & 0x8000 != 0;
            let enterprise = if is_own { number(&rest[4..8]) as u32 } else { 0 };
            rest = &rest[if is_own { 8 } else { 4 }..];
            elements.push((kind & 0x7fff, bytes, enterprise));
        }
        let before = self.templates.insert(number(&body[..2]) as u16, elements.clone());
        assert!(before.is_none_or(|before| before == elements), "a template never changes");
        rest
    }

    fn record<'b>(&mut self, kind: u16, body: &'b [u8]) -> &'b [u8] {
        let (mut record, mut rest) = (BTreeMap::new(), body);
        for (element, bytes, enterprise) in self.templates.get(&kind).expect("templates come first")
        {
            let mut len = usize::from(*bytes);
            if *bytes == 65_535 {
                (len, rest) = match rest[0] {
                    255 => (number(&rest[1..3]) as usize, &rest[3..]),
                    short => (usize::from(short), &rest[1..]),
                };
            }
            let (value, after) = rest.split_at(len);
            assert!(record.insert((*enterprise, *element), value.to_vec()).is_none());
            rest = after;
        }
        self.count += 1;
        match record.get(&(0, 303)) {
            Some(element) => {
                assert_eq!(number(&record[&(0, 346)]), u64::from(ENTERPRISE));
                let name = String::from_utf8(record[&(0, 341)].clone()).expect("a name");
                self.types.insert(number(element) as u16, (record[&(0, 339)][0], name));
            }
            None => self.records.push(record),
        }
        rest
    }

    /// A record under the names of the fields of the schema.
    fn row(&self, record: &BTreeMap<(u32, u16), Vec<u8>>) -> Row {
        let mut row = Row::new();
        let reverse = 29_305;
        let is_v6 = number(&record[&(0, 60)]) == 6;
        for (end, address, port, direction) in
            [("source", (27, 8), 7, 0), ("destination", (28, 12), 11, reverse)]
        {
            let address = match is_v6 {
                true => {
                    let bytes: [u8; 16] = record[&(0, address.0)][..].try_into().expect("16 bytes");
                    std::net::Ipv6Addr::from(bytes).to_string()
                }
                false => {
                    let bytes: [u8; 4] = record[&(0, address.1)][..].try_into().expect("4 bytes");
                    std::net::Ipv4Addr::from(bytes).to_string()
                }
            };
            row.insert(format!("{end}.ip"), address);
            row.insert(format!("{end}.port"), number(&record[&(0, port)]).to_string());
            row.insert(format!("{end}.bytes"), number(&record[&(direction, 1)]).to_string());
            row.insert(format!("{end}.packets"), number(&record[&(direction, 2)]).to_string());
        }
        for (element, field) in OWN {
            let (data_type, name) = &self.types[&element];
            assert_eq!(*name, camel_case(field));
            let value = &record[&(ENTERPRISE, element)];
            let text = match data_type {
                13 => String::from_utf8(value.clone()).expect("a string"),
                4 => number(value).to_string(),
                11 => ["true", "false"][usize::from(value[0]) - 1].to_owned(),
                other => panic!("no data type of larder's: {other}"),
            };
            row.insert(field.to_owned(), text);
        }
        row
    }
}

/// Each field of each record is that of CSV; what is absent there is empty, 0 or false here. The times of the
/// standard elements are those of the log in milliseconds.
#[test]
fn fields_are_those_of_csv() {
    let mut count = 0;
    for capture in recordings().iter().chain(&captures::public()) {
        let reader = Reader::read(&log(capture, OutputFormat::Ipfix));
        let expected = csv(&log(capture, OutputFormat::Csv));
        assert_eq!(reader.records.len(), expected.len(), "{}", capture.display());
        for (record, expected) in reader.records.iter().zip(&expected) {
            for (field, value) in reader.row(record) {
                let is_same = match expected[&field].as_str() {
                    "" => ["", "0", "false"].contains(&value.as_str()),
                    // In CSV a cell that a spreadsheet would run begins with an apostrophe.
                    text => text.trim_start_matches('\'') == value,
                };
                assert!(is_same, "{}: {field} {:?} {value:?}", capture.display(), expected[&field]);
            }
            let start_ms = number(&record[&(0, 152)]);
            let ms = larder_wire::civil::Civil::from_ns(start_ms as i64 * 1_000_000).rfc3339();
            let ms = String::from_utf8_lossy(&ms[..23]).into_owned();
            assert_eq!(ms, expected["event.start"][..23]);
            assert!(number(&record[&(0, 153)]) >= start_ms);
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

/// The messages as datagrams to a collector, in a capture.
fn datagrams(bytes: &[u8]) -> Vec<u8> {
    let mut pcap = Pcap::new(1);
    for (at, message) in (1..).zip(split_messages(bytes)) {
        let frame = udp_frame(([192, 0, 2, 1], [192, 0, 2, 2]), (40_000, 4_739), message);
        pcap.push(1_800_000_000_000_000_000 + at, &frame);
    }
    pcap.bytes
}

/// tshark finds nothing malformed, and the same ends, packets and bytes of the flows.
#[test]
fn flows_are_those_of_tshark() {
    if !skip::is_installed("tshark") {
        return skip::skip("flows_are_those_of_tshark", "no tshark");
    }
    let folder = tempfile::tempdir().expect("a folder");
    for capture in recordings() {
        let path = folder.path().join("messages.pcap");
        std::fs::write(&path, datagrams(&log(&capture, OutputFormat::Ipfix))).expect("room");
        let options = ["-n", "-d", "udp.port==4739,cflow", "-E", "aggregator=|"];
        let all = |fields: &[&str]| -> Vec<Vec<String>> {
            let lines = process::tshark(&path, &options, fields).expect("tshark");
            let split = |line: &String| -> Vec<String> {
                line.split(['\t', '|']).filter(|it| !it.is_empty()).map(str::to_owned).collect()
            };
            lines.iter().map(split).collect()
        };
        assert!(all(&["_ws.malformed", "_ws.expert.message"]).concat().is_empty());
        let expected = csv(&log(&capture, OutputFormat::Csv));
        for (field, of_tshark) in [
            ("source.ip", "cflow.srcaddr"),
            ("destination.ip", "cflow.dstaddr"),
            ("source.port", "cflow.srcport"),
            ("destination.port", "cflow.dstport"),
        ] {
            let ours: Vec<&str> = expected
                .iter()
                .filter(|row| row["network.type"] == "ipv4")
                .map(|row| &*row[field])
                .collect();
            let ours: Vec<&str> =
                ours.into_iter().map(|text| if text.is_empty() { "0" } else { text }).collect();
            assert_eq!(all(&[of_tshark]).concat(), ours, "{field} of {}", capture.display());
        }
    }
}

/// larder reads its own messages as those of a router: the same ends and counts of the same flows.
#[test]
fn larder_reads_its_own_flows() {
    let folder = tempfile::tempdir().expect("a folder");
    for capture in recordings() {
        let path = folder.path().join("messages.pcap");
        std::fs::write(&path, datagrams(&log(&capture, OutputFormat::Ipfix))).expect("room");
        let format = OutputFormat::Csv;
        let flows_read = vec![Endpoint::Path(path)];
        let again = csv(&annotate(Options { flows_read, format, ..Options::default() }));
        let key = |row: &Row| {
            [
                "source.ip",
                "destination.ip",
                "source.port",
                "destination.port",
                "source.packets",
                "destination.bytes",
            ]
            .map(|field| row[field].clone())
        };
        let sorted = |rows: &[Row]| {
            let with_ports = |row: &&Row| ["tcp", "udp"].contains(&&*row["network.transport"]);
            let mut keys: Vec<_> = rows.iter().filter(with_ports).map(key).collect();
            keys.sort();
            keys
        };
        let expected = csv(&log(&capture, format));
        assert!(!expected.is_empty());
        assert_eq!(sorted(&again), sorted(&expected), "{}", capture.display());
    }
}

/// A collector gets the bytes of the file, a message a datagram; a run whose collector does not listen ends well.
#[test]
fn a_collector_gets_the_file() {
    let capture = &recordings()[1];
    let file = log(capture, OutputFormat::Ipfix);
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    collector.set_read_timeout(Some(Duration::from_secs(5))).expect("it may wait");
    let send_to = |address| Options {
        read: vec![Endpoint::Path(capture.clone())],
        format: OutputFormat::Ipfix,
        ipfix_to: Some(address),
        ..Options::default()
    };
    let address = collector.local_addr().expect("an address");
    assert!(annotate_to_nowhere(&send_to(address)), "nothing is written to -o");
    let mut received = Vec::new();
    let mut datagram = [0; 65_535];
    while received.len() < file.len() {
        let bytes = collector.recv(&mut datagram).expect("more comes");
        received.extend_from_slice(&datagram[..bytes]);
    }
    assert_eq!(received, file);
    drop(collector);
    assert!(annotate_to_nowhere(&send_to(address)));
}

/// Runs without a file of output; true where none was made.
fn annotate_to_nowhere(options: &Options) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    let options = Options { output: Endpoint::Path(path.clone()), ..options.clone() };
    let summary = run(&options, &Arc::new(Progress::default())).expect("a run");
    assert!(summary.flows > 0);
    !path.exists()
}

/// nfdump's collector stores the flows that the CSV log has: ends, packets and bytes.
#[test]
fn flows_are_those_of_nfdump() {
    if !skip::has("flows_are_those_of_nfdump", "nfcapd") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let nfcapd = Nfcapd::start(folder.path());
    let capture = &recordings()[1];
    let options = Options {
        read: vec![Endpoint::Path(capture.clone())],
        format: OutputFormat::Ipfix,
        ipfix_to: Some(nfcapd.address),
        ..Options::default()
    };
    run(&options, &Arc::new(Progress::default())).expect("a run");
    let found = nfcapd.records("%ts|%te|%pr|%sa|%sp|%da|%dp|%ipkt|%ibyt|%opkt|%obyt");
    let mut expected: Vec<String> = csv(&log(capture, OutputFormat::Csv))
        .iter()
        .map(|row| {
            let protocol = if row["network.transport"] == "tcp" { "6" } else { "17" };
            let time = |field: &str| row[field][..23].replace('T', "");
            [
                &time("event.start"),
                &time("event.end"),
                protocol,
                &row["source.ip"],
                &row["source.port"],
                &row["destination.ip"],
                &row["destination.port"],
                &row["source.packets"],
                &row["source.bytes"],
                &row["destination.packets"],
                &row["destination.bytes"],
            ]
            .map(|text| text.to_owned())
            .join("|")
        })
        .collect();
    expected.sort();
    assert_eq!(found, expected);
}
