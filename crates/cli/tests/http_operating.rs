//! Operation of `larder http`: the built program on the loopback, with an origin in the test.
//!
//! Tests wait for log lines and responses, and fail after one minute.
#![cfg(target_os = "linux")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::Scratch;
use common::server::Server;
use larder_testkit::http;
use larder_testkit::wait::{PATIENCE, until};

/// An origin whose response is the number of requests so far. The path sets its fields,
/// `/name:value/name:value`, and with `/bytes:N` the length of its body.
struct Origin(http::Origin);

impl Deref for Origin {
    type Target = http::Origin;

    fn deref(&self) -> &http::Origin {
        &self.0
    }
}

impl Origin {
    fn start() -> Origin {
        Origin::at(TcpListener::bind("127.0.0.1:0").expect("a socket"))
    }

    fn at(listener: TcpListener) -> Origin {
        let origin = http::Origin::at(listener);
        let requests = AtomicU64::new(0);
        origin.answers_by(move |head| {
            let target = head.line.split(' ').nth(1).expect("a target");
            let parts = target.split('/').filter_map(|part| part.split_once(':'));
            let fields: Vec<String> = parts.map(|(name, it)| format!("{name}: {it}")).collect();
            let mut body = format!("answer {}\n", requests.fetch_add(1, Ordering::Relaxed) + 1);
            let bytes = target.split_once("/bytes:").map_or("0", |(_, rest)| rest);
            let bytes =
                bytes.split('/').next().and_then(|text| text.parse().ok()).expect("a number");
            body.extend(std::iter::repeat_n('x', bytes).skip(body.len()));
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            http::answer("200 OK", &fields, body)
        });
        Origin(origin)
    }

    fn requests(&self) -> u64 {
        self.answered() as u64
    }

    /// Starts a server with two event loops before it.
    fn served(&self, scratch: &Scratch, line: &str) -> Server {
        self.served_by(scratch, &format!("--cores 2 {line}"))
    }

    /// Starts a server before it.
    fn served_by(&self, scratch: &Scratch, line: &str) -> Server {
        served_by(self.address, scratch, line)
    }
}

/// Starts a server before an origin at this address.
fn served_by(origin: SocketAddr, scratch: &Scratch, line: &str) -> Server {
    let mut command = scratch.larder();
    command.args(["http", "--listen", "127.0.0.1:0", "--origin"]);
    command.arg(format!("http://{origin}")).args(line.split_whitespace());
    Server::spawn(&mut command)
}

/// The response on a new connection: status, headers and body.
fn exchange(server: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(server).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer to its end");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, head.to_owned(), body.to_owned())
}

fn get(server: SocketAddr, target: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    let (status, head, body) = exchange(server, &request);
    assert_eq!(status, 200, "{head}");
    body
}

/// The address after `http://` in a line.
fn reported_address(line: &str) -> SocketAddr {
    let after = line.split("http://").nth(1).expect("an address");
    after.split('/').next().expect("it").parse().expect("an address")
}

/// Metrics cover requests, cached objects and origins; an address in use is an error at the start.
#[test]
fn metrics() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let mut server = origin.served(&scratch, "--metrics 127.0.0.1:0");
    let metrics = reported_address(&server.wait_for("metrics listening url=http://"));
    for _ in 0..3 {
        assert_eq!(get(server.address, "/cache-control:max-age=60"), "answer 1\n");
    }
    let origin_up = format!("larder_http_origin_up{{origin=\"{}\"}} 1", origin.address);
    let lines = [
        "larder_http_hits_total 2",
        "larder_http_requests_total 3",
        "larder_http_misses_total 1",
        "larder_http_records 1",
        "larder_http_flights 0",
        &origin_up,
    ];
    until("the counters of both event loops, each of which publishes its own", || {
        let (_, _, text) = exchange(metrics, "GET /metrics HTTP/1.0\r\n\r\n");
        lines.iter().all(|line| text.lines().any(|found| found == *line)).then_some(())
    });
    let run = scratch.run(&format!(
        "http --listen 127.0.0.1:0 --origin http://{} --metrics {metrics}",
        origin.address
    ));
    run.refused(&["name another address for the metrics"]);
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("info http: stopped requests=3 hits=2 "), "{said}");
    assert_eq!(origin.requests(), 1);
}

/// After a purge by URL, by tag or of everything, larder requests the object again, for all
/// variants. After a soft purge it revalidates the object.
#[test]
fn purges() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let server = origin.served(&scratch, "--ctl ctl");
    let ctl = |words: &str| {
        let run = scratch.run(&format!("ctl {words} --socket ctl"));
        assert_eq!(run.code, Some(0), "{words}: {run:?}");
        run.out
    };
    let plain = "/cache-control:max-age=60";
    let tagged = "/cache-control:max-age=60/surrogate-key:news,sports";
    let varied = "/cache-control:max-age=60/vary:accept-language";
    let number = |target: &str| -> u64 {
        let body = get(server.address, target);
        body.trim().trim_start_matches("answer ").parse().expect("a number")
    };
    let all = || [plain, tagged, varied].map(number);
    let first = all();
    assert_eq!(all(), first, "they are kept");

    assert_eq!(ctl(&format!("purge http://A.test:80{plain}")), "was_kept  true\n");
    assert_eq!(ctl("purge a.test/none"), "was_kept  false\n");
    let second = all();
    assert_eq!((second[0], [second[1], second[2]]), (4, [first[1], first[2]]));

    ctl(&format!("purge http://a.test{varied}"));
    assert_eq!(number(varied), 5);
    ctl(&format!("purge http://a.test{varied} --soft"));
    assert_eq!(number(varied), 6);

    assert_eq!(ctl("purge-tag sports"), "purge-tag: done\n");
    assert_eq!(all(), [4, 7, 6]);
    ctl("purge-tag news --soft");
    ctl("purge-tag other");
    assert_eq!(all(), [4, 8, 6]);

    ctl("flush");
    assert_eq!(all(), [9, 10, 11]);
    ctl("flush --soft");
    assert_eq!(all(), [12, 13, 14]);
    assert_eq!(all(), [12, 13, 14]);
    assert_eq!(origin.requests(), 14);

    let run = scratch.run("ctl dump --socket ctl");
    assert!(run.code == Some(2) && run.err.contains("larder http has no command"), "{run:?}");
    let run = scratch.run("ctl flush a.test --socket ctl");
    assert!(run.code == Some(2) && run.err.contains("purge takes out a URL"), "{run:?}");
    let stats: serde_json::Value = serde_json::from_str(&ctl("stats --json")).expect("JSON");
    assert_eq!(stats["purges"], 9.0, "{stats}");
    assert_eq!(stats["origin_up"][origin.address.to_string()], 1.0, "{stats}");
    ctl("stop");
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!scratch.path("ctl").exists(), "the socket is gone");
}

/// Permitted clients can PURGE a URL or tags, also softly; others get 405 with the methods.
#[test]
fn purge_method() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let server = origin.served(&scratch, "--purge-from 127.0.0.0/8,::1");
    let target = "/cache-control:max-age=60/xkey:a,b";
    let purge = |target: &str, fields: &str| {
        let request =
            format!("PURGE {target} HTTP/1.1\r\nHost: A.test\r\nConnection: close\r\n{fields}\r\n");
        exchange(server.address, &request)
    };
    assert_eq!(get(server.address, target), "answer 1\n");
    for (number, (of, fields, text)) in [
        (target, "", "purged\n"),
        (target, "Fastly-Soft-Purge: 1\r\n", "purged: stale from now on\n"),
        ("/", "xkey-purge: x b\r\n", "purged\n"),
        ("/", "Cache-Tag: a\r\n", "purged\n"),
        ("/", "xkey-softpurge: a\r\n", "purged: stale from now on\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let (status, head, body) = purge(of, fields);
        assert_eq!((status, body.as_str()), (200, text), "{head}");
        assert_eq!(get(server.address, target), format!("answer {}\n", number + 2), "{fields}");
    }
    purge("/", "xkey-purge: other\r\n");
    assert_eq!(get(server.address, target), "answer 6\n");
    drop(server);

    let server = origin.served(&scratch, "");
    let (status, head, _) =
        exchange(server.address, "PURGE / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    assert!(status == 405 && head.contains("\r\nAllow: GET, HEAD\r\n"), "{head}");
    assert_eq!(origin.requests(), 6, "the origin is not asked");
    scratch
        .run(&format!("http --origin http://{} --purge-from 1.2.3.4/33", origin.address))
        .refused(&["--purge-from", "192.0.2.0/24"]);
}

/// The access log has a line for each exchange: hits, misses, long bodies, refusals, aborts. After
/// a rotation larder writes to the new file.
#[test]
fn access_log() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    // One event loop, so that lines are in the order of the responses.
    let server = origin.served_by(&scratch, "--cores 1 --access-log log --access-log-format json");
    let lines = |count: usize| -> Vec<serde_json::Value> {
        let text = until("it", || {
            let text = std::fs::read_to_string(scratch.path("log")).unwrap_or_default();
            (text.lines().count() >= count).then_some(text)
        });
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let target = "/cache-control:max-age=60";
    get(server.address, target);
    exchange(
        server.address,
        &format!(
            "GET {target} HTTP/1.1\r\nHost: A.test\r\nConnection: close\r\nUser-Agent: b\"c\r\nReferer: d\r\n\r\n"
        ),
    );
    exchange(server.address, &format!("HEAD {target} HTTP/1.0\r\nHost: a.test\r\n\r\n"));
    exchange(server.address, "GET / HTTP/1.1\r\nHost : a\r\n\r\n");
    exchange(
        server.address,
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
    );
    let long = "/cache-control:max-age=60/bytes:300000";
    assert_eq!(get(server.address, long).len(), 300_000);
    assert_eq!(get(server.address, long).len(), 300_000);
    let found = lines(7);
    let column = |name: &str| -> Vec<String> {
        found
            .iter()
            .map(|line| line.get(name).map_or("-".to_owned(), |it| it.to_string()))
            .collect()
    };
    assert_eq!(column("status"), ["200", "200", "200", "400", "200", "200", "200"]);
    assert_eq!(column("body_bytes"), ["9", "9", "0", "20", "9", "300000", "300000"], "{found:?}");
    let caches = ["uri-miss", "hit", "hit", "-", "method", "uri-miss", "hit"];
    assert_eq!(column("cache").iter().map(|it| it.trim_matches('"')).collect::<Vec<_>>(), caches);
    let origins = ["200", "-", "-", "-", "200", "200", "-"];
    assert_eq!(column("origin_status"), origins);
    assert_eq!(
        column("origin_us").iter().map(|it| it != "-").collect::<Vec<_>>(),
        origins.map(|it| it != "-")
    );
    assert_eq!(
        (found[1]["user_agent"].as_str(), found[1]["referer"].as_str()),
        (Some("b\"c"), Some("d"))
    );
    assert_eq!(
        (found[1]["client"].as_str(), found[1]["target"].as_str()),
        (Some("127.0.0.1"), Some(target))
    );
    assert_eq!((&found[2]["method"], &found[2]["protocol"]), (&"HEAD".into(), &"HTTP/1.0".into()));
    assert_eq!(
        (&found[3]["octets"], &found[3]["error"]),
        (&"GET / HTTP/1.1".into(), &"field-name".into()),
        "{found:?}"
    );

    let huge = "/cache-control:max-age=60/bytes:50000000";
    let mut leaving = TcpStream::connect(server.address).expect("it listens");
    leaving
        .write_all(format!("GET {huge} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes())
        .expect("sent");
    leaving.read_exact(&mut [0; 1000]).expect("a beginning");
    drop(leaving);
    let found = lines(8);
    // Its address is known also when it has gone.
    let facts = ["status", "error", "client"].map(|fact| found[7][fact].to_string());
    assert_eq!(facts, ["200", "\"closed before its end\"", "\"127.0.0.1\""]);
    let bytes = found[7]["body_bytes"].as_u64().expect("a number");
    assert!((500..50_000_000).contains(&bytes), "{bytes}");

    std::fs::rename(scratch.path("log"), scratch.path("moved")).expect("renamed");
    server.signal("-HUP");
    until("it", || scratch.path("log").exists().then_some(()));
    get(server.address, target);
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(lines(1)[0]["cache"], "hit");
}

/// Lines in the common format go to standard output. A full disk only loses lines, and is reported.
#[test]
fn access_log_elsewhere() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let out = std::fs::File::create(scratch.path("out")).expect("made");
    let mut command = scratch.larder();
    command.args(["http", "--listen", "127.0.0.1:0", "--access-log", "-", "--origin"]);
    command.arg(format!("http://{}", origin.address)).stdout(out);
    let server = Server::spawn(&mut command);
    get(server.address, "/a?b");
    assert_eq!(server.stop().0, Some(0));
    let text = scratch.read("out");
    assert!(text.starts_with("127.0.0.1 - - [") && text.lines().count() == 1, "{text}");
    assert!(text.ends_with(" +0000] \"GET /a?b HTTP/1.1\" 200 9 \"-\" \"-\"\n"), "{text}");

    let mut server = origin.served(&scratch, "--access-log /dev/full --ctl ctl");
    get(server.address, "/a?b");
    server.wait_for("error http: output failed output=\"access log\" path=/dev/full ");
    let stats = scratch.run("ctl stats --json --socket ctl").out;
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    assert_eq!((&stats["log_lines_written"], &stats["log_lines_lost"]), (&0.into(), &1.into()));
    get(server.address, "/a?b");
}

/// The proxy states the client's address, in one of two formats and in any pieces. A client without
/// this header, or with only part of it in time, gets no response.
#[test]
fn proxy_protocol() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let line =
        "--proxy-protocol --head-timeout 1s --purge-from 192.0.2.9 --access-log log --ctl ctl";
    let server = origin.served_by(&scratch, &format!("--cores 1 --access-log-format json {line}"));
    let request = "GET /a HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    let v1 = format!("PROXY TCP4 192.0.2.7 192.0.2.8 51000 80\r\n{request}");
    assert_eq!(exchange(server.address, &v1).0, 200);
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
    v2.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    v2.extend([0; 20]);
    v2.extend(request.as_bytes());
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    for piece in v2.chunks(7) {
        stream.write_all(piece).expect("sent");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer to its end");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let purge =
        "PROXY TCP4 192.0.2.9 192.0.2.8 51000 80\r\nPURGE /a HTTP/1.0\r\nHost: a.test\r\n\r\n";
    assert_eq!(exchange(server.address, purge).0, 200);
    // Without the header, and with part of it.
    for bytes in [request, "PROXY TCP4 192.0"] {
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        stream.write_all(bytes.as_bytes()).expect("sent");
        let mut text = Vec::new();
        // The connection may be reset, since the server did not read all.
        let _ = stream.read_to_end(&mut text);
        assert_eq!(text, b"");
    }
    let stat = |name: &str| -> u64 {
        let run = scratch.run("ctl stats --json --socket ctl");
        let stats: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
        stats[name].as_u64().expect("a number")
    };
    until("it", || (stat("bad_proxy_headers") == 1 && stat("closed_slow") == 1).then_some(()));
    assert_eq!(server.stop().0, Some(0));
    let text = scratch.read("log");
    let clients: Vec<_> =
        text.split("\"client\":\"").skip(1).map(|it| it.split('"').next()).collect();
    assert_eq!(clients, [Some("192.0.2.7"), Some("2001:db8::7"), Some("192.0.2.9")]);
}

/// An address has no more connections than its limit, until one ends. A body that is too long gets
/// 413 as soon as its length is known, even while the client still sends.
#[test]
fn limits() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let server = origin.served(&scratch, "--clients-per-address 2 --body-max 100 --ctl ctl");
    let open = || {
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let _ = stream.write_all(b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let mut first = [0; 9];
        stream.read_exact(&mut first).ok().map(|()| stream)
    };
    let (first, second) = (open().expect("a place"), open().expect("a place"));
    assert!(open().is_none(), "there is no third");
    drop(first);
    let third = until("it", open);
    drop((second, third));

    let post = |framing: &str, body: &str| {
        until("it", || {
            let mut stream = TcpStream::connect(server.address).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a time");
            let head = format!(
                "POST /a HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n{framing}\r\n\r\n"
            );
            let _ =
                stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
            let mut text = String::new();
            // The previous connection may still count.
            stream.read_to_string(&mut text).ok().filter(|_| !text.is_empty())?;
            Some(text)
        })
    };
    let long = "x".repeat(1_000_000);
    let is = |text: &str, status: &str| {
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}")
    };
    is(&post("Content-Length: 100", &long[..100]), "200");
    is(&post("Content-Length: 101", &long[..101]), "413");
    is(&post("Content-Length: 1000000", &long), "413");
    is(&post("Content-Length: 101\r\nExpect: 100-continue", ""), "413");
    let chunked = |bytes: usize| format!("{bytes:x}\r\n{}\r\n0\r\n\r\n", &long[..bytes]);
    is(&post("Transfer-Encoding: chunked", &chunked(100)), "200");
    is(&post("Transfer-Encoding: chunked", &chunked(101)), "413");
    is(&post("Transfer-Encoding: chunked", &chunked(1_000_000)), "413");
    until("it", || {
        let run = scratch.run("ctl stats --json --socket ctl");
        let stats: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
        (stats["refused_crowded"].as_u64() >= Some(1) && stats["bodies_too_long"] == 5)
            .then_some(())
    });
}

/// An origin that fails its checks is reported, shown as down and skipped until it recovers. An
/// invalid path is rejected.
#[test]
fn health_checks() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let dead = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let dead_address = dead.local_addr().expect("bound");
    drop(dead);
    let mut command = scratch.larder();
    command.args(["http", "--listen", "127.0.0.1:0", "--health-check", "/alive", "--ctl", "ctl"]);
    command.args(["--health-interval", "1s", "--origin"]);
    command.arg(format!("http://{dead_address},http://{}", origin.address));
    let mut server = Server::spawn(&mut command);
    let line = server.wait_for("warn http: origin down error=");
    assert!(line.ends_with(&format!(" origin={dead_address} checks=8 good=2")), "{line}");
    assert!(origin.requests() >= 5, "the other is asked too");
    let run = scratch.run("ctl stats --json --socket ctl");
    let stats: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(stats["origin_up"][dead_address.to_string()], 0.0, "{stats}");
    assert_eq!(stats["origin_up"][origin.address.to_string()], 1.0, "{stats}");
    for _ in 0..4 {
        get(server.address, "/a");
    }
    let back = Origin::at(TcpListener::bind(dead_address).expect("its port is free"));
    server.wait_for("info http: origin up ");
    let checks = back.requests();
    assert!(checks >= 1, "{checks}");
    // Round robin: of four requests the origin gets some.
    for _ in 0..4 {
        get(server.address, "/a");
    }
    assert!(back.requests() > checks);
    scratch
        .run(&format!("http --origin http://{} --health-check alive", origin.address))
        .refused(&["--health-check", "/health"]);
}

/// After a restart cached responses need no origin, except those too long for a record or purged
/// before or after. A killed server saves nothing. Invariants 1 and 3 of `http::snapshot`.
#[test]
fn a_restart_is_warm() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let (plain, varied) = ("/cache-control:max-age=600", "/cache-control:max-age=600/vary:accept");
    let (tagged, soft) =
        ("/cache-control:max-age=600/cache-tag:a", "/cache-control:max-age=600/cache-tag:b");
    let later = "/cache-control:max-age=600/cache-tag:c";
    let long = "/cache-control:max-age=600/bytes:100000";
    let number = |server: &Server, target: &str| -> u64 {
        let body = get(server.address, target);
        let line = body.lines().next().expect("a line");
        line.trim_start_matches("answer ").parse().expect("a number")
    };
    let ctl = |words: &str| {
        let run = scratch.run(&format!("ctl {words} --socket ctl"));
        assert_eq!(run.code, Some(0), "{words}: {run:?}");
    };
    let start = || origin.served(&scratch, "--ctl ctl --snapshot kept");
    let all = [plain, varied, tagged, soft, later, long];
    let server = start();
    assert_eq!(all.map(|target| number(&server, target)), [1, 2, 3, 4, 5, 6]);
    ctl("purge-tag a");
    ctl("purge-tag b --soft");
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    // Three responses, and the Vary record of one of them.
    assert!(said.contains("info http: snapshot saved entries=4 file=kept"), "{said}");

    let server = start();
    assert!(server.has_said("info http: snapshot loaded entries=4 file=kept"));
    assert!(!scratch.path("kept").exists(), "it was removed before anybody was served");
    // The origin receives three requests.
    assert_eq!(all.map(|target| number(&server, target)), [1, 2, 7, 8, 5, 9]);
    ctl("purge-tag c");
    assert_eq!(number(&server, later), 10, "what came back is older than the purge");
    assert_eq!(number(&server, long), 9);
    server.signal("-KILL");
    drop(server);
    let server = start();
    assert_eq!(number(&server, plain), 11, "nothing is left of who was killed");
    drop(server);

    // larder keeps another program's file; it replaces one of another version, or a truncated one.
    for (text, said) in [
        ("something else", "another program wrote it"),
        ("larder http 0.0.0 records 1\nx", "another version wrote it, or it is cut"),
        ("lard", "another version wrote it, or it is cut"),
    ] {
        scratch.write("kept", text);
        let server = start();
        assert!(server.has_said(said), "{:?}", server.lines_read);
        get(server.address, plain);
        assert_eq!(server.stop().0, Some(0));
        let bytes = std::fs::read(scratch.path("kept")).expect("a file");
        assert_eq!(bytes == text.as_bytes(), said.contains("another program"), "{text}");
    }
    // The last file is larder's own; half of it is also loaded.
    let bytes = std::fs::read(scratch.path("kept")).expect("a file");
    std::fs::write(scratch.path("kept"), &bytes[..bytes.len() - 1]).expect("written");
    let server = start();
    assert!(server.has_said("warn http: snapshot damaged, loaded in part file=kept "));
    get(server.address, plain);
    drop(server);
    let server = origin.served(&scratch, "--snapshot nowhere/kept");
    assert!(server.has_said("warn http: snapshot not writable file=nowhere/kept "));
    get(server.address, plain);
}

/// larder reports failed connections to an origin once, with its address and the cause.
#[test]
fn failed_origins_are_reported() {
    let scratch = Scratch::new();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a socket").local_addr().expect("bound");
    let mut server = served_by(closed, &scratch, "--cores 2");
    let at = server.address;
    let fail = || {
        let request = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
        assert_eq!(exchange(at, request).0, 502);
    };
    (0..3).for_each(|_| fail());
    let line = server.wait_for(&format!("warn http: origin connections failed origin={closed} "));
    assert!(line.contains("refused"), "{line}");
    // Later failures are not reported for a minute; the reload shows that they were processed.
    (0..3).for_each(|_| fail());
    server.signal("-HUP");
    server.wait_for("settings reloaded");
    let (_, said) = server.stop();
    assert_eq!(said.matches("connections failed").count(), 1, "{said}");
}

/// Sets the soft limit of open files of a process.
fn limit_files(server: &Server, files: &str) {
    let process = server.child.id().to_string();
    let mut command = Command::new("prlimit");
    command.args(["--pid", &process, &format!("--nofile={files}:")]);
    assert!(command.status().expect("prlimit runs").success());
}

/// The soft limit of open files is raised; a part is reserved for origins. A request next to idle
/// clients reaches the origin, and a client beyond the limit is closed at once.
#[test]
fn open_files_are_divided() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let mut command = Command::new("sh");
    let script = "ulimit -Sn 40; ulimit -Hn 256; exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_larder"), "http", "--cores", "1"]);
    command.args(["--listen", "127.0.0.1:0", "--origin", &format!("http://{}", origin.address)]);
    command.current_dir(scratch.path(".")).env_clear().env("PATH", "/usr/bin:/bin");
    let mut server = Server::spawn(&mut command);
    let line = server.lines_read.iter().find(|line| line.contains("too few open files limit=256 "));
    let places = larder_testkit::process::value(line.expect("it is limited"), "clients_max");
    let places: usize = places.parse().expect("a number");
    // Half of the descriptors that remain after larder's own.
    assert_eq!(places, (256 - 64 - 16) / 2);
    let connect = || {
        let stream = TcpStream::connect(server.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream
    };
    let idle: Vec<TcpStream> = (1..places).map(|_| connect()).collect();
    assert_eq!(get(server.address, "/a"), "answer 1\n");
    let last = connect();
    // One of these connections is beyond the limit, whichever event loop turn accepts it.
    until("it", || (connect().read(&mut [0]).ok() == Some(0)).then_some(()));
    drop((idle, last));
    server.wait_for("warn http: clients refused count=");
}

/// Without a free descriptor the client gets 503, larder logs it, and the origin is not down.
#[test]
fn a_shortage_is_not_the_origins() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let mut server = origin.served_by(&scratch, "--cores 1");
    let mut client = http::Connection::open(server.address);
    let mut status = |fields: &str| {
        let request = format!("GET /a HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        client.send(request);
        client.response().status()
    };
    // The server has accepted the connection; this response needs no origin.
    assert_eq!(status("Cache-Control: only-if-cached\r\n"), 504);
    limit_files(&server, "3");
    assert_eq!(status(""), 503);
    server.wait_for("warn http: connections failed count=");
    limit_files(&server, "256");
    assert_eq!(status(""), 200);
    let (_, said) = server.stop();
    assert!(!said.contains("origin connections failed"), "{said}");
}

/// A second server at an address in use is rejected; with --reuse-port both share it.
#[test]
fn a_taken_address_is_refused() {
    let (scratch, origin) = (Scratch::new(), Origin::start());
    let server = origin.served(&scratch, "");
    let line =
        format!("http --listen {} --origin http://{} --cores", server.address, origin.address);
    for cores in ["1", "2"] {
        scratch.run(&format!("{line} {cores}")).refused(&["in use", "--reuse-port"]);
    }
    let words = format!("{line} 1 --reuse-port");
    let second = Server::spawn(scratch.larder().args(words.split_whitespace()));
    assert_eq!(second.address, server.address);
}

/// Two signals at once, as `timeout` sends them, interrupt neither a begun response nor the save.
#[test]
fn two_signals_are_one_request() {
    let scratch = Scratch::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    for signal in ["-TERM", "-INT"] {
        let mut command = scratch.larder();
        command.args(["http", "--listen", "127.0.0.1:0", "--snapshot", "kept", "--origin"]);
        command.arg(format!("http://{}", listener.local_addr().expect("it is bound")));
        let mut server = Server::spawn(&mut command);
        let mut client = TcpStream::connect(server.address).expect("it listens");
        client.write_all(b"GET /film HTTP/1.1\r\nHost: example.com\r\n\r\n").expect("sent");
        let mut origin = http::Connection::new(listener.accept().expect("it asks").0);
        origin.head();
        server.signal(signal);
        server.wait_for("info http: draining");
        server.signal(signal);
        let fields = "Cache-Control: max-age=600\r\nContent-Length: 5\r\n\r\nwhole";
        origin.send(format!("HTTP/1.1 200 OK\r\n{fields}"));
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("whole"), "{answer}");
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{signal}: {said}");
        assert!(said.contains("snapshot saved entries=1 file=kept"), "{signal}: {said}");
        std::fs::remove_file(scratch.path("kept")).expect("it was saved");
    }
}

/// SIGHUP and larder ctl reload the file. Origins, limits and the log change from then on; an open
/// connection continues. Settings that need a restart are named; a file with an error has no
/// effect.
#[test]
fn reloads() {
    let (scratch, old, new) = (Scratch::new(), Origin::start(), Origin::start());
    let file = |origin: &Origin, more: &str| {
        let text = format!(
            "[http]\nlisten = '127.0.0.1:0'\nctl = 'ctl'\norigin = 'http://{}'\n{more}\n",
            origin.address
        );
        scratch.write("larder.toml", &text);
    };
    file(&old, "");
    let mut server = Server::spawn(scratch.larder().arg("http"));
    let mut stream = http::Connection::open(server.address);
    let mut fetch = |request: &str| {
        stream.send(request);
        let response = stream.response();
        (response.status(), response.text().to_owned())
    };
    let plain = "GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(fetch(plain).1, "answer 1\n");
    let ctl = || scratch.run("ctl reload --socket ctl");
    let run = ctl();
    assert_eq!((run.code, run.out.as_str()), (Some(0), "changed        -\nneeds_restart  -\n"));

    file(&new, "access_log = 'log'\nbody_max = 10\nmemory = '64MiB'\npurge_from = '127.0.0.1'");
    server.signal("-HUP");
    server.wait_for("reloaded changed=origin,body-max,purge-from,access-log needs_restart=memory");
    assert_eq!(fetch(plain).1, "answer 1\n", "it is the other's first");
    assert_eq!((old.requests(), new.requests()), (1, 1));
    let purge = "PURGE /a HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(fetch(purge).0, 200);
    let lines = |name: &str| {
        let text = std::fs::read_to_string(scratch.path(name)).unwrap_or_default();
        text.lines().count()
    };
    until("it", || (lines("log") == 2).then_some(()));

    // The log has another path and another format.
    file(&new, "access_log = 'other'\naccess_log_format = 'json'\nmemory = '64MiB'");
    let run = ctl();
    let said = "changed        body-max, purge-from, access-log, access-log-format\nneeds_restart  memory\n";
    assert_eq!((run.code, run.out.as_str()), (Some(0), said));
    assert_eq!(fetch(purge).0, 405);
    until("it", || (lines("other") == 1).then_some(()));
    assert_eq!(lines("log"), 2);
    let text = scratch.read("other");
    assert!(text.starts_with("{\"time\":"), "{text}");
    // Another program rotates the log.
    std::fs::rename(scratch.path("other"), scratch.path("moved")).expect("renamed");
    server.signal("-USR1");
    until("it", || scratch.path("other").exists().then_some(()));
    fetch(plain);
    until("it", || (lines("other") == 1).then_some(()));

    // Trusted authorities of origins are read at the start, if an origin uses TLS.
    let first_secure = match cfg!(feature = "encrypted") {
        true => "the first origin over TLS needs a restart",
        false => "--features encrypted",
    };
    for (text, said) in [
        ("[http]\norigin = 'ftp://a.test'", "expected http://HOST[:PORT]"),
        ("[http]\norigin = 'https://127.0.0.1:9'", first_secure),
        ("[http]\norigins = 'http://127.0.0.1'", "did you mean 'origin'"),
        ("[http", "larder show-config --template"),
        ("", "no origin; add one"),
    ] {
        scratch.write("larder.toml", text);
        server.signal("-HUP");
        server.wait_for("error http: reload failed error=");
        ctl().refused(&[said]);
        assert_eq!(fetch(plain).1.split(' ').next(), Some("answer"));
    }
    // No log from here on.
    file(&old, "");
    assert_eq!(ctl().code, Some(0));
    until("the lines of these rounds", || (lines("other") == 6).then_some(()));
    assert_eq!(fetch(plain).1, "answer 2\n");
    drop(stream);
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(lines("other"), 6);
}
