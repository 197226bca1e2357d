//! Segments over HTTP: unusual requests, and slow clients.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use larder_serve::log::{self, Level, Log};
use larder_serve::pages::{Page, Pages};
use larder_store::Store;
use larder_store::serve::{Listen, Options, Server};
use larder_testkit::http::Connection;
use larder_testkit::wait::until_so;

fn serve(store: &Store) -> Server {
    serve_as(store, |_| {})
}

fn serve_as(store: &Store, change: impl FnOnce(&mut Options)) -> Server {
    let mut options = Options::new(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))));
    options.clients_max = 8;
    change(&mut options);
    Server::start(&options, store.catalog().clone()).unwrap()
}

/// All bytes of the responses to `requests`, up to the end of the connection.
fn ask(server: &Server, requests: &str) -> Vec<u8> {
    let mut connection = Connection::open(server.address().unwrap());
    connection.send(requests);
    connection.rest()
}

/// An unknown path is refused once, and the next request of the connection gets a response; HEAD
/// gets no body, also if it is refused.
#[test]
fn what_is_not_there_is_refused_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let server = serve(&store);
    let asked = "GET /favicon.ico HTTP/1.1\r\nHost: localhost\r\n\r\n\
        HEAD /segments/7.pcapng HTTP/1.1\r\nHost: localhost\r\n\r\n\
        GET /live.pcapng HTTP/1.1\r\nHost: localhost\r\n\r\n\
        GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answers = String::from_utf8(ask(&server, asked)).unwrap();
    let statuses: Vec<&str> = answers
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| answer.split(' ').next().unwrap())
        .collect();
    assert_eq!(statuses, ["404", "404", "503", "200"], "{answers}");
    assert_eq!(answers.matches("there are /segments").count(), 1, "HEAD has no body: {answers}");
    let refused = ask(
        &server,
        "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    assert!(refused.starts_with(b"HTTP/1.1 405 ") && refused.len() < 320, "and it ends there");
}

/// The bytes of a body in chunks.
fn body_of(answer: &[u8]) -> Vec<u8> {
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let (mut rest, mut body) = (&answer[head + 4..], Vec::new());
    loop {
        let end = rest.windows(2).position(|bytes| bytes == b"\r\n").expect("a chunk");
        let text = std::str::from_utf8(&rest[..end]).unwrap();
        let bytes = usize::from_str_radix(text, 16).unwrap();
        rest = &rest[end + 2..];
        if bytes == 0 {
            assert_eq!(rest, b"\r\n");
            return body;
        }
        body.extend_from_slice(&rest[..bytes]);
        assert_eq!(&rest[bytes..bytes + 2], b"\r\n");
        rest = &rest[bytes + 2..];
    }
}

/// A client requests the growing segment and does not read. Its memory is needed and revoked;
/// nothing is dropped for that client. Then it reads, and gets the file, in valid chunks, from the
/// middle of one on out of the file. The last chunk is there: invariant 1 of `serve`.
#[test]
fn from_memory_to_the_file_in_the_middle_of_a_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = options(folder.path());
    (small.segment_bytes, small.memory_bytes) = (16 << 20, 64 << 20);
    let mut store = Store::open(small, &interfaces()).unwrap();
    let server = serve(&store);
    let mut next = 1;
    let mut append = |store: &mut Store, batches: usize| {
        for _ in 0..batches {
            let mut made = Made::default();
            for number in 0..100u8 {
                let payload = [number; 1300];
                made.packet(0, next as i64, &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, &payload));
            }
            made.append(store, &mut next);
            let counts = store.counts();
            let of = |count: &std::sync::atomic::AtomicU64| {
                count.load(std::sync::atomic::Ordering::Relaxed)
            };
            while of(&counts.bytes) > of(&counts.bytes_written) + (4 << 20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    };
    append(&mut store, 1);
    let mut socket = TcpStream::connect(server.address().unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = "GET /segments/00000000.pcapng HTTP/1.1\r\nHost: localhost\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = vec![0; 1000];
    socket.read_exact(&mut answer).unwrap();
    // Eight times the memory.
    append(&mut store, 4000);
    let first = store.catalog().list()[0].clone();
    assert!(matches!(first.content, larder_store::Content::File(..)), "its memory was needed");
    let counts = store.counts().clone();
    assert_eq!(counts.packets_dropped.load(std::sync::atomic::Ordering::Relaxed), 0);
    let ended = answer.len() as u64 + first.bytes;
    let mut piece = vec![0; 256 << 10];
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let bytes = socket.read(&mut piece).unwrap();
        assert!(bytes > 0 && (answer.len() as u64) < ended + (1 << 20));
        answer.extend_from_slice(&piece[..bytes]);
    }
    drop(server);
    store.finish().unwrap();
    let file = std::fs::read(folder.path().join("00000000.pcapng")).unwrap();
    assert!(body_of(&answer) == file, "{} bytes", file.len());
}

/// The status of the response to one request with these fields.
fn status(server: &Server, path: &str, fields: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{fields}\r\n");
    let answer = String::from_utf8_lossy(&ask(server, &request)).into_owned();
    answer.strip_prefix("HTTP/1.1 ").expect("an answer")[..3].to_owned()
}

/// Requests that a page of another site could make a browser send get no packets, on any path and
/// with any method; nor do those without the token. Segments are private: no shared cache stores
/// them.
#[test]
fn only_those_are_answered_who_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let mut made = Made::default();
    made.packet(0, 1, &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, b"secret of somebody"));
    made.append(&mut store, &mut 1);
    let open = serve_as(&store, |options| options.hosts = vec!["tap.example".into()]);
    let address = open.address().unwrap();
    for path in ["/", "/segments", "/segments/00000000.pcapng", "/live.pcapng", "/nowhere"] {
        for (fields, expected) in [
            ("Host: evil.example\r\n".to_owned(), "421"),
            (String::new(), "421"),
            (format!("Host: {address}\r\nHost: evil.example\r\n"), "400"),
            (format!("Host: {address}\r\nOrigin: http://evil.example\r\n"), "403"),
            (format!("Host: {address}\r\nOrigin: null\r\n"), "403"),
        ] {
            assert_eq!(status(&open, path, &fields), expected, "{path} {fields}");
        }
    }
    let old = ask(&open, "GET / HTTP/1.0\r\n\r\n");
    assert!(old.starts_with(b"HTTP/1.1 421"), "{}", String::from_utf8_lossy(&old));
    for fields in [
        format!("Host: {address}\r\n"),
        "Host: localhost:9\r\n".to_owned(),
        "Host: TAP.example\r\n".to_owned(),
        format!("Host: {address}\r\nOrigin: http://{address}\r\n"),
    ] {
        assert_eq!(status(&open, "/", &fields), "200", "{fields}");
    }
    let denied = open.counts().denied.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(denied, 21);
    drop(open);

    let closed = serve_as(&store, |options| options.token = Some(b"a-long-token".to_vec()));
    let with = |more: &str| status(&closed, "/segments", &format!("Host: localhost\r\n{more}"));
    assert_eq!(with(""), "401");
    assert_eq!(with("Authorization: Bearer a-long-tokem\r\n"), "401");
    assert_eq!(with("Authorization: Bearer a-long-token\r\n"), "200");
    drop(closed);
    store.finish().unwrap();

    let store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let server = serve(&store);
    let answer = ask(
        &server,
        "GET /segments/00000000.pcapng HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    let head = String::from_utf8_lossy(&answer);
    let head = head.split("\r\n\r\n").next().unwrap();
    assert!(head.contains("Cache-Control: private") && !head.contains("public"), "{head}");
}

/// Pages of a program come before the store's own paths. Without the token a client gets those that
/// are public, from a host that is served, and nothing else.
#[test]
fn pages_of_a_program() {
    struct Two;
    impl Pages for Two {
        fn get(&self, path: &str) -> Option<Page> {
            let is_known = ["/", "/data"].contains(&path);
            is_known.then(|| Page::new("text/plain", path.as_bytes()))
        }
        fn is_public(&self, path: &str) -> bool {
            path == "/"
        }
    }
    let mut options = Options::new(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))));
    options.token = Some(b"a-long-token".to_vec());
    let server = Server::start_with(&options, Arc::default(), Some(Arc::new(Two))).unwrap();
    let token = "Host: localhost\r\nAuthorization: Bearer a-long-token\r\n";
    for (path, fields, expected) in [
        ("/", "Host: localhost\r\n", "200"),
        ("/", "Host: evil.example\r\n", "421"),
        ("/", "Host: localhost\r\nOrigin: http://evil.example\r\n", "403"),
        ("/data", "Host: localhost\r\n", "401"),
        ("/data", "Host: localhost\r\nAuthorization: Bearer wrong\r\n", "401"),
        ("/segments", "Host: localhost\r\n", "401"),
        ("/live.pcapng", token, "503"),
        ("/segments", token, "200"),
        ("/data", token, "200"),
        ("/nowhere", token, "404"),
    ] {
        assert_eq!(status(&server, path, fields), expected, "{path} {fields}");
    }
    let answer = ask(&server, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.ends_with("\r\n\r\n/") && answer.contains("nosniff"), "{answer}");
}

/// A Unix socket serves without a host name, has a mode that excludes others, and is removed at the
/// end; pages of other sites are refused there too.
#[test]
fn a_unix_socket_is_for_its_user() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let path = folder.path().join("packets");
    let server = serve_as(&store, |options| options.listen = Some(Listen::Unix(path.clone())));
    assert_eq!(server.address(), None);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    for (fields, expected) in
        [("", "200"), ("Host: anything\r\n", "200"), ("Origin: http://anything\r\n", "403")]
    {
        let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let request = format!("GET / HTTP/1.1\r\nConnection: close\r\n{fields}\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert_eq!(&answer[9..12], expected, "{fields}: {answer}");
    }
    drop(server);
    assert!(!path.exists());
}

/// The status and the body of a response to `GET /find` with this query.
fn found(server: &Server, query: &str) -> (String, Vec<u8>) {
    let request =
        format!("GET /find?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = ask(server, &request);
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let text = String::from_utf8(answer[..head].to_vec()).unwrap();
    let body = match text.contains("Transfer-Encoding: chunked") {
        true => body_of(&answer),
        false => answer[head + 4..].to_vec(),
    };
    (text.split(' ').nth(1).unwrap().to_owned(), body)
}

/// An end of a flow in its line of JSON.
fn end_of(end: &str, addr: &str, port: u16, packets: u64, ip_bytes: u64) -> String {
    let counts = format!(r#""packets":{packets},"ip_bytes":{ip_bytes}"#);
    format!(r#""{end}":{{"address":"{addr}","port":{port},{counts}}}"#)
}

/// A search over HTTP gives packets, flows with their names, and counts; names of any bytes are
/// strings; a wrong request states what was expected, and where.
#[test]
fn a_search_has_a_url() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let server = serve(&store);
    let (mut made, mut next) = (Made::default(), 1);
    let (dns, web) = (
        udp([10, 0, 0, 1], 1000, [192, 0, 2, 1], 53, b"query"),
        tcp([10, 0, 0, 1], 2000, [198, 51, 100, 1], 443, b"hello"),
    );
    made.packet(0, 1_500_000_000, &dns);
    made.packet(0, 2_500_000_000, &web);
    made.packet(0, 3_500_000_000, &web);
    made.events.push(event(key(&web), 2, "<b>\"\u{1b}é.example"));
    made.append(&mut store, &mut next);
    wait_until_written(&store);
    let times = |query: &str| -> Vec<i64> {
        let (status, body) = found(&server, query);
        assert_eq!(status, "200", "{query}");
        frames(&body).iter().map(|(ts_ns, _)| *ts_ns / 100_000_000).collect()
    };
    assert_eq!(times("q=net+10.0.0.0%2F8"), [15, 25, 35]);
    assert_eq!(times("q=tcp+port+443&format=pcapng&limit=1"), [25]);
    assert_eq!(times("q=name+~+*.example+and+after+3"), [35]);
    assert_eq!(times("q=after+-1s&now=3500000000"), [25, 35]);
    assert_eq!(times("q=udp+or+tcp&from=2&to=3"), [25]);
    assert_eq!(times("q=*.example&limit=0"), [0; 0]);
    let text = |query: &str| String::from_utf8(found(&server, query).1).unwrap();
    let flows = text("q=10.0.0.1&format=flows");
    let times =
        r#""first":"1970-01-01T00:00:02.500000000Z","last":"1970-01-01T00:00:03.500000000Z""#;
    let (source, destination) = (
        end_of("source", "10.0.0.1", 2000, 2, 90),
        end_of("destination", "198.51.100.1", 443, 0, 0),
    );
    let web = format!(
        r#"{{"flow":"10.0.0.1:2000-198.51.100.1:443/tcp","packets":2,"bytes":118,{times},{},{source},{destination}}}"#,
        r#""names":["<b>\"\u001Bé.example"],"protocol":6"#
    );
    assert_eq!(flows.lines().count(), 2, "{flows}");
    assert_eq!(text("q=10.0.0.1&format=flows&flows=1").lines().count(), 1);
    assert_eq!(flows.lines().next(), Some(&web[..]));
    let csv = text("q=10.0.0.1&format=csv");
    assert!(csv.starts_with("flow,packets,bytes,first,last,names,network\r\n"), "{csv}");
    let row = r#",2,118,1970-01-01T00:00:02.500000000Z,1970-01-01T00:00:03.500000000Z,"<b>"""#;
    assert!(csv.contains(row), "{csv}");
    let times =
        r#""first":"1970-01-01T00:00:01.500000000Z","last":"1970-01-01T00:00:03.500000000Z""#;
    let counts = format!(r#"{{"packets":3,"bytes":165,"flows":2,{times}}}"#);
    assert_eq!(text("q=10.0.0.1&format=counts"), format!("{counts}\n"));
    let none = r#"{"packets":0,"bytes":0,"flows":0,"first":null,"last":null}"#;
    assert_eq!(text("q=nobody.example&format=counts"), format!("{none}\n"));
    for (query, expected) in [
        ("", "nothing to look for"),
        ("q=port+x", r#""column":6,"expected":"a port"#),
        ("q=%22", r#""column":1"#),
        ("q=a&format=xml", "pcapng, flows, csv or counts"),
        ("q=a&limit=-1", "a number of packets"),
        ("q=a&from=noon", "from: expected a time"),
        ("q=a&candidates=yes", "1 or 0"),
        ("q=a&now=soon", "nanoseconds"),
        ("q=a&what=b", "a parameter: expected q, format"),
    ] {
        let (status, body) = found(&server, query);
        let body = String::from_utf8(body).unwrap();
        assert_eq!(status, "400", "{query} {body}");
        assert!(body.starts_with("{\"error\":\"") && body.contains(expected), "{query}: {body}");
    }
}

/// What a search could not read is in the log of the server, and not only in the response.
#[test]
fn what_a_search_cannot_read_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::new("store", Level::Warn, log::Format::Text);
    // A line a server: the next one would have to wait.
    let lines_of_a_search = |damage: &dyn Fn()| {
        let options = larder_store::Options { log: log.clone(), ..options(folder.path()) };
        let store = Store::open(options, &interfaces()).unwrap();
        log.take();
        damage();
        let server = serve(&store);
        let mut connection = Connection::open(server.address().unwrap());
        connection.send("GET /find?q=udp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut lines = Vec::new();
        until_so("a line is logged", || {
            lines.extend(log.take());
            !lines.is_empty()
        });
        lines
    };
    let mut store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let (mut made, mut next) = (Made::default(), 1);
    for ts_ns in 0..9 {
        made.packet(0, ts_ns, &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, &[7; 100]));
    }
    made.append(&mut store, &mut next);
    store.finish().unwrap();
    let path = folder.path().join("00000000.pcapng");
    let lines = lines_of_a_search(&|| {
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 200].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
    });
    let expected =
        "warn store: search incomplete reason=\"packets could not be read in 1 segments (0)";
    assert!(lines[0].starts_with(expected), "{lines:?}");
    let lines = lines_of_a_search(&|| std::fs::remove_dir_all(folder.path()).unwrap());
    assert!(lines[0].starts_with("error store: search failed error="), "{lines:?}");
}

/// Clients that do not read hold a bounded number of searches, and memory; further ones are told to
/// retry. When such a client goes away, its search ends.
#[test]
fn searches_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut large = options(folder.path());
    large.segment_bytes = 1 << 20;
    let mut store = Store::open(large, &interfaces()).unwrap();
    let server = serve_as(&store, |options| options.clients_max = 64);
    let mut next = 1;
    for _ in 0..100 {
        let mut made = Made::default();
        for number in 0..100u8 {
            made.packet(0, 1, &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, &[number; 1400]));
        }
        made.append(&mut store, &mut next);
        assert!(store.wait_for_room(1 << 20, Duration::from_secs(20)));
    }
    wait_until_written(&store);
    let open = || {
        let mut socket = TcpStream::connect(server.address().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(b"GET /find?q=udp HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut status = [0; 12];
        socket.read_exact(&mut status).unwrap();
        (String::from_utf8(status[9..].to_vec()).unwrap(), socket)
    };
    let held: Vec<_> = (0..8).map(|_| open()).collect();
    assert!(held.iter().all(|(status, _)| status == "200"));
    assert_eq!(open().0, "503");
    drop(held);
    until_so("the searches end", || open().0 == "200");
}
