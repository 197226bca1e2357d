//! Logs of other programs, through a whole run: larder learns names from them, and annotates them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_annotate::options::{Endpoint, NameSources, Options, OutputFormat, Summary, Unresolved};
use larder_annotate::{Progress, run};
use larder_testkit::captures::public_traces;

const DNS_HEAD: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n\
    #unset_field\t-\n#path\tdns\n\
    #fields\tts\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\trtt\tquery\tqtype\trcode\tanswers\tTTLs\n\
    #types\ttime\taddr\tport\taddr\tport\tenum\tinterval\tstring\tcount\tcount\tvector[string]\tvector[interval]\n";

const CONN_HEAD: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n\
    #unset_field\t-\n#path\tssl\n\
    #fields\tts\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tserver_name\n\
    #types\ttime\taddr\tport\taddr\tport\tstring\n";

fn dns_row(time: &str, client: &str, query: &str, answers: &str, ttls: &str) -> String {
    format!("{time}\t{client}\t4000\t192.0.2.53\t53\tudp\t-\t{query}\t1\t0\t{answers}\t{ttls}\n")
}

fn ssl_row(time: &str, client: &str, server: &str, name: &str) -> String {
    format!("{time}\t{client}\t4001\t{server}\t443\t{name}\n")
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> Endpoint {
        std::fs::write(self.path(name), text).expect("a file in our folder");
        Endpoint::Path(self.path(name))
    }

    /// Runs into a file, and returns its content.
    fn run(&self, options: &Options) -> (Vec<u8>, Summary) {
        let output = self.path("out");
        let options = Options { output: Endpoint::Path(output.clone()), ..options.clone() };
        let summary = run(&options, &Arc::new(Progress::default())).expect("a run");
        (std::fs::read(output).expect("an output"), summary)
    }
}

/// The rows of a Zeek log by column name, read by the rules of another CSV reader.
fn zeek_rows(log: &[u8]) -> Vec<HashMap<String, String>> {
    let text = std::str::from_utf8(log).expect("ASCII");
    let fields = text.lines().rfind(|line| line.starts_with("#fields")).expect("a header");
    let fields: Vec<&str> = fields.split('\t').skip(1).collect();
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(b'\t')
        .quoting(false)
        .comment(Some(b'#'))
        .has_headers(false)
        .from_reader(log);
    reader
        .records()
        .map(|record| {
            let record = record.expect("as many columns as the rows before");
            assert_eq!(record.len(), fields.len());
            fields.iter().map(ToString::to_string).zip(record.iter().map(str::to_owned)).collect()
        })
        .collect()
}

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures")
}

/// Rows get the name that was valid at their own time, in any order of rows in either log; the
/// client's own lookup comes before that of others; without our columns the log is the original.
#[test]
fn zeek_log_by_zeek_dns() {
    let folder = Folder::new();
    let later = [
        dns_row("100.0", "192.0.2.2", "new.example", "203.0.113.1", "60.0"),
        dns_row("10.0", "192.0.2.2", "www.example", "edge.example,203.0.113.1", "9.0,60.0"),
    ];
    let dns = folder.file("late.log", [DNS_HEAD, &later.concat()].concat());
    let early = dns_row("5.0", "192.0.2.1", "mine.example", "203.0.113.1", "1000.0");
    let more = folder.file("early.log", [DNS_HEAD, &early].concat());
    let rows = [
        ssl_row("101.0", "192.0.2.3", "203.0.113.1", "said.example"),
        ssl_row("11.0", "192.0.2.3", "203.0.113.1", "-"),
        ssl_row("30.0", "192.0.2.3", "203.0.113.1", "-"),
        ssl_row("50.0", "192.0.2.1", "203.0.113.1", "-"),
        ssl_row("1.0", "192.0.2.1", "203.0.113.1", "-"),
        "damaged\n".to_owned(),
    ];
    let log = [CONN_HEAD, &rows.concat(), "#close\t2024\n"].concat();
    let options = Options {
        zeek_dns: vec![dns, more],
        zeek_log: Some(folder.file("ssl.log", &log)),
        format: OutputFormat::Zeek,
        ..Options::default()
    };
    let (out, summary) = folder.run(&options);
    let whole: Vec<u8> =
        out.split_inclusive(|&byte| byte == b'\n').fold(Vec::new(), |mut kept, line| {
            if line != b"damaged\n" {
                kept.extend_from_slice(line);
            }
            kept
        });
    let column = |rows: &[HashMap<String, String>], name: &str| -> Vec<String> {
        rows.iter().map(|row| row[name].clone()).collect()
    };
    let said = zeek_rows(&whole);
    let names = column(&said, "id.resp_h_name.vals");
    assert_eq!(
        names,
        [
            "said.example,new.example,www.example,mine.example",
            "www.example,mine.example",
            "www.example,mine.example",
            "mine.example,www.example",
            "-"
        ]
    );
    let sources = column(&said, "id.resp_h_name.src");
    assert_eq!(sources, ["sni", "dns_address", "dns_address", "dns_pair", "-"]);
    assert_eq!(column(&said, "resp_name_stale"), ["F", "F", "T", "F", "-"]);
    assert_eq!(column(&said, "resp_name_conflict"), ["T", "F", "F", "F", "-"]);
    assert_eq!(column(&said, "resp_name_age_ms"), ["0", "1000", "20000", "45000", "-"]);
    assert_eq!(column(&said, "resp_unnamed_reason")[4], "before_capture");
    assert_eq!((summary.flows, summary.flows_named, summary.answers), (5, 4, 3));
    assert_eq!(summary.damaged["log_line"].count, 1);
    assert!(summary.input_damaged);

    let text = String::from_utf8(out).expect("ASCII");
    let cut: String = text
        .lines()
        .map(|line| {
            let columns = match line {
                line if line.starts_with("#fields") || line.starts_with("#types") => 7,
                line if line.starts_with('#') || line == "damaged" => usize::MAX,
                _ => 6,
            };
            line.split('\t').take(columns).collect::<Vec<_>>().join("\t") + "\n"
        })
        .collect();
    assert_eq!(cut, log);

    let dns_only = Options { names: NameSources::parse("dns").expect("a list"), ..options.clone() };
    let (out, _) = folder.run(&Options { unresolved: Unresolved::All, ..dns_only.clone() });
    let rows = String::from_utf8(out).expect("ASCII");
    assert!(rows.contains("\n1.0\t") && !rows.contains("\n11.0\t"), "{rows}");
    let (out, _) = folder.run(&dns_only);
    let first = String::from_utf8(out).expect("ASCII");
    assert!(first.contains("said.example\t-\t-\tdns_address\tnew.example,www.example"), "{first}");
}

/// A log without the columns that names need, larder's own dns.log or another log of Zeek, is
/// refused in both forms, with the column that it lacks.
#[test]
fn logs_that_teach_nothing_are_refused() {
    let folder = Folder::new();
    let own = "#separator \\x09\n#path\tlarder_dns\n#fields\tts\tpacket\tclient\tserver\tsource\tquery\taliases\tanswers\tTTLs\tsolicited\n";
    let object = "{\"ts\":1.0,\"id.orig_h\":\"192.0.2.1\",\"id.resp_h\":\"203.0.113.1\",\"proto\":\"tcp\"}\n";
    let log = folder
        .file("ssl.log", [CONN_HEAD, &ssl_row("6.0", "192.0.2.1", "203.0.113.1", "-")].concat());
    for (feed, missing) in [
        (own, "no column id.orig_h"),
        (CONN_HEAD, "no column query"),
        (object, "no line has the keys query and id.orig_h"),
    ] {
        let options = Options {
            zeek_dns: vec![folder.file("dns.log", feed)],
            zeek_log: Some(log.clone()),
            output: Endpoint::Path(folder.path("out")),
            ..Options::default()
        };
        let error = larder_annotate::run(&options, &Arc::default()).expect_err("no dns.log");
        assert!(error.to_string().contains(missing), "{error}");
    }
}

/// Names of any bytes are spelled alike in a column and in a key, with `\xHH` for bytes outside
/// printable ASCII.
#[test]
fn hostile_names() {
    let folder = Folder::new();
    let query = "a\\x1b[2J\\x09b\\xff,x.example";
    let rows = dns_row("5.0", "192.0.2.1", &query.replace(',', "\\x2c"), "203.0.113.1", "60.0");
    let options = Options {
        zeek_dns: vec![folder.file("dns.log", [DNS_HEAD, &rows].concat())],
        ..Options::default()
    };
    let log = [CONN_HEAD, &ssl_row("6.0", "192.0.2.1", "203.0.113.1", "-")].concat();
    let zeek = Options { zeek_log: Some(folder.file("ssl.log", log)), ..options.clone() };
    let (out, _) = folder.run(&zeek);
    assert!(out.iter().all(|byte| matches!(byte, b'\t' | b'\n' | 0x20..0x7f)));
    assert_eq!(zeek_rows(&out)[0]["id.resp_h_name.vals"], "a\\x1b[2j\\x09b\\xff\\x2cx.example");
    let event = "{\"timestamp\":\"1970-01-01T00:00:06Z\",\"src_ip\":\"192.0.2.1\",\"dest_ip\":\"203.0.113.1\"}\n";
    let eve = Options { eve: Some(folder.file("eve.json", event)), ..options };
    let (out, _) = folder.run(&eve);
    assert!(out.iter().all(|byte| matches!(byte, b'\n' | 0x20..0x7f)));
    let read: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(read["destination.domain"], r"a\x1b[2j\x09b\xff,x.example");
}

/// An EVE log gives itself names: its DNS events name its flows, also those that are logged after a
/// later answer; a packet of the responder gets the name at its source; no byte is lost.
#[test]
fn eve_teaches_itself() {
    let event = |time: &str, ends: &str, rest: &str| {
        format!("{{\"timestamp\":\"1970-01-01T00:00:{time}Z\",{ends},\"proto\":\"TCP\",{rest}}}\n")
    };
    let flow = r#""src_ip":"192.0.2.1","src_port":5,"dest_ip":"203.0.113.1","dest_port":443"#;
    let back = r#""src_ip":"203.0.113.1","src_port":443,"dest_ip":"192.0.2.1","dest_port":5"#;
    let dns = r#""src_ip":"192.0.2.1","src_port":9,"dest_ip":"192.0.2.53","dest_port":53"#;
    let answer = |name: &str| {
        format!(
            r#""event_type":"dns","dns":{{"type":"answer","rrname":"{name}","rrtype":"A","rcode":"NOERROR","answers":[{{"rrtype":"A","ttl":60,"rdata":"203.0.113.1"}}]}}"#
        )
    };
    let lines = [
        event("01", dns, &answer("one.example")),
        event("02", flow, r#""event_type":"tls","tls":{"sni":"one.example"}"#),
        event("03", back, r#""event_type":"alert","direction":"to_client""#),
        event("04", dns, &answer("two.example")),
        event("05", flow, r#""event_type":"flow","flow":{"start":"1970-01-01T00:00:02Z"}"#),
        "no json\n".to_owned(),
        "\n".to_owned(),
        "{\"event_type\":\"stats\"}".to_owned(),
    ];
    let folder = Folder::new();
    let names = NameSources::parse("dns").expect("a list");
    let eve = folder.file("eve.json", lines.concat());
    let (out, summary) =
        folder.run(&Options { eve: Some(eve.clone()), names, ..Options::default() });
    let out = String::from_utf8(out).expect("ASCII");
    let made: Vec<&str> = out.split_inclusive('\n').collect();
    assert_eq!(made.len(), lines.len());
    for (line, made) in lines.iter().zip(&made) {
        let kept = line.trim_end_matches(['}', '\n']);
        assert!(made.starts_with(kept) && line.len() <= made.len(), "{made}");
    }
    assert_eq!(made[5..], lines[5..]);
    let read = |at: usize| -> serde_json::Value { serde_json::from_str(made[at]).expect("JSON") };
    assert_eq!(read(1)["destination.domain"], "one.example");
    assert_eq!(read(1)["larder.destination.name_source"], "dns_pair");
    assert_eq!(read(2)["source.domain"], "one.example");
    assert_eq!(read(2)["destination.domain"], serde_json::Value::Null);
    assert_eq!(read(4)["destination.domain"], "one.example");
    assert_eq!(summary.damaged["log_line"].count, 1);
    assert_eq!(summary.answers, 2);

    let (out, _) = folder.run(&Options { eve: Some(eve), ..Options::default() });
    let all = String::from_utf8(out).expect("ASCII");
    let tls: serde_json::Value =
        serde_json::from_str(all.lines().nth(1).expect("a line")).expect("JSON");
    assert_eq!(tls["larder.destination.name_source"], "sni");
}

/// dnstap that a real server wrote names the flows of a log, at the times of its answers.
#[test]
fn dnstap_file() {
    let folder = Folder::new();
    let rows = rows_of_recorded(&folder);
    // The name that the same lookup gives in r2-between.pcap.
    assert!(!rows.is_empty());
    for row in &rows {
        let first = row["id.resp_h_name.vals"].split(',').next();
        assert_eq!(first, Some("www.green.example"), "{row:?}");
        assert_eq!(row["resp_name_late"], "F");
    }
}

/// Annotates a log that has every address of the recorded stream, with the options of `--dnstap`.
fn rows_of_recorded(folder: &Folder) -> Vec<HashMap<String, String>> {
    let dnstap = Endpoint::Path(captures().join("dnstap-unbound.fstrm"));
    let options = Options {
        dnstap: Some(dnstap),
        zeek_log: Some(folder.file("conn.log", recorded_log())),
        ..Options::default()
    };
    zeek_rows(&folder.run(&options).0)
}

/// A row for every address that the recorded stream answers, a century later.
fn recorded_log() -> String {
    let stream = std::fs::read(captures().join("dnstap-unbound.fstrm")).expect("a recording");
    let mut frames = larder_io::frame_streams::Frames::open(stream.as_slice()).expect("a stream");
    let mut extract = larder_wire::dns::answers::Extract::new();
    let mut log = CONN_HEAD.to_owned();
    while let Some(frame) = frames.next_frame().expect("a whole stream") {
        let observation =
            larder_annotate::feeds::dns_observation::DnsObservation::of_dnstap(frame, &mut extract);
        for (addr, _) in observation
            .expect("a sound frame")
            .into_iter()
            .flat_map(|observation| observation.addresses)
        {
            log += &ssl_row("5000000000.0", "198.51.100.1", &addr.to_string(), "-");
        }
    }
    log
}

/// A server that connects to our socket gives the same names as the same stream in a file; the
/// socket is removed when the run ends.
#[test]
fn dnstap_socket() {
    let folder = Folder::new();
    let from_file = rows_of_recorded(&folder);
    let path = folder.path("tap.sock");
    let sender = {
        let path = path.clone();
        std::thread::spawn(move || send_recorded(&path))
    };
    let options = Options {
        dnstap: Some(Endpoint::Path(path.clone())),
        zeek_log: Some(folder.file("conn.log", recorded_log())),
        ..Options::default()
    };
    let (out, summary) = folder.run(&options);
    sender.join().expect("a sender that was heard to its end");
    assert_eq!(zeek_rows(&out), from_file);
    assert!(summary.damaged.is_empty(), "{:?}", summary.damaged);
    assert!(!path.exists());
}

/// Each line of a growing log is annotated before its writer continues, with names that arrive over
/// a socket meanwhile; the socket is removed at the end of the log.
#[test]
fn growing_log_and_socket() {
    let folder = Folder::new();
    let expected = rows_of_recorded(&folder);
    let (pipe, socket, out) = (folder.path("pipe"), folder.path("tap.sock"), folder.path("live"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let options = Options {
        dnstap: Some(Endpoint::Path(socket.clone())),
        zeek_log: Some(Endpoint::Path(pipe.clone())),
        output: Endpoint::Path(out.clone()),
        ..Options::default()
    };
    let runner = std::thread::spawn(move || run(&options, &Arc::new(Progress::default())));
    let mut writer = std::fs::File::create(&pipe).expect("the run opens its end");
    let log = recorded_log();
    let (head, rows) = log.split_at(CONN_HEAD.len());
    writer.write_all(head.as_bytes()).expect("a header is taken");
    // Once the sender has the FINISH, larder has read every frame.
    send_recorded(&socket);
    writer.write_all(rows.as_bytes()).expect("rows are taken");
    // The writer stays open: only what larder flushes without a close can be seen.
    let lines = log.lines().count();
    let seen = (0..3_000).find_map(|_| {
        let seen = std::fs::read(&out).unwrap_or_default();
        if seen.iter().filter(|&&byte| byte == b'\n').count() == lines {
            return Some(seen);
        }
        std::thread::sleep(Duration::from_millis(10));
        None
    });
    assert_eq!(zeek_rows(&seen.expect("all lines, while the pipe is open")), expected);
    drop(writer);
    let summary = runner.join().expect("no panic").expect("a run");
    assert!(summary.damaged.is_empty() && !socket.exists());
}

/// Speaks the two-way form of Frame Streams, with the frames of the recorded one-way stream.
fn send_recorded(path: &Path) {
    let stream = std::fs::read(captures().join("dnstap-unbound.fstrm")).expect("a recording");
    let mut socket = loop {
        match UnixStream::connect(path) {
            Ok(socket) => break socket,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let control = |kind: u32| {
        let content: &[u8] = b"protobuf:dnstap.Dnstap";
        let parts: [&[u8]; 6] = [
            &0u32.to_be_bytes(),
            &(12 + content.len() as u32).to_be_bytes(),
            &kind.to_be_bytes(),
            &1u32.to_be_bytes(),
            &(content.len() as u32).to_be_bytes(),
            content,
        ];
        parts.concat()
    };
    socket.write_all(&control(4)).expect("READY is taken");
    let mut accept = vec![0; control(1).len()];
    socket.read_exact(&mut accept).expect("an answer");
    assert_eq!(accept, control(1));
    // The recording opens with START and ends with STOP, as this stream must.
    socket.write_all(&stream).expect("the stream is taken");
    let mut finish = [0; 12];
    socket.read_exact(&mut finish).expect("FINISH");
    assert_eq!(finish[8..], 5u32.to_be_bytes());
}

/// Names from a log name the flows of a capture without DNS, from the packet on: an answer between
/// two flows names only the second.
#[test]
fn capture_named_by_a_log() {
    let folder = Folder::new();
    let capture = folder.path("flows.pcap");
    let mut pcap = Vec::new();
    pcap.extend_from_slice(&0xa1b2_c3d4u32.to_le_bytes());
    pcap.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    pcap.extend_from_slice(&65_535u32.to_le_bytes());
    pcap.extend_from_slice(&101u32.to_le_bytes());
    for (time_s, port) in [(10u32, 1000u16), (20, 1001), (30, 1002)] {
        let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 203, 0, 113, 1];
        ip.extend_from_slice(&port.to_be_bytes());
        ip.extend_from_slice(&[0x27, 0x0f, 0, 8, 0, 0]);
        for number in [time_s, 0, ip.len() as u32, ip.len() as u32] {
            pcap.extend_from_slice(&number.to_le_bytes());
        }
        pcap.extend_from_slice(&ip);
    }
    std::fs::write(&capture, pcap).expect("a file in our folder");
    let rows = [
        dns_row("25.0", "192.0.2.1", "three.example", "203.0.113.1", "60.0"),
        dns_row("15.0", "192.0.2.1", "two.example", "203.0.113.1", "60.0"),
        dns_row("5.0", "192.0.2.1", "one.example", "203.0.113.1", "60.0"),
    ];
    let dns = folder.file("dns.log", [DNS_HEAD, &rows.concat()].concat());
    for cores in [1, 2] {
        let options = Options {
            read: vec![Endpoint::Path(capture.clone())],
            zeek_dns: vec![dns.clone()],
            format: OutputFormat::Ecs,
            cores,
            ..Options::default()
        };
        let (out, summary) = folder.run(&options);
        let names: Vec<String> = String::from_utf8(out)
            .expect("UTF-8")
            .lines()
            .map(|line| {
                let flow: serde_json::Value = serde_json::from_str(line).expect("JSON");
                format!("{} {}", flow["source.port"], flow["destination.domain"])
            })
            .collect();
        let expected = ["1000 \"one.example\"", "1001 \"two.example\"", "1002 \"three.example\""];
        assert_eq!(names, expected, "{cores} cores");
        assert_eq!(summary.answers, 3);
    }
}

/// Contradicting options are refused with advice.
#[test]
fn contradictions_are_refused() {
    let folder = Folder::new();
    let log = folder.file("x.log", CONN_HEAD);
    let base = Options { zeek_log: Some(log.clone()), ..Options::default() };
    let refusal = |options: Options| {
        run(&options, &Arc::new(Progress::default())).expect_err("a refusal").to_string()
    };
    let both = Options { read: vec![log.clone()], ..base.clone() };
    assert!(refusal(both).contains("--names-load"));
    assert!(refusal(Options { eve: Some(log), ..base.clone() }).contains("run larder twice"));
    let other = Options { format: OutputFormat::Csv, ..base.clone() };
    assert!(refusal(other).contains("--format"));
    let missing = Options { dnstap: Some(Endpoint::Path(folder.path("none"))), ..base };
    assert!(refusal(missing).contains(".sock"));
}

/// On the logs of a real network (89 clients, most behind resolvers of their own), names by DNS
/// alone against the server names that the flows said: 6,191 rows with a server name that is no
/// address, of which 6,087 get a name, 5,586 the right one, and 5,957 have it among the
/// candidates. (5,630 would be right if an alias could rename a site of another owner.) Every other
/// byte of the log is as it was.
#[test]
fn real_network() {
    let Some(traces) = public_traces("real_network") else { return };
    let trace =
        |kind: &str| Endpoint::Path(traces.join(format!("wrccdc2018-{kind}-first-half.log.gz")));
    let folder = Folder::new();
    let (out, summary) = folder.run(&Options {
        zeek_dns: vec![trace("dns")],
        zeek_log: Some(trace("ssl")),
        names: NameSources::parse("dns").expect("a list"),
        format: OutputFormat::Zeek,
        ..Options::default()
    });
    assert!(summary.damaged.is_empty(), "{:?}", summary.damaged);
    let (mut flows, mut covered, mut exact, mut among) = (0, 0, 0, 0);
    let mut clients = std::collections::HashSet::new();
    for row in zeek_rows(&out) {
        let truth = row["server_name"].to_ascii_lowercase();
        let truth = truth.trim_end_matches('.');
        let is_addr = truth.parse::<std::net::IpAddr>().is_ok();
        if truth == "-" || truth == "(empty)" || is_addr {
            continue;
        }
        flows += 1;
        clients.insert(row["id.orig_h"].clone());
        let names = &row["id.resp_h_name.vals"];
        if names != "-" {
            covered += 1;
            exact += usize::from(names.split(',').next() == Some(truth));
            among += usize::from(names.split(',').any(|name| name == truth));
        }
    }
    println!(
        "{flows} flows of {} clients: {covered} covered, {exact} exact, {among} among",
        clients.len()
    );
    assert_eq!((clients.len(), flows, covered), (89, 6_191, 6_087));
    assert!(exact >= 5_586 && among >= 5_951, "{exact} exact, {among} among the candidates");
}
