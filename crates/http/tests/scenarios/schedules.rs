//! Random schedules. The origin sends in pieces of any size, and may fail at any byte. Clients
//! join, read and disconnect in any order.
//!
//! The model is one sentence: each client gets a prefix of the body, and a clean end only with all
//! of it. Two more checks follow from the order of steps. A client can read the bytes that the
//! origin has sent before it sends more, and the origin gets one request.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{
    Client, Head, KEPT, UNKEPT, World, assert_bytes, body, chunk, pattern, scenario,
};

/// How the origin marks the end of its body.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    Length,
    Chunks,
    Close,
}

#[derive(Debug, Clone)]
enum Step {
    /// The origin sends this number of bytes.
    Send(usize),
    /// A client connects. It requests the complete body, or all from an offset on.
    Join(Option<usize>),
    /// A client reads up to this number of the bytes sent to it.
    Take(usize, usize),
    /// A client disconnects.
    Leave(usize, bool),
}

/// How the body ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Whole,
    Closed,
    Reset,
}

#[derive(Debug, Clone)]
struct Schedule {
    framing: Framing,
    body_bytes: usize,
    steps: Vec<Step>,
    ending: Ending,
    loops: usize,
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let framing = prop_oneof![Just(Framing::Length), Just(Framing::Chunks), Just(Framing::Close)];
    let sizes = || prop_oneof![1..100_usize, 1_000..20_000_usize, 50_000..400_000_usize];
    let step = prop_oneof![
        4 => sizes().prop_map(Step::Send),
        2 => prop_oneof![3 => Just(None), 1 => sizes().prop_map(Some)].prop_map(Step::Join),
        4 => (any::<usize>(), sizes()).prop_map(|(who, bytes)| Step::Take(who, bytes)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(who, resets)| Step::Leave(who, resets)),
    ];
    let ending =
        prop_oneof![2 => Just(Ending::Whole), 1 => Just(Ending::Closed), 1 => Just(Ending::Reset)];
    (
        framing,
        prop_oneof![1..40_000_usize, 100_000..2_000_000_usize],
        vec(step, 1..40),
        ending,
        1..3_usize,
    )
        .prop_map(|(framing, body_bytes, steps, ending, loops)| Schedule {
            framing,
            body_bytes,
            steps,
            ending,
            loops,
        })
}

/// A client, and its progress.
struct Reader {
    client: Client,
    head: Head,
    /// The offset of its first byte, and the number of bytes read.
    from: usize,
    taken: usize,
    /// Bytes of received chunks that the test has not taken yet.
    spare: Vec<u8>,
}

impl Reader {
    fn join(world: &World, from: Option<usize>, body_bytes: Option<usize>) -> Reader {
        let mut client = world.client();
        let range = from.map(|from| format!("Range: bytes={from}-"));
        client.request("GET", "/film", &range.iter().map(String::as_str).collect::<Vec<_>>());
        Reader::answered(client, from, body_bytes)
    }

    fn answered(mut client: Client, from: Option<usize>, body_bytes: Option<usize>) -> Reader {
        let head = client.head();
        let is_part = from.zip(body_bytes).is_some_and(|(from, bytes)| from < bytes);
        assert_eq!(head.status(), if is_part { 206 } else { 200 }, "{head:?}");
        let from = from.filter(|_| is_part).unwrap_or(0);
        assert_eq!(head.length(), body_bytes.map(|bytes| bytes - from));
        Reader { client, head, from, taken: 0, spare: Vec::new() }
    }

    /// Takes up to `bytes` bytes; the origin has sent `sent` of the body.
    fn take(&mut self, bytes: usize, sent: usize) {
        let there = sent.saturating_sub(self.from + self.taken);
        let bytes = bytes.min(there);
        while self.head.is_chunked() && self.spare.len() < bytes {
            self.spare.extend(self.client.try_chunk().unwrap());
        }
        let taken = match self.head.is_chunked() {
            true => self.spare.drain(..bytes).collect(),
            false => self.client.take(bytes),
        };
        self.is_next(&taken);
    }

    fn is_next(&mut self, taken: &[u8]) {
        assert_bytes(taken, &pattern(self.from + self.taken, taken.len()));
        self.taken += taken.len();
    }

    /// Takes the rest; true if it had a clean end.
    fn rest(mut self, body_bytes: usize) -> bool {
        let spare = std::mem::take(&mut self.spare);
        self.is_next(&spare);
        let left = match self.head.is_chunked() {
            true => self.client.try_body(&self.head),
            false => {
                let length = (body_bytes - self.from - self.taken).to_string();
                let fields = vec![("Content-Length".to_owned(), length)];
                self.client.try_body(&Head { line: String::new(), fields })
            }
        };
        match left {
            Ok(bytes) => {
                self.is_next(&bytes);
                assert_eq!(self.from + self.taken, body_bytes, "a clean end before the body's");
                true
            }
            Err((bytes, _)) => {
                self.is_next(&bytes);
                false
            }
        }
    }
}

fn run(schedule: &Schedule) {
    let Schedule { framing, body_bytes, ref steps, ending, .. } = *schedule;
    let loops: &'static [usize] = if schedule.loops == 1 { &[1] } else { &[2] };
    scenario().loops(loops).run(|world| {
        let mut first = world.client();
        first.get("/film");
        let mut origin = world.receive("GET /film");
        match framing {
            Framing::Length => origin.begins("200 OK", &[KEPT], body_bytes),
            Framing::Chunks => origin.begins_chunks("200 OK", &[KEPT]),
            Framing::Close => origin.send(format!("HTTP/1.1 200 OK\r\n{KEPT}\r\n\r\n")),
        }
        let length = (framing == Framing::Length).then_some(body_bytes);
        let mut readers = vec![Reader::answered(first, None, length)];
        let mut sent = 0;
        let send = |origin: &mut crate::support::Connection, bytes: usize, sent: &mut usize| {
            let bytes = bytes.min(body_bytes - *sent);
            let part = pattern(*sent, bytes);
            match framing {
                Framing::Chunks if bytes > 0 => origin.sends_chunk(&part),
                _ => origin.send(part),
            }
            *sent += bytes;
        };
        for step in steps {
            // The ending sends the last byte.
            match *step {
                Step::Send(bytes) if sent < body_bytes => {
                    let bytes = bytes.min(body_bytes - sent - 1);
                    send(&mut origin, bytes, &mut sent);
                }
                Step::Join(from) => {
                    let from = from.map(|from| from % body_bytes);
                    readers.push(Reader::join(world, from, length));
                }
                Step::Take(who, bytes) if !readers.is_empty() => {
                    let who = who % readers.len();
                    readers[who].take(bytes, sent);
                }
                Step::Leave(who, resets) if !readers.is_empty() => {
                    let reader = readers.swap_remove(who % readers.len());
                    if resets {
                        reader.client.stop();
                    }
                }
                _ => {}
            }
        }
        match ending {
            Ending::Whole => {
                while sent < body_bytes {
                    send(&mut origin, 100_000, &mut sent);
                }
                if framing == Framing::Chunks {
                    origin.send("0\r\n\r\n");
                }
                drop(origin);
            }
            Ending::Closed => drop(origin),
            Ending::Reset => origin.stop(),
        }
        let is_whole =
            ending == Ending::Whole || ending == Ending::Closed && framing == Framing::Close;
        let body_bytes = if is_whole { sent } else { body_bytes };
        for reader in readers {
            assert_eq!(reader.rest(body_bytes), is_whole);
        }
        at_the_end(world, is_whole, sent);
    });
}

/// The origin got one request; the next client gets the stored response, or another fetch.
fn at_the_end(world: &World, is_whole: bool, sent: usize) {
    world.origin().is_idle();
    if !is_whole {
        world.until_counts("it broke", |it| it.bodies_broken == 1);
    }
    let mut next = world.client();
    next.get("/film");
    if !is_whole {
        world.receive("GET /film").answers("200 OK", &[KEPT], "anew");
        assert_eq!(next.response().text(), "anew");
    } else if sent > 0 {
        world.until_counts("it is kept", |it| it.kept == 1);
        assert_bytes(&next.response().body, &body(sent));
    }
}

/// A private response: the sizes of the origin's writes and of the client's reads, a window, and
/// the ending.
fn run_alone(pieces: &[usize], takes: &[usize], window_bytes: u64, ending: Ending) {
    let (pieces, takes) = (pieces.to_vec(), takes.to_vec());
    scenario().with(move |it| it.window_bytes = window_bytes).run(move |world| {
        let bytes: usize = pieces.iter().sum();
        let is_whole = ending == Ending::Whole;
        let said = if is_whole { bytes } else { bytes + 1 };
        let mut client = world.client();
        client.get("/own");
        let mut origin = world.receive("GET /own");
        origin.begins("200 OK", &[UNKEPT], said);
        let pieces = pieces.clone();
        let sending = std::thread::spawn(move || {
            let mut sent = 0;
            for piece in pieces {
                origin.send(pattern(sent, piece));
                sent += piece;
            }
            match ending {
                Ending::Reset => origin.stop(),
                _ => drop(origin),
            }
        });
        let Some(head) = client.try_head() else {
            // A reset may overtake earlier bytes, also the headers.
            assert!(!is_whole);
            return sending.join().unwrap();
        };
        assert_eq!(head.length(), Some(said));
        let mut taken = 0;
        if is_whole {
            for take in takes.iter().copied() {
                let take = take.min(bytes - taken);
                assert_bytes(&client.take(take), &pattern(taken, take));
                taken += take;
            }
        }
        let head = Head {
            line: String::new(),
            fields: vec![("Content-Length".to_owned(), (said - taken).to_string())],
        };
        match client.try_body(&head) {
            Ok(rest) => {
                assert!(is_whole);
                assert_bytes(&rest, &pattern(taken, bytes - taken));
            }
            Err((rest, _)) => {
                assert!(!is_whole);
                assert_bytes(&rest, &pattern(taken, rest.len()));
            }
        }
        sending.join().unwrap();
    });
}

/// This number of cases, or that of `PROPTEST_CASES`. Each failing case waits until its timeout, so
/// shrinking makes few attempts.
fn cases(few: u32) -> ProptestConfig {
    let config = ProptestConfig { max_shrink_iters: 50, ..ProptestConfig::default() };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => ProptestConfig { cases: few, ..config },
    }
}

proptest! {
    #![proptest_config(cases(24))]

    /// Each client gets a prefix of the shared body, and a clean end only with all of it.
    #[test]
    fn shared(schedule in schedules()) {
        run(&schedule);
    }

    /// The same for a private response, through a window.
    #[test]
    fn alone(
        pieces in vec(prop_oneof![1..100_usize, 1_000..20_000_usize, 50_000..400_000_usize], 1..20),
        takes in vec(prop_oneof![1..100_usize, 1_000..20_000_usize, 50_000..400_000_usize], 0..20),
        window in prop_oneof![Just(16_u64 << 10), Just(64 << 10), Just(1 << 20)],
        ending in prop_oneof![2 => Just(Ending::Whole), 1 => Just(Ending::Closed), 1 => Just(Ending::Reset)],
    ) {
        run_alone(&pieces, &takes, window, ending);
    }
}

/// An empty chunk would be the last one.
#[test]
fn no_chunk_is_empty() {
    assert_eq!(chunk(b""), b"0\r\n\r\n");
}
