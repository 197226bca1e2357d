//! The cost of a request for the event loop of a core: `cargo bench -p larder-io --bench reactor`.
//! Under `cargo test` a few requests are made, to show that it works.
//!
//! Each open connection sends 200 bytes and receives them back before it sends again: an HTTP
//! server without HTTP. The server's thread is pinned to the first core and measures its own CPU
//! time; clients are a reactor on the last one, the same for each row. The events of a wait are
//! those that arrived while the wait before was handled, so rows also differ in the number of
//! events per wait, which is shown.
//!
//! `--epoll` or `--uring` runs only that row, a number sets the number of connections. Count real
//! system calls from outside: `perf stat -e raw_syscalls:sys_enter`, or `strace -f -c`, which makes
//! batches larger.
//!
//! Rows take turns, so that what disturbs the machine disturbs all; the best and the middle round
//! are shown.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use larder_io::reactor::{Backend, Choice, Event, Options, Reactor, Sending};
use larder_io::{cores, tcp};

const REQUEST_BYTES: usize = 200;

/// A connection: bytes to send that had no room, and how much of a response it has received.
struct Connection {
    socket: OwnedFd,
    unsaid: Vec<u8>,
    is_speaking: bool,
    received: usize,
}

impl Connection {
    fn new(socket: OwnedFd) -> Connection {
        Connection { socket, unsaid: Vec::new(), is_speaking: false, received: 0 }
    }

    fn say(&mut self, reactor: &mut Reactor, token: u64, bytes: &[u8]) {
        if self.is_speaking {
            self.unsaid.extend(bytes);
            return;
        }
        let mut buffer = reactor.buffer();
        buffer.extend(bytes);
        match reactor.send(&self.socket, token, buffer) {
            Sending::Done => {}
            Sending::Later => self.is_speaking = true,
            Sending::Failed(error) => panic!("{error}"),
        }
    }

    fn said(&mut self, reactor: &mut Reactor, token: u64) {
        self.is_speaking = false;
        let bytes = std::mem::take(&mut self.unsaid);
        if !bytes.is_empty() {
            self.say(reactor, token, &bytes);
        }
    }
}

/// The cost of serving.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    requests: u64,
    cpu_ns: u64,
    waits: u64,
    wall: Duration,
}

/// Nanoseconds that this thread has been on a CPU.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn options(choice: Choice) -> Options {
    Options { choice, ..Options::default() }
}

/// Serves until all connections have ended.
fn serve(listener: &TcpListener, choice: Choice, connections: usize) -> Cost {
    let (mut reactor, mut batch) =
        Reactor::new(&options(choice)).expect("chosen because it is here");
    reactor.listen(listener, 0).expect("a listener");
    let mut all: Vec<Option<Connection>> = vec![None];
    let (mut ended, mut bytes_received) = (0, 0);
    let mut cost = Cost::default();
    let (mut start, mut start_ns) = (Instant::now(), 0);
    while ended < connections {
        reactor.wait(&mut batch, None).expect("a wait");
        cost.waits += 1;
        while let Some(event) = batch.next() {
            match event {
                Event::Accepted { socket, .. } => {
                    let token = all.len() as u64;
                    reactor.receive(&socket, token).expect("a socket");
                    all.push(Some(Connection::new(socket)));
                    if all.len() > connections {
                        (start, start_ns, cost.waits) = (Instant::now(), cpu_ns(), 0);
                    }
                }
                Event::Received { token, bytes } => {
                    bytes_received += bytes.len() as u64;
                    if let Some(connection) = &mut all[token as usize] {
                        connection.say(&mut reactor, token, bytes);
                    }
                }
                Event::Sent { token } => {
                    if let Some(connection) = &mut all[token as usize] {
                        connection.said(&mut reactor, token);
                    }
                }
                Event::Finished { token } => {
                    if ended == 0 {
                        (cost.wall, cost.cpu_ns) = (start.elapsed(), cpu_ns() - start_ns);
                    }
                    let connection = all[token as usize].take().expect("it ends once");
                    reactor.close(connection.socket, token);
                    ended += 1;
                }
                event => panic!("{event:?}"),
            }
        }
    }
    cost.requests = bytes_received / REQUEST_BYTES as u64;
    cost
}

/// Makes `requests` on each of `connections`.
fn send_requests(listener: &TcpListener, connections: usize, requests: usize) -> io::Result<()> {
    let (mut reactor, mut batch) = Reactor::new(&options(Choice::Auto))?;
    let request = [b'?'; REQUEST_BYTES];
    let mut all = Vec::new();
    for token in 0..connections as u64 {
        let stream = std::net::TcpStream::connect(listener.local_addr()?)?;
        stream.set_nonblocking(true)?;
        tcp::set_nodelay(&stream)?;
        let mut connection = Connection::new(stream.into());
        reactor.receive(&connection.socket, token)?;
        connection.say(&mut reactor, token, &request);
        all.push((connection, requests));
    }
    let mut left = connections;
    while left > 0 {
        reactor.wait(&mut batch, None)?;
        while let Some(event) = batch.next() {
            match event {
                Event::Received { token, bytes } => {
                    let (connection, requests) = &mut all[token as usize];
                    connection.received += bytes.len();
                    if connection.received == REQUEST_BYTES {
                        connection.received = 0;
                        *requests -= 1;
                        if *requests > 0 {
                            connection.say(&mut reactor, token, &request);
                        } else {
                            left -= 1;
                        }
                    }
                }
                Event::Sent { token } => all[token as usize].0.said(&mut reactor, token),
                event => panic!("{event:?}"),
            }
        }
    }
    for (token, (connection, _)) in all.into_iter().enumerate() {
        reactor.close(connection.socket, token as u64);
    }
    reactor.wait(&mut batch, Some(Duration::ZERO))?;
    Ok(())
}

fn round(on: &[usize], choice: Choice, connections: usize, requests: usize) -> Cost {
    let tcp = tcp::ListenOptions { backlog: 4096, ..Default::default() };
    let listener = tcp::listen(([127, 0, 0, 1], 0).into(), &tcp).expect("a port");
    std::thread::scope(|scope| {
        let (first, last) = (on.first().copied(), on.last().copied());
        let listener = &listener;
        let server = move || {
            let _ = first.map(cores::pin_to_core);
            serve(listener, choice, connections)
        };
        let server =
            std::thread::Builder::new().name("server".to_owned()).spawn_scoped(scope, server);
        let server = server.expect("a thread");
        let _ = last.map(cores::pin_to_core);
        send_requests(listener, connections, requests).expect("the server answers");
        server.join().expect("the server ends")
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is_real = arguments.iter().any(|argument| argument == "--bench");
    let is_selected = |name: &str| {
        let named = arguments.iter().any(|argument| argument == "--epoll" || argument == "--uring");
        !named || arguments.iter().any(|argument| argument == name)
    };
    let (rounds, requests_total) = if is_real { (9, 400_000) } else { (1, 600) };
    // Before any thread is pinned, since threads inherit that.
    let on = cores::available_cores().unwrap_or_default();
    let mut choices = Vec::new();
    if is_selected("--epoll") {
        choices.push((Choice::Epoll, Backend::Epoll));
    }
    if is_selected("--uring") {
        match Reactor::new(&options(Choice::Uring)) {
            Ok(_) => choices.push((Choice::Uring, Backend::Uring)),
            Err(error) => println!("no io_uring: {error}"),
        }
    }
    println!(
        "connections  by        CPU us a request: best, middle   requests a wait   requests/s"
    );
    let counts: Vec<usize> =
        arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let connections = if counts.is_empty() { vec![8, 64, 512] } else { counts };
    for connections in connections {
        let mut costs = vec![Vec::new(); choices.len()];
        for _ in 0..rounds {
            for ((choice, _), costs) in choices.iter().zip(&mut costs) {
                let requests = (requests_total / connections).max(1);
                let cost = round(&on, *choice, connections, requests);
                assert_eq!(cost.requests, (requests * connections) as u64, "all are answered");
                costs.push(cost);
            }
        }
        for ((_, backend), costs) in choices.iter().zip(&mut costs) {
            costs.sort_by(|a, b| per_request(a).total_cmp(&per_request(b)));
            let (best, middle) = (&costs[0], &costs[costs.len() / 2]);
            println!(
                "{connections:>11}  {:<9} {:>20.2} {:>10.2} {:>17.1} {:>12.0}",
                backend.to_string(),
                per_request(best),
                per_request(middle),
                middle.requests as f64 / middle.waits as f64,
                middle.requests as f64 / middle.wall.as_secs_f64(),
            );
        }
    }
}

fn per_request(cost: &Cost) -> f64 {
    cost.cpu_ns as f64 / 1000.0 / cost.requests as f64
}
