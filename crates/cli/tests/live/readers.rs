//! HTTP access to stored packets while they arrive: many readers, slow readers, readers that
//! request what does not exist.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use larder_testkit::skip::has;
use larder_testkit::wait::{PATIENCE, until};

use crate::world::World;

/// The address at which larder serves, outside of the captured network.
const SERVE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 78, 0, 2)), 8053);
const READERS: usize = 100;

/// A response: its headers, and a reader of its body.
struct Answer {
    head: String,
    body: BufReader<TcpStream>,
    in_chunks: bool,
}

fn request(method: &str, path: &str, more: &str) -> Answer {
    let mut socket = TcpStream::connect(SERVE).expect("larder serves");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: 10.78.0.2:8053\r\n{more}\r\n");
    socket.write_all(request.as_bytes()).expect("sent");
    let mut body = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(body.read_line(&mut head).expect("a head") > 0, "{head}");
    }
    let in_chunks = head.contains("Transfer-Encoding: chunked");
    Answer { head, body, in_chunks }
}

impl Answer {
    fn status(&self) -> &str {
        self.head.split(' ').nth(1).expect("a status")
    }

    fn length(&self) -> usize {
        let line = self.head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        line.expect("a length").parse().expect("a number")
    }

    /// The next chunk; `None` after the last.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        assert!(self.in_chunks, "{}", self.head);
        let mut line = String::new();
        self.body.read_line(&mut line).expect("a chunk");
        let bytes = usize::from_str_radix(line.trim(), 16).expect("its length");
        let mut payload = vec![0; bytes + 2];
        self.body.read_exact(&mut payload).expect("its octets");
        payload.truncate(bytes);
        (bytes > 0).then_some(payload)
    }

    /// The complete body.
    fn all(mut self) -> Vec<u8> {
        if self.in_chunks {
            return std::iter::from_fn(|| self.chunk()).collect::<Vec<_>>().concat();
        }
        let mut payload = vec![0; self.length()];
        self.body.read_exact(&mut payload).expect("its octets");
        payload
    }
}

fn contains(payload: &[u8], wanted: &[u8]) -> bool {
    payload.windows(wanted.len()).any(|part| part == wanted)
}

/// A hundred clients read the open segment, from its first packet on; one more sends a request and
/// never reads. All of them get the bytes that the file has in the end, from one thread, and no
/// packet is dropped for any of them. A closed segment is served in ranges; a request for a missing
/// one is refused.
#[test]
fn many_readers() {
    const TEST: &str = "many_readers";
    let Some(world) = World::new(TEST) else { return };
    let names = world.names();
    let capture =
        world.capture("-w kept --store 64MiB --segment 4MiB --serve 10.78.0.2:8053 --udp-idle 1s");
    names.query(0);
    until("a segment", || (world.count("store_packets") > 0).then_some(()));
    let mut idle = TcpStream::connect(SERVE).expect("larder serves");
    idle.write_all(b"GET /segments/00000000.pcapng HTTP/1.1\r\nHost: 10.78.0.2:8053\r\n\r\n")
        .expect("sent");

    let (say, finished) = channel();
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let say = say.clone();
            thread::spawn(move || {
                let mut answer = request("GET", "/segments/00000000.pcapng", "");
                let mut payload = answer.chunk().expect("a growing segment has octets");
                let _ = say.send(());
                payload.extend(answer.all());
                payload
            })
        })
        .collect();
    for _ in 0..READERS {
        finished.recv_timeout(PATIENCE).expect("all of them read");
    }
    let payload = [5; 1400];
    until("the segment to be full", || {
        for _ in 0..100 {
            names.send(1, 7000, &payload);
        }
        let files = fs::read_dir(world.scratch.path("kept")).expect("a folder");
        let mut names = files.map(|file| file.expect("there").file_name());
        names.any(|name| name == "00000000.pcapng").then_some(())
    });
    let file = fs::read(world.scratch.path("kept/00000000.pcapng")).expect("closed");
    for reader in readers {
        assert!(
            reader.join().expect("it reads to the end") == file,
            "other octets than the file's"
        );
    }
    let tasks = fs::read_dir(format!("/proc/{}/task", capture.id())).expect("it lives");
    let serving = tasks.filter(|task| {
        let comm = task.as_ref().expect("there").path().join("comm");
        fs::read_to_string(comm).is_ok_and(|name| name.trim() == "serve")
    });
    assert_eq!(serving.count(), 1);
    for count in ["kernel_dropped", "store_packets_dropped"] {
        assert_eq!(world.count(count), 0, "{count}");
    }

    let range = request("GET", "/segments/00000000.pcapng", "Range: bytes=1000-2999\r\n");
    assert_eq!((range.status(), range.length()), ("206", 2000), "{}", range.head);
    assert!(range.all() == file[1000..3000]);
    let head = request("HEAD", "/segments/00000000.pcapng", "");
    assert_eq!((head.status(), head.length()), ("200", file.len()), "{}", head.head);
    assert_eq!(request("GET", "/segments/00009999.pcapng", "").status(), "404");
    let list = String::from_utf8(request("GET", "/", "").all()).expect("text");
    assert!(list.contains("/segments/00000000.pcapng"), "{list}");
    drop(idle);
    let (code, said) = capture.stop();
    assert_eq!(code, Some(0), "{said}");
}

/// tshark reads the live stream from a pipe, and shows packets that arrive after it began, across
/// the end of a segment. The test prints the delay of the first byte behind its packet, and does
/// not judge it.
#[test]
fn live_stream() {
    const TEST: &str = "live_stream";
    if !["curl", "tshark"].iter().all(|program| has(TEST, program)) {
        return;
    }
    let Some(world) = World::new(TEST) else { return };
    let names = world.names();
    let capture = world.capture("-w kept --store 64MiB --segment 64KiB --serve 10.78.0.2:8053");
    names.query(0);
    until("a segment", || (world.count("store_packets") > 0).then_some(()));
    let mut waits: Vec<Duration> = Vec::new();
    let mut stream = request("GET", "/live.pcapng", "");
    stream.chunk().expect("a header");
    for round in 0..20 {
        let payload = format!("packet {round} of twenty");
        let begun = Instant::now();
        names.send(2, 7002, payload.as_bytes());
        while !contains(&stream.chunk().expect("it goes on"), payload.as_bytes()) {}
        waits.push(begun.elapsed());
    }
    waits.sort();
    println!(
        "a packet was at its reader after {:?} (middle of 20), {:?} at most",
        waits[10], waits[19]
    );

    let line = "curl -sN http://10.78.0.2:8053/live.pcapng | tshark -l -n -i - -Y 'udp && !icmp' -T fields -e udp.dstport";
    let mut tshark = Command::new("sh");
    tshark.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tshark = tshark.spawn().expect("it starts");
    let ends = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let ends = &ends;
        scope.spawn(move || {
            // The port numbers each packet, across the ends of many segments; some come before
            // tshark starts.
            for port in (20_000..60_000).cycle() {
                if ends.load(Ordering::Acquire) {
                    return;
                }
                names.send(3, port, &[9; 1000]);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let lines = BufReader::new(tshark.stdout.take().expect("piped")).lines();
        let ports = lines.map_while(Result::ok).filter_map(|line| line.parse::<u16>().ok());
        let seen: Vec<u16> = ports.filter(|port| *port >= 20_000).take(500).collect();
        ends.store(true, Ordering::Release);
        seen
    });
    // curl ends with the stream, and tshark with curl.
    let (code, said) = capture.stop();
    assert_eq!(code, Some(0), "{said}");
    tshark.wait().expect("it ends");
    assert_eq!(seen.len(), 500);
    assert!(seen.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a packet is missing: {seen:?}");
    assert!(world.segments("kept").len() > 5);
}
