//! Many clients that request one resource at once while the origin is still sending it.
//!
//! All connections are open before the first asks. Each asks once; every tenth compares what comes byte by byte, the
//! others check status, length and the beginning. Times of clients and origin are those of one clock.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder_io::epoll::{Events, Interest, Poller};

use super::exchange::{Exchange, Room};
use super::load::{Load, Target};
use crate::clock::ThreadTime;

/// Longest sleep, so that the flag is seen.
const WAIT_MS: u64 = 10;
/// One in this many clients compares the bytes.
const CHECKED_ONE_IN: usize = 10;

/// What came of it.
#[derive(Debug, Default)]
pub struct Crowd {
    /// When each client had its first byte of the body, in order.
    pub first: Vec<Instant>,
    /// From request to last byte, in order.
    pub last: Vec<Duration>,
    /// Bytes of all bodies, and what was wrong.
    pub load: Load,
}

struct Client {
    stream: TcpStream,
    exchange: Exchange,
    sent_at: Instant,
    has_begun: bool,
}

/// Asks from the calling thread; `ready` is called when all connections are open. Clients without a whole answer after
/// `longest` have failed.
pub fn request_all(
    target: &Target,
    clients: usize,
    longest: Duration,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> io::Result<Crowd> {
    let (poller, mut events) = (Poller::new()?, Events::new(clients.max(1)));
    let (request, mut room) = (target.request(), Room::new());
    let mut waiting = Vec::with_capacity(clients);
    for token in 0..clients {
        let mut exchange = Exchange::new(target.resource.body(), target.resource.bytes);
        exchange.checks = token.is_multiple_of(CHECKED_ONE_IN);
        exchange.begin();
        let stream = target.connect()?;
        poller.add(&stream, token as u64, Interest::READ)?;
        let sent_at = Instant::now();
        waiting.push(Some(Client { stream, exchange, sent_at, has_begun: false }));
    }
    ready();
    let time = ThreadTime::start();
    let begun = Instant::now();
    for client in waiting.iter_mut().flatten() {
        client.sent_at = Instant::now();
        // One that is gone is found out when it is read.
        let _ = client.stream.write_all(&request);
    }
    let (mut crowd, mut left) = (Crowd::default(), clients);
    while left > 0 && begun.elapsed() < longest && !stop.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(WAIT_MS))?;
        for event in events.iter() {
            let Some(place) = waiting.get_mut(event.token as usize) else { continue };
            let Some(client) = place else { continue };
            match client.exchange.receive(&client.stream, &mut room) {
                Ok(took) => {
                    crowd.load.bytes += took.bytes;
                    if took.bytes > 0 && !std::mem::replace(&mut client.has_begun, true) {
                        crowd.first.push(Instant::now());
                    }
                    if !took.is_done {
                        continue;
                    }
                    crowd.load.responses += 1;
                    crowd.last.push(client.sent_at.elapsed());
                }
                Err(fault) => crowd.load.fault(&fault),
            }
            *place = None;
            left -= 1;
        }
    }
    crowd.load.ran_ns = time.elapsed_ns();
    crowd.load.failed += left as u64;
    crowd.last.sort();
    Ok(crowd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::body::Resource;
    use crate::http::origin::Origin;
    use crate::http::serve::while_serving;

    /// All clients get all bytes of what takes its time, none before the origin began, and clients that request what
    /// is not there get nothing.
    #[test]
    fn a_crowd_is_served() {
        let mut origin = Origin::default();
        let requests = origin.requests.clone();
        while_serving(&mut origin, |address| {
            let resource = Resource::of_path("/slow/300000/1/60").unwrap();
            let target = Target::of(address, resource);
            let longest = Duration::from_secs(60);
            let ready = || assert_eq!(requests.all(), 0);
            let crowd = request_all(&target, 12, longest, &AtomicBool::new(false), ready).unwrap();
            assert_eq!((crowd.first.len(), crowd.last.len()), (12, 12));
            assert_eq!((crowd.load.bytes, crowd.load.wrong, crowd.load.failed), (3_600_000, 0, 0));
            assert_eq!(requests.of(&target.path).count, 12);
            // Five steps: the last is sent after four of them.
            assert!(crowd.last[0] >= Duration::from_millis(40));
            let target = Target { path: "/nothing".to_owned(), ..target };
            let crowd = request_all(&target, 3, longest, &AtomicBool::new(false), || {}).unwrap();
            assert_eq!((crowd.load.wrong, crowd.last.len()), (3, 0));
        });
    }
}
