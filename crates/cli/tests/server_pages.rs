//! The pages of `larder dns --ui` and `larder http --ui`: what is refused at the start and by the server, and a
//! browser that uses them.
//!
//! `LARDER_AXE=FILE` (axe.min.js) adds the rules of axe-core. `LARDER_SCREENSHOTS=1` draws the pictures of the
//! documentation.
#![cfg(target_os = "linux")]

mod common;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::Scratch;
use common::server::Server;
use larder_testkit::http::{Connection, fetch};
use larder_testkit::process::{Program, Run};
use larder_testkit::skip::{has, skip};
use larder_testkit::wait::until;
use larder_testkit::{dns, http};
use serde_json::Value;

const TOKEN: &str = "a-token-of-the-test";

/// Names with markup, an escape of terminals, and a mark that turns the direction of text.
const HOSTILE: [&str; 4] = [
    "<script>window.harmed=1</script>.example",
    "\u{1b}[31mred.example",
    "\u{202e}gnp.example",
    "<img src=x>.ads.example",
];

/// A DNS server with a page.
struct Dns {
    server: Server,
    page: SocketAddr,
}

impl Dns {
    /// Starts it; its upstream answers every name.
    fn start(scratch: &Scratch, upstream: &dns::Server, flags: &str) -> Dns {
        let block = scratch.write("block", "ads.example\n");
        let mut command = scratch.larder();
        command.args(["dns", "--listen", "127.0.0.1:0", "--cores", "2", "--ui", "127.0.0.1:0"]);
        command.args([
            "--upstream",
            &upstream.address.to_string(),
            "--ui-hosts",
            "a.example,tap.example",
        ]);
        command.arg("--blocklist").arg(block).args(flags.split_whitespace());
        let mut program = Program::start(&mut command);
        let page = page_of(&program.wait_for("ui: listening"));
        let line = program.wait_for("dns: listening address=");
        let address = larder_testkit::process::value(&line, "address").parse().expect("an address");
        Dns { server: Server::of(program, address), page }
    }

    fn json(&self, path: &str) -> Value {
        json(self.page, path)
    }

    /// Waits until a list has a name.
    fn wait_for_name(&self, list: &str, name: &str) -> Value {
        until(name, || {
            let lists = self.json("/api/lists");
            let rows = lists[list].as_array().expect("rows");
            rows.iter().any(|row| row["name"] == name).then_some(lists.clone())
        })
    }
}

/// Sends queries to a DNS server, some of them twice, and some hostile ones.
fn ask(server: SocketAddr) {
    let names = ["www.shop.example", "chat.news.example", "www.shop.example", "mail.example"];
    for (number, name) in (1..).zip(names.iter().chain(&HOSTILE)) {
        dns::exchange(server, &dns::query(number, name, dns::A));
    }
}

/// Sends queries as people do, for a picture: the name of a site, and parts of it.
fn ask_as_people(server: SocketAddr, round: u16) {
    let names = ["www.shop.example", "chat.news.example", "mail.example", "time.example"];
    let own = ["www.shop.example".to_owned(), format!("img{}.cdn.example", round % 80)];
    let blocked = round.is_multiple_of(9).then(|| format!("t{}.ads.example", round % 4));
    let often = names[usize::from(round) * 7 % 11 % names.len()].to_owned();
    for (number, name) in (1..).zip(own.into_iter().chain([often]).chain(blocked)) {
        let rtype = if round.is_multiple_of(3) { 28 } else { dns::A };
        dns::exchange(server, &dns::query(number, name, rtype));
    }
}

/// The address of the page, from its line in the log.
fn page_of(line: &str) -> SocketAddr {
    let at = line.split("http://").nth(1).and_then(|at| at.split('/').next());
    at.expect("a URL").parse().expect("an address")
}

fn json(address: SocketAddr, path: &str) -> Value {
    serde_json::from_str(fetch(address, path).text()).expect("JSON")
}

/// The status of a request with these header fields.
fn status(address: SocketAddr, path: &str, fields: &str) -> String {
    let mut connection = Connection::open(address);
    connection.send(format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{fields}\r\n"));
    String::from_utf8_lossy(&connection.rest())[9..12].to_owned()
}

/// Addresses that need a token, and settings without an effect, are refused at the start.
#[test]
fn starts_are_refused() {
    let scratch = Scratch::new();
    scratch.write("token", TOKEN);
    scratch.write("bad", "two words\n");
    let refused = |flags: &str, texts: &[&str]| {
        let run = scratch.run(&format!("dns --listen 127.0.0.1:0 --upstream 127.0.0.1:9 {flags}"));
        run.refused(texts);
    };
    refused("--ui 0.0.0.0:0", &["--ui 0.0.0.0:0", "--ui-token FILE", "127.0.0.1:0"]);
    refused("--ui [2001:db8::1]:80", &["needs a token"]);
    refused("--ui 8080", &["--ui \"8080\"", "ADDR:PORT"]);
    refused("--ui unix:", &["--ui unix: no path"]);
    refused("--ui-history h", &["--ui-history has no effect without --ui"]);
    refused("--ui-token token", &["--ui-token has no effect without --ui"]);
    refused("--ui-hosts a.example", &["--ui-hosts has no effect without --ui"]);
    refused("--ui 127.0.0.1:0 --ui-hosts http://a", &["--ui-hosts", "without scheme"]);
    refused("--ui 127.0.0.1:0 --ui-token absent", &["--ui-token absent", "create a token"]);
    refused("--ui 127.0.0.1:0 --ui-token bad", &["--ui-token bad", "one line"]);
}

/// Requests of other sites and hosts get nothing; without the token there is the document alone.
#[test]
fn requests_are_refused() {
    let scratch = Scratch::new();
    scratch.write("token", TOKEN);
    let upstream = dns::Server::of_address([192, 0, 2, 7]);
    let dns = Dns::start(&scratch, &upstream, "--ui-token token");
    let right = format!("Host: tap.example\r\nAuthorization: Bearer {TOKEN}\r\n");
    for (path, fields, expected) in [
        ("/", "Host: localhost\r\n", "200"),
        ("/", "Host: evil.example\r\n", "421"),
        ("/", "Host: localhost\r\nOrigin: http://evil.example\r\n", "403"),
        ("/api/stats", "Host: localhost\r\n", "401"),
        ("/api/recent", "Host: localhost\r\nAuthorization: Bearer wrong\r\n", "401"),
        ("/metrics", "Host: localhost\r\n", "401"),
        ("/api/stats", &right, "200"),
        ("/api/history/30d", &right, "200"),
        ("/api/history/31d", &right, "404"),
        ("/metrics", &right, "200"),
    ] {
        assert_eq!(status(dns.page, path, fields), expected, "{path} {fields}");
    }
}

/// Queries become rows and numbers, which say what `larder ctl stats` says, and the history outlives a restart.
#[test]
fn queries_become_rows() {
    let scratch = Scratch::new();
    let upstream = dns::Server::of_address([192, 0, 2, 7]);
    let dns = Dns::start(&scratch, &upstream, "--ui-history kept");
    ask(dns.server.address);
    let lists = dns.wait_for_name("names", "www.shop.example.");
    let names = lists["names"].as_array().expect("rows");
    let shop = names.iter().find(|row| row["name"] == "www.shop.example.").expect("a row");
    assert_eq!((&shop["responses"], &shop["hit_percent"]), (&2.into(), &50.0.into()), "{lists}");
    dns.wait_for_name("blocked", "<img\\032src=x>.ads.example.");
    assert_eq!(lists["clients"][0]["address"], "127.0.0.1");
    let stats =
        until("counters", || Some(dns.json("/api/stats")).filter(|stats| stats["queries"] == 8));
    assert_eq!((&stats["blocked"], &stats["weight_max"]), (&1.into(), &1.into()), "{stats}");
    let recent = dns.json("/api/recent");
    assert_eq!(recent["upstreams"][0]["address"], upstream.address.to_string(), "{recent}");
    assert_eq!(recent["tail"].as_array().map(Vec::len), Some(8));
    let metrics = fetch(dns.page, "/metrics");
    assert!(metrics.text().contains("larder_dns_queries_total{transport=\"udp\"} 8"));
    let sum = |dns: &Dns| -> f64 {
        let points = dns.json("/api/history/1h")["queries"].clone();
        points.as_array().expect("points").iter().filter_map(Value::as_f64).sum()
    };
    until("a sample", || Some(sum(&dns)).filter(|sum| *sum > 0.0));
    let (code, said) = dns.server.stop();
    assert_eq!(code, Some(0), "{said}");
    let dns = Dns::start(&scratch, &upstream, "--ui-history kept");
    // This run has served no query yet.
    assert!(sum(&dns) > 0.0);
    assert_eq!(dns.json("/api/lists")["names"].as_array().map(Vec::len), Some(0));
}

/// axe-core, if the environment names it or the set-up of the checks has installed it.
fn axe() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = root.join("target/ci/axe/node_modules/axe-core/axe.min.js");
    let found = std::env::var_os("LARDER_AXE").map(PathBuf::from);
    found.or(Some(installed)).filter(|path| path.is_file())
}

/// The command of a driver; `None`, with a line, without its programs.
fn driver(
    scratch: &Scratch,
    (test, browser): (&str, &str),
    script: &str,
    pages: [SocketAddr; 2],
) -> Option<Command> {
    if ![browser, "python3"].iter().all(|program| has(test, program)) {
        return None;
    }
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(script);
    let mut command = Command::new("python3");
    command.arg("-B").arg(driver).arg(scratch.write("browser/x", "").parent().expect("a folder"));
    command.args(pages.map(|page| format!("http://{page}/"))).arg(TOKEN);
    if browser == "firefox-esr" {
        command.arg("--firefox");
        return Some(command);
    }
    match axe() {
        Some(axe) => drop(command.arg("--axe").arg(axe)),
        None => skip(test, "axe-core is not installed"),
    }
    if wants_pictures() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screenshots");
        command.arg("--pictures").arg(folder);
    }
    Some(command)
}

fn wants_pictures() -> bool {
    std::env::var_os("LARDER_SCREENSHOTS").is_some()
}

/// Runs `work` again and again while a driver runs; for pictures, two minutes longer.
fn drive(mut command: Command, work: impl Fn(u16) + Sync) {
    let is_over = AtomicBool::new(false);
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in (0..=u16::MAX).cycle() {
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                work(round);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        if command.get_args().any(|arg| arg == "--pictures") {
            std::thread::sleep(Duration::from_secs(120));
        }
        let run = Run::of(&mut command);
        is_over.store(true, Ordering::Release);
        run
    });
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.out, "the page works\n");
}

/// Chromium shows the page of a DNS server, and finds nothing to complain of.
#[test]
fn the_dns_page_in_a_browser() {
    dns_page_in_a_browser("the_dns_page_in_a_browser", "chromium");
}

/// The same in Firefox, but for the rules of axe-core, which are about the document.
#[test]
fn the_dns_page_in_firefox() {
    dns_page_in_a_browser("the_dns_page_in_firefox", "firefox-esr");
}

fn dns_page_in_a_browser(test: &str, browser: &str) {
    let scratch = Scratch::new();
    scratch.write("token", TOKEN);
    let upstream = dns::Server::of_address([192, 0, 2, 7]);
    let dns = Dns::start(&scratch, &upstream, "");
    let locked = Dns::start(&scratch, &upstream, "--ui-token token");
    let pages = [dns.page, locked.page];
    let Some(command) = driver(&scratch, (test, browser), "drive_dns.py", pages) else { return };
    let address = dns.server.address;
    ask(address);
    ask(locked.server.address);
    dns.wait_for_name("blocked", "<img\\032src=x>.ads.example.");
    drive(command, |round| match wants_pictures() {
        true => ask_as_people(address, round),
        false => ask(address),
    });
}

/// An HTTP cache with a page.
struct Http {
    server: Server,
    page: SocketAddr,
}

impl Http {
    fn start(scratch: &Scratch, origin: &http::Origin, flags: &str) -> Http {
        let mut command = scratch.larder();
        command.args(["http", "--listen", "127.0.0.1:0", "--cores", "2", "--ui", "127.0.0.1:0"]);
        command.args(["--origin", &format!("http://{}", origin.address)]);
        command.args(["--ui-hosts", "a.example,tap.example"]);
        command.args(flags.split_whitespace());
        let mut program = Program::start(&mut command);
        let page = page_of(&program.wait_for("ui: listening"));
        let line = program.wait_for("http: listening address=");
        let address = larder_testkit::process::value(&line, "address").parse().expect("an address");
        Http { server: Server::of(program, address), page }
    }
}

/// An origin that has everything but `/missing`; what begins with `/own` is for one client.
fn origin() -> http::Origin {
    let origin = http::Origin::new();
    origin.answers_by(|head| {
        let path = head.line.split(' ').nth(1).unwrap_or_default();
        let status = if path == "/missing" { "404 Not Found" } else { "200 OK" };
        let rule = if path.starts_with("/own") { "private" } else { "max-age=600" };
        let body = "x".repeat(2_000);
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nCache-Control: {rule}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    });
    origin
}

/// Sends requests to a cache, some of them twice, and some hostile ones.
fn request(server: SocketAddr) {
    for path in ["/news", "/news", "/style.css", "/own/page", "/missing"] {
        fetch(server, path);
    }
    for target in ["/<script>window.harmed=1</script>", "/\u{202e}gnp"] {
        let mut connection = Connection::open(server);
        connection
            .send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        connection.rest();
    }
}

/// Settings of `larder http` are refused as those of `larder dns`; requests of other sites get nothing.
#[test]
fn the_http_page_is_guarded() {
    let scratch = Scratch::new();
    scratch.write("token", TOKEN);
    for (flags, texts) in [
        ("--ui 0.0.0.0:0", ["--ui 0.0.0.0:0", "--ui-token FILE"]),
        ("--ui 8080", ["--ui \"8080\"", "ADDR:PORT"]),
        ("--ui-history h", ["--ui-history has no effect", "add --ui"]),
    ] {
        let origin = "http --listen 127.0.0.1:0 --origin http://127.0.0.1:9";
        scratch.run(&format!("{origin} {flags}")).refused(&texts);
    }
    let http = Http::start(&scratch, &origin(), "--ui-token token");
    let right = format!("Host: tap.example\r\nAuthorization: Bearer {TOKEN}\r\n");
    for (path, fields, expected) in [
        ("/", "Host: localhost\r\n", "200"),
        ("/", "Host: evil.example\r\n", "421"),
        ("/", "Host: localhost\r\nOrigin: http://evil.example\r\n", "403"),
        ("/api/stats", "Host: localhost\r\n", "401"),
        ("/api/lists", &right, "200"),
        ("/metrics", "Host: localhost\r\n", "401"),
        ("/metrics", &right, "200"),
    ] {
        assert_eq!(status(http.page, path, fields), expected, "{path} {fields}");
    }
}

/// Requests become rows and numbers, with and without an access log, and the history outlives a restart.
#[test]
fn requests_become_rows() {
    let (scratch, origin) = (Scratch::new(), origin());
    for log in ["", "--access-log log"] {
        let http = Http::start(&scratch, &origin, &format!("--ui-history kept {log}"));
        request(http.server.address);
        let lists = until("all requests", || {
            let lists = json(http.page, "/api/lists");
            let sum = |row: &Value| row["requests"].as_u64().unwrap_or(0);
            let clients = lists["clients"].as_array().expect("rows");
            (clients.iter().map(sum).sum::<u64>() >= 7).then_some(lists.clone())
        });
        let row = |list: &str, key: &str, value: Value| {
            let rows = lists[list].as_array().expect("rows").iter();
            rows.clone().find(|row| row[key] == value).cloned().unwrap_or(Value::Null)
        };
        let host = http.server.address.to_string();
        let news = lists["urls"].as_array().expect("rows").iter();
        let news =
            news.clone().find(|row| row["url"].as_str().is_some_and(|url| url.ends_with("/news")));
        let news = news.unwrap_or_else(|| panic!("{lists} {host}"));
        assert_eq!((&news["requests"], &news["misses"]), (&2.into(), &1.into()), "{log}: {lists}");
        assert_eq!(
            (&news["hit_percent"], &news["bytes"]),
            (&50.0.into(), &4_000.into()),
            "{log}: {lists}"
        );
        assert_eq!(row("statuses", "status", 404.into())["requests"], 1, "{log}: {lists}");
        assert_eq!(row("statuses", "status", 200.into())["requests"], 5, "{log}: {lists}");
        // It has bytes that no URL may have.
        assert_eq!(row("statuses", "status", 400.into())["requests"], 1, "{log}: {lists}");
        assert_eq!(lists["missed"].as_array().map(Vec::len), Some(5), "{log}: {lists}");
        let stats = until("counters", || {
            Some(json(http.page, "/api/stats")).filter(|stats| stats["requests"] == 6)
        });
        assert_eq!((&stats["origins_up"], &stats["weight_max"]), (&1.into(), &1.into()), "{stats}");
        let tail = json(http.page, "/api/recent")["tail"].clone();
        assert_eq!(tail.as_array().map(Vec::len), Some(7), "{log}: {tail}");
        assert!(fetch(http.page, "/metrics").text().contains("larder_http_requests_total 6"));
        let sum = || -> f64 {
            let points = json(http.page, "/api/history/1h")["requests"].clone();
            points.as_array().expect("points").iter().filter_map(Value::as_f64).sum()
        };
        // The second run has the first one's, too.
        until("a sample", || Some(sum()).filter(|sum| *sum > 0.0));
        let (code, said) = http.server.stop();
        assert_eq!(code, Some(0), "{said}");
    }
}

/// Chromium shows the page of an HTTP cache, and finds nothing to complain of.
#[test]
fn the_http_page_in_a_browser() {
    http_page_in_a_browser("the_http_page_in_a_browser", "chromium");
}

/// The same in Firefox, but for the rules of axe-core, which are about the document.
#[test]
fn the_http_page_in_firefox() {
    http_page_in_a_browser("the_http_page_in_firefox", "firefox-esr");
}

fn http_page_in_a_browser(test: &str, browser: &str) {
    let scratch = Scratch::new();
    scratch.write("token", TOKEN);
    let origin = origin();
    let http = Http::start(&scratch, &origin, "");
    let locked = Http::start(&scratch, &origin, "--ui-token token");
    let pages = [http.page, locked.page];
    let Some(command) = driver(&scratch, (test, browser), "drive_http.py", pages) else { return };
    let address = http.server.address;
    request(address);
    request(locked.server.address);
    drive(command, |round| match wants_pictures() {
        true => {
            let path = format!("/img/{}.webp", u32::from(round) * 7 % 80);
            for path in ["/news", "/style.css", &path, "/news"] {
                fetch(address, path);
            }
        }
        false => request(address),
    });
}

/// A reload states that another token in the same file needs a restart, and refuses what the next start would refuse.
#[test]
fn reloads_look_at_pages() {
    for (program, line) in
        [("dns", "upstream = '127.0.0.1:9'"), ("http", "origin = 'http://127.0.0.1:9'")]
    {
        let scratch = Scratch::new();
        let file = |ui: &str| {
            let fixed = format!("[{program}]\nlisten = '127.0.0.1:0'\nctl = 'ctl'\n{line}\n");
            scratch.write("larder.toml", format!("{fixed}ui = '{ui}'\nui_token = 'token'\n"));
        };
        scratch.write("token", "one\n");
        file("127.0.0.1:0");
        let mut server = Program::start(scratch.larder().arg(program));
        server.wait_for(&format!("{program}: listening"));
        let ctl = || scratch.run("ctl reload --socket ctl");
        let has = |run: &Run, line: &str| run.out.lines().any(|found| found == line);
        until("it listens", || has(&ctl(), "needs_restart  -").then_some(()));
        scratch.write("token", "other\n");
        assert!(has(&ctl(), "needs_restart  ui-token"), "{}", ctl().out);
        file("nonsense");
        ctl().refused(&["--ui \"nonsense\": expected ADDR:PORT"]);
        scratch.write("token", "one\n");
        file("127.0.0.1:0");
        assert!(has(&ctl(), "needs_restart  -"), "{}", ctl().out);
    }
}
