//! The page of `larder annotate --ui`: what is refused at the start and by the server, and a browser
//! that uses it.
//!
//! `LARDER_AXE=FILE` (axe.min.js) adds the rules of axe-core. `LARDER_SCREENSHOTS=1` draws the pictures
//! of the documentation from traffic of five minutes.
#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::Scratch;
use larder_testkit::dns;
use larder_testkit::frames::{Pcap, read_capture, udp_frame};
use larder_testkit::http::{Connection, fetch};
use larder_testkit::process::{Program, Run};
use larder_testkit::skip::{has, skip};
use larder_testkit::wait::until;
use serde_json::Value;

const SECOND_NS: u64 = 1_000_000_000;
/// The time of the first packet.
const BEGIN_NS: u64 = 1_800_000_000 * SECOND_NS;
const TOKEN: &str = "a-token-of-the-test";

/// Names with markup, an escape of terminals, and a mark that turns the direction of text.
const HOSTILE: [&str; 3] =
    ["<script>window.harmed=1</script>.example", "\u{1b}[31mred.example", "\u{202e}gnp.example"];

/// The records of a capture: the recordings of the demo and of a naming rule, and flows to hostile
/// names, in one minute. `begin_ns` is the time of the first packet.
fn minute(begin_ns: u64) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let demo = read_capture(&root.join("demo/demo.pcapng"));
    let shop = read_capture(&root.join("../../tests/captures/r1-as-asked.pcap"));
    let mut frames: Vec<Vec<u8>> = demo.into_iter().chain(shop).map(|frame| frame.bytes).collect();
    for (number, name) in (1..).zip(HOSTILE) {
        let address = [203, 0, 113, 100 + number];
        let query = dns::query(number.into(), name, dns::A);
        let (client, server) = ([192, 0, 2, 1], [192, 0, 2, 53]);
        frames.push(udp_frame((client, server), (40_000, 53), &query));
        let answer = dns::answer(&query, &[address], 60);
        frames.push(udp_frame((server, client), (53, 40_000), &answer));
        frames.push(udp_frame((client, address), (41_000, 9_999), &[b'x'; 500]));
    }
    let step_ns = 60 * SECOND_NS / frames.len() as u64;
    (0..).zip(&frames).map(|(at, frame)| record(begin_ns + at * step_ns, frame)).collect()
}

/// A record of a capture.
fn record(at_ns: u64, frame: &[u8]) -> Vec<u8> {
    let mut file = Pcap { bytes: Vec::new() };
    file.push(at_ns, frame);
    file.bytes
}

/// The records of two packets, at which all flows of a minute that began at `begin_ns` have been idle
/// for long.
fn end(begin_ns: u64) -> Vec<u8> {
    let last = udp_frame(([192, 0, 2, 1], [192, 0, 2, 53]), (40_000, 9), b"end");
    [500, 501].map(|second| record(begin_ns + second * SECOND_NS, &last)).concat()
}

/// A larder with a page that reads a pipe.
struct Larder {
    program: Program,
    address: SocketAddr,
    pipe: ChildStdin,
}

impl Larder {
    fn start(scratch: &Scratch, name: &str, flags: &str) -> Larder {
        let mut command = scratch.larder();
        let line = format!(
            "annotate -r - -o {name}.log --no-progress --ui 127.0.0.1:0 --serve-hosts a.example,tap.example {flags}"
        );
        command.args(line.split_whitespace()).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut program = Program::start(&mut command);
        let mut pipe = program.child.stdin.take().expect("piped");
        // larder opens its input before it serves.
        pipe.write_all(&Pcap::new(1).bytes).expect("it reads");
        let said = program.wait_for("ui: listening");
        let at = said.split("http://").nth(1).and_then(|at| at.split('/').next());
        Larder { address: at.expect("a URL").parse().expect("an address"), program, pipe }
    }

    /// Sends records.
    fn feed(&mut self, records: &[u8]) {
        self.pipe.write_all(records).expect("it reads");
    }

    /// Sends a minute of packets and, when larder has read them, those that end their flows.
    fn feed_minute(&mut self, begin_ns: u64) {
        let records = minute(begin_ns);
        let packets =
            |larder: &Larder| larder.json("/api/stats")["packets"].as_f64().unwrap_or(0.0);
        let before = packets(self);
        self.feed(&records.concat());
        let wanted = before + records.len() as f64;
        until("all packets", || (packets(self) >= wanted).then_some(()));
        self.feed(&end(begin_ns));
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(fetch(self.address, path).text()).expect("JSON")
    }

    /// Waits until the lists have a name.
    fn wait_for_name(&self, name: &str) -> Value {
        until(name, || {
            let lists = self.json("/api/lists");
            let rows = lists["names"].as_array().expect("rows");
            rows.iter().any(|row| row["name"] == name).then_some(lists.clone())
        })
    }

    /// The status of a request with these header fields.
    fn status(&self, path: &str, fields: &str) -> String {
        let mut connection = Connection::open(self.address);
        connection.send(format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{fields}\r\n"));
        String::from_utf8_lossy(&connection.rest())[9..12].to_owned()
    }
}

/// Addresses that need a token, and settings without an effect, are refused before anything is made.
#[test]
fn starts_are_refused() {
    let scratch = Scratch::new();
    scratch.write("token", TOKEN);
    let refused = |flags: &str, texts: &[&str]| {
        let run = scratch.run(&format!("annotate -o log {flags}"));
        run.refused(texts);
        assert!(!scratch.path("log").exists(), "{flags}");
    };
    refused("-r - --ui 0.0.0.0:0", &["--ui 0.0.0.0:0", "--serve-token FILE", "127.0.0.1:0"]);
    refused("-r - --ui [2001:db8::1]:80", &["needs a token"]);
    refused("-r - --ui 8080", &["--ui \"8080\"", "ADDR:PORT"]);
    refused("-r - --ui unix:", &["--ui unix: no path"]);
    refused("-r - --ui-history h", &["--ui-history has no effect without --ui"]);
    refused("--flows-read f --ui 127.0.0.1:0", &["--ui", "-i IFACE or -r FILE"]);
    refused("-r - --eve e --ui 127.0.0.1:0", &["--ui", "logs of other programs"]);
    refused("-r - --serve-token token", &["no effect without --serve or --ui"]);
}

/// Requests of other sites and hosts get nothing; without the token there is the document alone.
#[test]
fn requests_are_refused() {
    let scratch = Scratch::new();
    scratch.write("token", TOKEN);
    let larder = Larder::start(&scratch, "a", "--serve-token token");
    let right = format!("Host: tap.example\r\nAuthorization: Bearer {TOKEN}\r\n");
    for (path, fields, expected) in [
        ("/", "Host: localhost\r\n", "200"),
        ("/", "Host: evil.example\r\n", "421"),
        ("/", "Host: localhost\r\nOrigin: http://evil.example\r\n", "403"),
        ("/api/stats", "Host: localhost\r\n", "401"),
        ("/api/lists", "Host: localhost\r\nAuthorization: Bearer wrong\r\n", "401"),
        ("/metrics", "Host: localhost\r\n", "401"),
        ("/segments", "Host: localhost\r\n", "401"),
        ("/api/stats", &right, "200"),
        ("/api/history/30d", &right, "200"),
        ("/api/history/31d", &right, "404"),
        ("/segments", &right, "200"),
        ("/metrics", &right, "200"),
    ] {
        assert_eq!(larder.status(path, fields), expected, "{path} {fields}");
    }
}

/// The history and the names of earlier runs are there after a restart, and a damaged file is not.
#[test]
fn history_outlives_a_restart() {
    let scratch = Scratch::new();
    let flags = "--ui-history kept --quiet";
    let mut larder = Larder::start(&scratch, "a", flags);
    larder.feed_minute(BEGIN_NS);
    let lists = larder.wait_for_name("www.shop.example");
    let rows = |lists: &Value, list: &str| lists[list].as_array().expect("rows").len();
    assert!(rows(&lists, "new_names") > HOSTILE.len(), "{lists}");
    let sum = |larder: &Larder| -> f64 {
        let points = larder.json("/api/history/1h")["packets"].clone();
        points.as_array().expect("points").iter().filter_map(Value::as_f64).sum()
    };
    until("a sample", || Some(sum(&larder)).filter(|sum| *sum > 0.0));
    let (code, said) = larder.program.stop();
    assert!(code.is_some(), "{said}");
    let larder = Larder::start(&scratch, "b", flags);
    let after = larder.json("/api/lists");
    // Flows that were open at the end brought more.
    let names = |lists: &Value| -> BTreeSet<String> {
        let rows = lists["new_names"].as_array().expect("rows");
        rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert!(names(&after).is_superset(&names(&lists)), "{after} {lists}");
    assert_eq!(after["begun_s"], lists["begun_s"]);
    // This run has read no packets yet.
    assert!(sum(&larder) > 0.0);
    drop(larder);

    scratch.write("kept", "no history");
    let larder = Larder::start(&scratch, "c", "--ui-history kept");
    assert!(larder.program.has_said("history not read"), "{:?}", larder.program.lines_read);
    assert_eq!(larder.json("/api/lists")["new_names_all"], 0);
}

/// The lists say what the log says.
#[test]
fn lists_are_those_of_the_log() {
    let scratch = Scratch::new();
    let mut larder = Larder::start(&scratch, "a", "--format ecs --quiet");
    larder.feed_minute(BEGIN_NS);
    larder.wait_for_name("www.shop.example");
    let flows = |log: &[Value], name: &str| {
        log.iter().filter(|flow| flow["destination.domain"] == name).count() as u64
    };
    let lists = until("all names", || {
        Some(larder.json("/api/lists"))
            .filter(|lists| lists["names"].as_array().is_some_and(|rows| rows.len() > 8))
    });
    drop(larder);
    let log = scratch.read("a.log");
    let log: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for row in lists["names"].as_array().expect("rows") {
        let name = row["name"].as_str().expect("a name");
        assert_eq!(row["flows"], flows(&log, name), "{name}");
    }
    let conflict = &lists["conflicts"][0];
    assert_eq!(conflict["stated"], "www.bank.example", "{lists}");
    let unresolved: Vec<&Value> = lists["unresolved"].as_array().expect("rows").iter().collect();
    assert!(unresolved.iter().any(|row| row["address"] == "198.51.100.66"), "{lists}");
}

/// A hundred clients get the same texts; clients that do not read, or send nonsense, delay none of the others.
#[test]
fn clients_share_texts() {
    let scratch = Scratch::new();
    let larder = Larder::start(&scratch, "a", "--quiet");
    let mut silent = Vec::new();
    for number in 0..100 {
        let mut connection = Connection::open(larder.address);
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(if number % 2 == 0 {
            50
        } else {
            1
        });
        connection.send(if number % 10 == 3 { "\u{16}\u{3}\u{1}\r\n\r\n" } else { &request });
        silent.push(connection);
    }
    let texts: Vec<String> =
        (0..100).map(|_| fetch(larder.address, "/api/lists").text().to_owned()).collect();
    let differ = texts.windows(2).filter(|two| two[0] != two[1]).count();
    // They were made every five seconds.
    assert!(differ <= 20, "{differ}");
    let stats = until("fewer requests are wanted", || {
        for _ in 0..200 {
            fetch(larder.address, "/api/stats");
        }
        Some(larder.json("/api/stats")).filter(|stats| stats["poll_ms"].as_u64() > Some(1_000))
    });
    assert!(stats["poll_ms"].as_u64() <= Some(60_000), "{stats}");
}

/// axe-core, if the environment names it or the set-up of the checks has installed it.
fn axe() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = root.join("target/ci/axe/node_modules/axe-core/axe.min.js");
    let found = std::env::var_os("LARDER_AXE").map(PathBuf::from);
    found.or(Some(installed)).filter(|path| path.is_file())
}

/// Chromium shows the page, leads from names to flows and packets, and finds nothing to complain of.
#[test]
fn the_page_in_a_browser() {
    let wants_pictures = std::env::var_os("LARDER_SCREENSHOTS").is_some();
    page_in_a_browser("the_page_in_a_browser", "chromium", wants_pictures);
}

/// The same in Firefox, but for the rules of axe-core, which are about the document.
#[test]
fn the_page_in_firefox() {
    page_in_a_browser("the_page_in_firefox", "firefox-esr", false);
}

fn page_in_a_browser(test: &str, browser: &str, wants_pictures: bool) {
    if ![browser, "tshark", "python3"].iter().all(|program| has(test, program)) {
        return;
    }
    let is_firefox = browser == "firefox-esr";
    let axe = if is_firefox { None } else { axe() };
    if !is_firefox && axe.is_none() {
        skip(test, "axe-core is not installed");
    }
    let scratch = Scratch::new();
    scratch.write("token", TOKEN);
    let mut larder = Larder::start(&scratch, "a", "-w a --store 16MiB --quiet");
    let mut locked = Larder::start(&scratch, "b", "-w b --store 16MiB --serve-token token --quiet");
    larder.feed_minute(BEGIN_NS);
    larder.wait_for_name("www.shop.example");
    // Traffic by name is that of complete seconds.
    larder.feed(&minute(BEGIN_NS + 600 * SECOND_NS).concat());
    locked.feed(&[minute(BEGIN_NS).concat(), end(BEGIN_NS)].concat());
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/drive.py");
    let mut command = Command::new("python3");
    command.arg("-B").arg(driver).arg(scratch.write("browser/x", "").parent().expect("a folder"));
    command.args([format!("http://{}/", larder.address), format!("http://{}/", locked.address)]);
    command.arg(TOKEN);
    if let Some(axe) = axe {
        command.arg("--axe").arg(axe);
    }
    if is_firefox {
        command.arg("--firefox");
    }
    if wants_pictures {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screenshots");
        command.arg("--pictures").arg(folder);
    }
    let (pause, is_over) = (Duration::from_millis(35), AtomicBool::new(false));
    let run = std::thread::scope(|scope| {
        let feeding = || {
            // A minute of packets takes a second, and its flows are alive while traffic is sampled.
            for records in (601..).flat_map(|number| minute(BEGIN_NS + number * 600 * SECOND_NS)) {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                larder.feed(&records);
                std::thread::sleep(pause / 10);
            }
        };
        if wants_pictures {
            scope.spawn(feeding);
            std::thread::sleep(Duration::from_secs(300));
        }
        let run = Run::of(&mut command);
        is_over.store(true, Ordering::Release);
        run
    });
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.out, "the page works\n");
}

/// `larder demo --ui` replays its recording for the page with the time of day, stores the packets, and
/// leaves no file.
#[test]
fn the_demo_has_a_page() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("tmp")).expect("made");
    let mut command = scratch.larder();
    command.args(["demo", "--ui", "--listen", "127.0.0.1:0"]).env("TMPDIR", scratch.path("tmp"));
    let mut program = Program::start(command.stdout(Stdio::null()));
    let said = program.wait_for("ui: listening");
    let at = said.split("http://").nth(1).and_then(|at| at.split('/').next());
    let address: SocketAddr = at.expect("a URL").parse().expect("an address");
    let stats = until("packets", || {
        let mut connection = Connection::open(address);
        let fields = "Host: localhost\r\nConnection: close";
        connection.send(format!("GET /api/stats HTTP/1.1\r\n{fields}\r\n\r\n"));
        let response = String::from_utf8(connection.rest()).expect("UTF-8");
        let (_, body) = response.split_once("\r\n\r\n")?;
        let stats: Value = serde_json::from_str(body).ok()?;
        (stats["store"]["packets"].as_u64() > Some(3)).then_some(stats)
    });
    let first_s = stats["store"]["first_ns"].as_f64().expect("a time") / 1e9;
    let now_s = stats["now_s"].as_f64().expect("a time");
    assert!((now_s - first_s).abs() < 3_600.0, "{stats}");
    assert_eq!(std::fs::read_dir(scratch.path("tmp")).expect("a folder").count(), 1);
    let (code, said) = program.stop();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(std::fs::read_dir(scratch.path("tmp")).expect("a folder").count(), 0);
    for (line, text) in [
        ("demo --ui --listen 192.0.2.1:80", "expected a loopback address"),
        ("demo --ui --listen here", "expected ADDR:PORT"),
    ] {
        scratch.run(line).refused(&[text]);
    }
}
