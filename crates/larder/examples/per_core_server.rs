//! A cache server over UDP with a thread per core: `cargo run -p larder --example per_core_server`.
//!
//! This uses the engine directly, for loads that are too high for a `Map`: each worker owns a
//! socket, a writer and a reader. It receives the datagrams that are there, up to 32, applies the
//! inserts, and looks up all keys in one `get_many`, which fetches their memory in parallel. Then
//! it sends the responses. It syncs between batches, when it holds no entry, and parks before a
//! long wait, so that it blocks no writer.
//!
//! ```text
//! request     number u32  key length u8  key  value, or nothing to look it up
//! response    number u32  value
//! ```
//!
//! The program is its own client, checks every response, and ends.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder::{Cache, Error, Parked, Reader, Seconds, Ttl, Writer};

const WORKERS: usize = 2;
const BATCH: usize = 32;
const DATAGRAM_BYTES_MAX: usize = 1500;
/// The engine has no clock; this program ends within a second.
const NOW: Seconds = Seconds(1);

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A request, in the buffer that received it.
struct Request {
    from: SocketAddr,
    bytes: [u8; DATAGRAM_BYTES_MAX],
    len: usize,
}

impl Request {
    /// Number, key and value; `None` if it is malformed, which drops it, as anything may come from
    /// a network.
    fn parts(&self) -> Option<(&[u8], &[u8], &[u8])> {
        let (number, rest) = self.bytes[..self.len].split_at_checked(4)?;
        let (&key_len, rest) = rest.split_first()?;
        let (key, value) = rest.split_at_checked(usize::from(key_len))?;
        (!key.is_empty()).then_some((number, key, value))
    }
}

struct Worker {
    socket: UdpSocket,
    writer: Writer,
    requests: Vec<Request>,
    answer: Vec<u8>,
}

impl Worker {
    /// Waits for one datagram, and receives all that are already there.
    fn receive(&mut self) -> std::io::Result<()> {
        self.requests.clear();
        self.socket.set_nonblocking(false)?;
        while self.requests.len() < BATCH {
            let mut bytes = [0; DATAGRAM_BYTES_MAX];
            match self.socket.recv_from(&mut bytes) {
                Ok((len, from)) => self.requests.push(Request { from, bytes, len }),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    break;
                }
                Err(error) => return Err(error),
            }
            if self.requests.len() == 1 {
                self.socket.set_nonblocking(true)?;
            }
        }
        Ok(())
    }

    /// Applies the inserts of a batch, then responds to every request with its key's present value.
    fn work(&mut self, reader: &mut Reader) -> Result<(), AnyError> {
        let Worker { socket, writer, requests, answer } = self;
        let batch: Vec<_> = requests
            .iter()
            .filter_map(|request| {
                let (number, key, value) = request.parts()?;
                Some((request.from, number, key, value))
            })
            .collect();
        for (_, _, key, value) in batch.iter().filter(|item| !item.3.is_empty()) {
            if let Err(error) = writer.insert(key, value, Ttl::seconds(300), NOW) {
                // A reader is behind. The client will ask again, and get the response that nothing
                // was stored.
                eprintln!("not stored: {error}");
            }
        }
        match writer.flush() {
            Ok(_) | Err(Error::Stalled { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        reader.sync();
        let keys: Vec<_> = batch.iter().map(|item| item.2).collect();
        let mut failed = Ok(());
        reader.get_many(&keys, NOW, |i, entry| {
            let (from, number, ..) = batch[i];
            answer.clear();
            answer.extend_from_slice(number);
            answer.extend_from_slice(entry.as_deref().unwrap_or_default());
            if let Err(error) = socket.send_to(answer, from) {
                failed = Err(error);
            }
        });
        Ok(failed?)
    }
}

fn run(cache: &Cache, socket: UdpSocket, stop: &AtomicBool) -> Result<(), AnyError> {
    socket.set_read_timeout(Some(Duration::from_millis(5)))?;
    let mut worker =
        Worker { socket, writer: cache.writer(), requests: Vec::new(), answer: Vec::new() };
    let mut parked: Parked = cache.reader()?.park();
    while !stop.load(Ordering::Relaxed) {
        // Parked while it may wait. Under load a batch is there at once, and this costs only the
        // changes.
        worker.receive()?;
        let mut reader = parked.unpark()?;
        worker.work(&mut reader)?;
        parked = reader.park();
    }
    Ok(())
}

/// Sends a request, and again if no response comes: datagrams may be lost.
fn request(
    socket: &UdpSocket,
    server: SocketAddr,
    number: u32,
    key: &[u8],
    value: &[u8],
) -> Result<Vec<u8>, AnyError> {
    let request = [&number.to_le_bytes()[..], &[key.len() as u8], key, value].concat();
    let mut answer = [0; DATAGRAM_BYTES_MAX];
    for _ in 0..20 {
        socket.send_to(&request, server)?;
        while let Ok(len) = socket.recv(&mut answer) {
            if let Some(value) = answer[..len].strip_prefix(&number.to_le_bytes()) {
                return Ok(value.to_vec());
            }
        }
    }
    Err("no answer came".into())
}

fn check(servers: &[SocketAddr]) -> Result<u32, AnyError> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut number = 0;
    let mut expect = |server: SocketAddr, key: &[u8], value: &[u8], expected: &[u8]| {
        number += 1;
        let answer = request(&socket, server, number, key, value)?;
        assert_eq!(answer, expected, "the answer to request {number}");
        Ok::<_, AnyError>(())
    };
    for round in 0..200u32 {
        let (key, value) = (round.to_be_bytes(), format!("value {round}"));
        let (here, there) = (servers[round as usize % 2], servers[(round as usize + 1) % 2]);
        expect(here, &key, b"", b"")?;
        expect(here, &key, value.as_bytes(), value.as_bytes())?;
        // What one worker stored, the other reads: its reader catches up before it responds.
        expect(there, &key, b"", value.as_bytes())?;
    }
    Ok(number)
}

fn main() -> Result<(), AnyError> {
    let cache = Cache::builder().budget(16 << 20).readers_max(WORKERS).build()?;
    let sockets =
        (0..WORKERS).map(|_| UdpSocket::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    let servers = sockets.iter().map(UdpSocket::local_addr).collect::<Result<Vec<_>, _>>()?;
    let stop = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let workers: Vec<_> =
            sockets.into_iter().map(|socket| scope.spawn(|| run(&cache, socket, &stop))).collect();
        let answers = check(&servers);
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| "a worker panicked")??;
        }
        answers
    })?;
    println!("{WORKERS} workers gave {answers} right answers");
    Ok(())
}
