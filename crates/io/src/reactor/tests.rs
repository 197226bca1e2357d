//! Scenarios for every I/O interface, over real sockets.
//!
//! | file | what |
//! |---|---|
//! | here | bytes come and go, whatever their number |
//! | `control` | pausing, watching, waking, closing, and what is left when it ends |
//! | `interleaved` | any order of operations |

mod control;
mod interleaved;

use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use crate::tcp;

/// The longest time that a test waits for an event.
const LONG: Duration = Duration::from_secs(20);

/// An event that owns its data.
#[derive(Debug)]
enum Seen {
    Accepted(u64, OwnedFd),
    Received(u64, Vec<u8>),
    Finished(u64),
    Ready(u64, bool, bool),
    Sent(u64),
    Failed(u64, io::Error),
    Woken,
}

struct Loop {
    reactor: Reactor,
    batch: Batch,
}

impl Loop {
    fn new(options: &Options) -> Loop {
        let (reactor, batch) = Reactor::new(options).unwrap();
        Loop { reactor, batch }
    }

    /// One wait, and its events.
    fn turn(&mut self, timeout: Duration) -> Vec<Seen> {
        let count = self.reactor.wait(&mut self.batch, Some(timeout)).unwrap();
        assert_eq!(count, self.batch.len());
        let mut seen = Vec::new();
        while let Some(event) = self.batch.next() {
            seen.push(match event {
                Event::Accepted { token, socket, .. } => Seen::Accepted(token, socket),
                Event::Received { token, bytes } => {
                    assert!(!bytes.is_empty());
                    Seen::Received(token, bytes.to_vec())
                }
                Event::Finished { token } => Seen::Finished(token),
                Event::Ready { token, readable, writable, .. } => {
                    Seen::Ready(token, readable, writable)
                }
                Event::Sent { token } => Seen::Sent(token),
                Event::Failed { token, error } => Seen::Failed(token, error),
                Event::Woken => Seen::Woken,
            });
        }
        seen
    }

    /// Waits until `is_done` is true for an event, or for too long.
    fn until(&mut self, mut is_done: impl FnMut(&mut Reactor, Seen) -> bool) {
        let start = Instant::now();
        while start.elapsed() < LONG {
            let mut done = false;
            for seen in self.turn(LONG) {
                done |= is_done(&mut self.reactor, seen);
            }
            if done {
                return;
            }
        }
        panic!("it does not come");
    }

    /// No more events arrive.
    fn stays_silent(&mut self) {
        let seen = self.turn(Duration::from_millis(30));
        assert!(seen.is_empty(), "{seen:?}");
    }
}

fn pair() -> (TcpStream, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_read_timeout(Some(LONG)).unwrap();
    (theirs, ours.into())
}

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    (0..count as u64)
        .map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// Runs a scenario by each way to the kernel that this machine has.
fn by_each_way(scenario: impl Fn(Options)) {
    let options =
        Options { events_max: 64, receive_bytes: 4096, buffers: 16, ..Options::default() };
    scenario(Options { choice: Choice::Epoll, ..options.clone() });
    let options = Options { choice: Choice::Uring, ..options };
    match Reactor::new(&options) {
        Ok((reactor, _)) => {
            assert_eq!(reactor.backend(), Backend::Uring);
            scenario(options);
        }
        Err(error) => crate::testing::skip("reactors_by_io_uring", error),
    }
}

/// Many connections are accepted, and each receives the bytes that it sent, until its end, with few
/// buffers.
#[test]
fn many_connections_echo() {
    by_each_way(|options| {
        let mut many = Loop::new(&options);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        many.reactor.listen(&listener, 0).unwrap();
        const CONNECTIONS: u64 = 100;
        let clients: Vec<_> = (1..=CONNECTIONS)
            .map(|seed| {
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(LONG)).unwrap();
                    for round in 0..20 {
                        let said = bytes(1 + (seed as usize * 37 + round * 211) % 6000, seed);
                        stream.write_all(&said).unwrap();
                        let mut received = vec![0; said.len()];
                        stream.read_exact(&mut received).unwrap();
                        assert!(received == said);
                    }
                })
            })
            .collect();
        let mut sockets: Vec<Option<OwnedFd>> = vec![None];
        let mut ended = 0;
        let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
        let mut sending = vec![false];
        many.until(|reactor, seen| {
            match seen {
                Seen::Accepted(0, socket) => {
                    let token = sockets.len() as u64;
                    reactor.receive(&socket, token).unwrap();
                    sockets.push(Some(socket));
                    waiting.push(Vec::new());
                    sending.push(false);
                }
                Seen::Received(token, bytes) => {
                    let at = token as usize;
                    waiting[at].extend(bytes);
                    if !sending[at] {
                        let out = std::mem::take(&mut waiting[at]);
                        let socket = sockets[at].as_ref().unwrap();
                        match reactor.send(socket, token, out) {
                            Sending::Done => {}
                            Sending::Later => sending[at] = true,
                            Sending::Failed(error) => panic!("{error}"),
                        }
                    }
                }
                Seen::Sent(token) => {
                    let at = token as usize;
                    sending[at] = false;
                    let out = std::mem::take(&mut waiting[at]);
                    let socket = sockets[at].as_ref().unwrap();
                    if let Sending::Later = reactor.send(socket, token, out) {
                        sending[at] = true;
                    }
                }
                Seen::Finished(token) => {
                    reactor.close(sockets[token as usize].take().unwrap(), token);
                    ended += 1;
                }
                seen => panic!("{seen:?}"),
            }
            ended == CONNECTIONS
        });
        clients.into_iter().for_each(|client| client.join().unwrap());
        many.stays_silent();
    });
}

/// A slow reader gets all of a large send, and only then the send is reported.
#[test]
fn slow_readers_get_all() {
    by_each_way(|options| {
        let (mut theirs, ours) = pair();
        let mut one = Loop::new(&options);
        let all = bytes(12 << 20, 5);
        assert!(matches!(one.reactor.send(&ours, 9, all.clone()), Sending::Later));
        for _ in 0..3 {
            one.stays_silent();
        }
        let reader = std::thread::spawn(move || {
            let mut received = vec![0; all.len()];
            theirs.read_exact(&mut received).unwrap();
            assert!(received == all);
        });
        one.until(|_, seen| matches!(seen, Seen::Sent(9)));
        reader.join().unwrap();
        one.stays_silent();
        one.reactor.close(ours, 9);
    });
}

/// A request's headers are received, then reading is paused, and the body is read straight to its
/// place when it arrives, in order. A file is sent back by its pages, as the socket has room.
/// Invariant 5 of `uring`.
#[test]
fn bodies_bypass_buffers() {
    by_each_way(|options| {
        let (mut theirs, ours) = pair();
        let mut one = Loop::new(&options);
        one.reactor.receive(&ours, 3).unwrap();
        let all = bytes(3 << 20, 11);
        let said = all.clone();
        let peer = std::thread::spawn(move || {
            theirs.write_all(&said).unwrap();
            let mut received = vec![0; said.len()];
            theirs.read_exact(&mut received).unwrap();
            assert!(received == said);
            theirs
        });
        let mut body = Vec::new();
        let mut is_direct = false;
        one.until(|reactor, seen| {
            match seen {
                Seen::Received(3, bytes) => {
                    body.extend(bytes);
                    if !is_direct {
                        is_direct = true;
                        reactor.pause(&ours, 3);
                        reactor.watch(&ours, 3, Interest::READ).unwrap();
                    }
                }
                Seen::Ready(3, true, _) => {
                    let mut room = vec![0; 100_000];
                    match tcp::read_into(&ours, &mut room) {
                        Ok(count) => body.extend(&room[..count]),
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                    if body.len() < all.len() {
                        reactor.watch(&ours, 3, Interest::READ).unwrap();
                    }
                }
                seen => panic!("{seen:?}"),
            }
            body.len() == all.len()
        });
        assert!(body == all);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&all).unwrap();
        one.reactor.watch(&ours, 3, Interest::WRITE).unwrap();
        let mut sent = 0;
        one.until(|reactor, seen| {
            assert!(matches!(seen, Seen::Ready(3, _, true)), "{seen:?}");
            while sent < all.len() {
                match tcp::send_file(&ours, &file, sent as u64, 1 << 20) {
                    Ok(bytes) => sent += bytes,
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                        reactor.watch(&ours, 3, Interest::WRITE).unwrap();
                        return false;
                    }
                }
            }
            true
        });
        let _theirs = peer.join().unwrap();
        one.stays_silent();
        one.reactor.close(ours, 3);
    });
}

/// A connection that the peer resets is reported once, as a failure of the operation under way.
#[test]
fn resets_are_failures() {
    by_each_way(|options| {
        let mut one = Loop::new(&options);
        for is_sending in [false, true] {
            let (theirs, ours) = pair();
            let token = 20 + u64::from(is_sending);
            if is_sending {
                let sending = one.reactor.send(&ours, token, bytes(12 << 20, 5));
                assert!(matches!(sending, Sending::Later));
                one.stays_silent();
            } else {
                one.reactor.receive(&ours, token).unwrap();
                // Closed with bytes unread, a socket resets its connection.
                assert_eq!(tcp::write(&ours, b"unread").unwrap(), 6);
                one.stays_silent();
            }
            drop(theirs);
            one.until(|_, seen| match seen {
                Seen::Failed(of, error) => {
                    assert_eq!(of, token, "{error}");
                    true
                }
                seen => panic!("{seen:?}"),
            });
            one.stays_silent();
            one.reactor.close(ours, token);
        }
    });
}
