//! Tests of clients and a control socket in an event loop like the supervisor's.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use larder::{Cache, Seconds, Ttl};
use larder_io::epoll::{Events, Poller};

use super::entry::tests::answer;
use super::{Actions, Answer, Control, ControlService, Fields, Limits, Request, client, limits};

const NOW: Seconds = Seconds(100);

struct Supervisor {
    cache: Cache,
    is_stopped: bool,
}

impl Actions for Supervisor {
    fn cache(&self) -> &Cache {
        &self.cache
    }
    fn now(&self) -> Seconds {
        NOW
    }
    fn stats(&mut self) -> Fields {
        Fields::from_iter([("queries".to_owned(), 7.into())])
    }
    fn snapshot(&mut self) -> Answer {
        Answer::Later(Box::new(|_| panic!("a job that fails")))
    }
    fn reload(&mut self) -> Answer {
        Answer::Now(Err("line 3 of the configuration: …".to_owned()))
    }
    fn stop(&mut self) -> Answer {
        self.is_stopped = true;
        Answer::done()
    }
}

/// Ends the event loop, also when a test fails.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a server's event loop on a thread until it is stopped; its time does not advance.
fn serve<R>(limits: Limits, cache: &Cache, act: impl FnOnce(&Path) -> R) -> R {
    serve_at(limits, cache, &Watch::default(), act)
}

/// What a test observes of the event loop, and the time that the test sets.
#[derive(Default)]
struct Watch {
    now_ms: AtomicU64,
    clients: AtomicUsize,
    turns: AtomicUsize,
}

impl Watch {
    /// Waits until the event loop has processed everything done so far: until a whole turn that
    /// began afterwards has ended.
    fn settle(&self) {
        let turns = || self.turns.load(Ordering::Relaxed);
        let start = turns();
        while turns() < start + 2 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Like `serve`, with the time that the test sets.
fn serve_at<R>(limits: Limits, cache: &Cache, watch: &Watch, act: impl FnOnce(&Path) -> R) -> R {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctl");
    let poller = Poller::new().unwrap();
    let mut control = Control::open(&path, 0o600, limits, &poller, 40).unwrap();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let (poller, ends) = (&poller, &ends);
        let cache = cache.clone();
        let server = scope.spawn(move || {
            let mut events = Events::new(4);
            let mut supervisor = Supervisor { cache, is_stopped: false };
            while !supervisor.is_stopped && !ends.load(Ordering::Relaxed) {
                let now = watch.now_ms.load(Ordering::Relaxed);
                let wait_ms = control.wait_ms(now).unwrap_or(20).min(20);
                poller.wait(&mut events, Some(wait_ms)).unwrap();
                let now = watch.now_ms.load(Ordering::Relaxed);
                for event in events.iter() {
                    assert!((40..40 + super::server::TOKENS).contains(&event.token));
                    control.handle(event, poller, &mut ControlService(&mut supervisor), now);
                }
                control.expire(poller, now);
                watch.clients.store(control.clients(), Ordering::Relaxed);
                watch.turns.fetch_add(1, Ordering::Relaxed);
            }
        });
        let result = {
            let _ends = AtEnd(ends);
            act(&path)
        };
        server.join().unwrap();
        assert!(!path.exists(), "the socket leaves with its server");
        result
    })
}

fn cache() -> Cache {
    Cache::builder().budget(64 << 20).readers_max(1).stale(Seconds(1000)).build().unwrap()
}

/// A cache with `count` names below `example.`, in wire form `\x08` and eight digits.
fn filled(count: u32) -> Cache {
    let cache = cache();
    let mut writer = cache.writer();
    for number in 0..count {
        let name = [b"\x08", format!("{number:08}").as_bytes(), b"\x07example\0"].concat();
        let (key, value) = answer(&name, 0);
        writer.insert(&key, &value, Ttl::seconds(60), NOW).unwrap();
    }
    writer.flush().unwrap();
    cache
}

fn exchange(path: &Path, request: &Request) -> Result<Fields, client::Error> {
    client::request(path, request, |_| Ok(()))
}

fn number(fields: &Fields, name: &str) -> u64 {
    fields.get(name).and_then(|value| value.as_u64()).unwrap()
}

/// Each request gets a response, and errors are text. A job that panics affects nothing else.
/// `stop` gets its response before the server ends. Invariant 1 of `serve::server`.
#[test]
fn requests_are_answered() {
    serve(limits(), &cache(), |path| {
        assert_eq!(number(&exchange(path, &Request::Stats).unwrap(), "queries"), 7);
        let version = exchange(path, &Request::Version).unwrap();
        assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
        for (request, part) in [(Request::Snapshot, "failed in this"), (Request::Reload, "line 3")]
        {
            let error = exchange(path, &request).unwrap_err();
            assert!(matches!(&error, client::Error::Refused(why) if why.contains(part)), "{error}");
        }
        assert_eq!(exchange(path, &Request::Stop).unwrap(), Fields::new());
    });
}

/// Several requests in one write get their responses in order. A last request without a line end,
/// as `printf` and `nc` send it, counts too.
#[test]
fn requests_in_a_row() {
    serve(limits(), &cache(), |path| {
        let mut socket = UnixStream::connect(path).unwrap();
        socket
            .write_all(b"{\"command\":\"stats\"}\n\n{\"command\":\"flush\",\"name\":\"a\"}")
            .unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "{\"ok\":true,\"queries\":7}");
        assert!(lines[1].starts_with("{\"ok\":false,\"error\":\"not a line of JSON"), "{text}");
        assert_eq!(lines[2..], ["{\"ok\":true,\"removed\":0}"]);
    });
}

/// One server dumps its entries and another loads them, with their expiry. Entries that expired
/// meanwhile, and invalid lines, are counted and skipped.
#[test]
fn a_dump_is_loaded() {
    let full = filled(3000);
    let mut lines = serve(limits(), &full, |path| {
        let mut lines = Vec::new();
        let dumped = client::request(path, &Request::Dump, |line| lines.write_all(line)).unwrap();
        assert_eq!(number(&dumped, "entries"), 3000);
        lines
    });
    assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), 3000);
    lines.extend_from_slice(b"{}\n");
    let text = String::from_utf8(lines).unwrap();
    let text = text.replacen("\"expires\":160", "\"expires\":100", 1);
    let other = cache();
    serve(limits(), &other, |path| {
        let loaded = client::load(path, &mut text.as_bytes()).unwrap();
        let counts = ["loaded", "ended", "refused"].map(|name| number(&loaded, name));
        assert_eq!(counts, [2999, 1, 1]);
        assert_eq!(loaded["first_refused"], "line 3001: it has no key or no value");
    });
    let mut reader = other.reader().unwrap();
    reader.sync();
    let mut missing = 0;
    for entry in full.iter(NOW) {
        match reader.get(entry.key(), NOW) {
            Some(found) => {
                assert_eq!((found.value(), found.expires()), (entry.value(), entry.expires()));
            }
            None => missing += 1,
        }
    }
    assert_eq!(missing, 1);
}

/// Flushing a name removes its responses of any type, view and letter case, also stale ones and
/// those whose key is a digest. Other names stay. Flushing a zone removes all names in it.
#[test]
fn names_are_flushed() {
    let cache = filled(500);
    let mut writer = cache.writer();
    let long =
        [&[63][..], &[b'x'; 63], &[63], &[b'y'; 63], &[63], &[b'z'; 63], &[50], &[b'w'; 50], &[0]];
    let long = long.concat();
    for (name, view) in
        [(&b"\x01A\x01b\0"[..], 0), (b"\x01a\x01B\0", 1), (b"\x01b\0", 0), (&long, 0)]
    {
        let (mut key, value) = answer(name, view);
        if key.len() > 255 - 12 {
            key = [vec![0xff], vec![7; 32]].concat();
        }
        writer.insert(&key, &value, Ttl::seconds(1), Seconds(1)).unwrap();
    }
    writer.insert(b"other", b"not an answer", Ttl::FOREVER, NOW).unwrap();
    writer.flush().unwrap();
    let mut long_text = String::new();
    crate::presentation::push_name(&mut long_text, &long);
    serve(limits(), &cache, |path| {
        let removed = |request| number(&exchange(path, &request).unwrap(), "removed");
        assert_eq!(removed(Request::flush("A.b").unwrap()), 2);
        assert_eq!(removed(Request::flush("a.b").unwrap()), 0);
        assert_eq!(removed(Request::flush(&long_text).unwrap()), 1);
        assert_eq!(removed(Request::flush_zone("ample").unwrap()), 0);
        assert_eq!(removed(Request::flush_zone("Example.").unwrap()), 500);
        assert_eq!(removed(Request::flush_zone(".").unwrap()), 1);
    });
    assert_eq!(cache.stats().unwrap().entries, 1);
}

/// A client that requests a dump but does not read it is closed at last, and other clients are
/// served meanwhile. A silent client is closed too. A line without an end is refused before it
/// takes memory. Clients above the limit get an error. Invariant 1 of `serve::server`.
#[test]
fn clients_are_bounded() {
    let cache = filled(20_000);
    let limits = Limits { clients_max: 2, ..limits() };
    let watch = Watch::default();
    serve_at(limits, &cache, &watch, |path| {
        let mut deaf = UnixStream::connect(path).unwrap();
        deaf.write_all(b"{\"command\":\"dump\"}\n").unwrap();
        assert_eq!(number(&exchange(path, &Request::Stats).unwrap(), "queries"), 7);
        // The slot of the client above is free again.
        watch.settle();
        let mut endless = UnixStream::connect(path).unwrap();
        // The refusal may arrive before everything is written.
        let _ = endless.write_all(&vec![b'['; 1 << 20]);
        let mut text = String::new();
        // A socket closed with unread bytes resets the connection after the refusal.
        let _ = endless.read_to_string(&mut text);
        assert!(text.contains("bytes at most"), "{text}");

        watch.settle();
        let mut silent = UnixStream::connect(path).unwrap();
        let mut surplus = UnixStream::connect(path).unwrap();
        let mut text = String::new();
        surplus.read_to_string(&mut text).unwrap();
        assert!(text.contains("2 clients are connected"), "{text}");

        while watch.clients.load(Ordering::Relaxed) > 0 {
            // The dump progresses while the system's buffers fill.
            watch.now_ms.fetch_add(limits.stall_ms, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
        // The job of the first dump has ended: otherwise a second walk would wait for it forever.
        assert_eq!(number(&exchange(path, &Request::Dump).unwrap(), "entries"), 20_000);
        let mut rest = Vec::new();
        deaf.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = deaf.read_to_end(&mut rest);
        assert!(!rest.ends_with(b"20000}\n"), "it did not get all of it");
    });
}

/// A load ends without affecting later requests if its client disconnects, or sends a line without
/// an end. Invariant 2 of `serve::job`.
#[test]
fn loads_end() {
    let cache = filled(10);
    serve(limits(), &cache, |path| {
        let mut vanishing = UnixStream::connect(path).unwrap();
        vanishing.write_all(b"{\"command\":\"load\"}\n{\"ke").unwrap();
        drop(vanishing);
        let refused = client::load(path, &mut &vec![b'x'; 1 << 20][..]).unwrap_err();
        assert!(refused.to_string().contains("bytes at most"), "{refused}");
        assert_eq!(number(&exchange(path, &Request::Dump).unwrap(), "entries"), 10);
    });
}

/// The socket has the requested mode. It does not replace the socket of a running server, nor a
/// file of another kind. It replaces a stale socket. Closing leaves a file that replaced the
/// socket.
#[test]
fn the_socket_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctl");
    let poller = Poller::new().unwrap();
    let open = |mode| Control::open(&path, mode, limits(), &poller, 0);
    drop(UnixListener::bind(&path).unwrap());
    let control = open(0o660).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    assert_eq!(control.clients(), 0);
    let error = open(0o600).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains("larder ctl stop"));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"a file").unwrap();
    drop(control);
    let error = open(0o600).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    let names: Vec<PathBuf> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, [path], "nothing is left beside it");
}

/// Without a server, the client's error says what to start.
#[test]
fn nobody_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctl");
    let error = exchange(&path, &Request::Stats).unwrap_err().to_string();
    assert!(error.contains("is the server running, with --ctl"), "{error}");
    drop(UnixListener::bind(&path).unwrap());
    let error = exchange(&path, &Request::Stats).unwrap_err().to_string();
    assert!(error.contains("start it with --ctl"), "{error}");
    let foreign = UnixListener::bind(folder.path().join("other")).unwrap();
    let other = thread::spawn(move || {
        let (mut socket, _) = foreign.accept().unwrap();
        socket.write_all(b"hello").unwrap();
    });
    let error = exchange(&folder.path().join("other"), &Request::Stats).unwrap_err();
    assert!(matches!(error, client::Error::Foreign | client::Error::Lost(_)), "{error}");
    other.join().unwrap();
}
