//! The socket of `larder ctl` and its clients, in the supervisor's event loop.
//!
//! state of a client  the server                                  ends by
//! idle               reads its next line                         a request; end of input
//! has a job          sends the job's lines as the client reads   the job's last line; end of input
//! response           sends the response                          the last byte sent
//! last response      reads nothing more                          the last byte sent: closed
//!
//! Invariants
//! 1. No code here waits: sockets are non-blocking, and jobs have their own threads.
//! 2. A request is read only after the previous response was sent. So a client that sends requests
//!    and does not read costs one response, and with a job at most [`Limits::unsent_bytes_max`] and
//!    a chunk.
//!
//! A client may wait for the server for any time. A client that the server waits for is dropped
//! after [`Limits::stall_ms`]. Bounds: [`Limits`]. Cost: none without requests.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use super::job::{Next, Running};
use super::socket::{SocketFile, listen};
use super::{Answer, Service, closing_line};
use crate::nonblocking::retry;
use larder_io::epoll::{Event, Interest, Poller, Waker, Watched};

/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// Rounds for one client before the other clients' turns.
const ROUNDS: usize = 16;

/// How long the server accepts no client after the system had no file descriptor for one.
const PAUSE_MS: u64 = 1_000;

/// The largest possible limit of clients.
pub const CLIENTS_MAX: usize = 64;

/// Tokens that a [`Control`] uses, from its first token on.
pub const TOKENS: u64 = 2 + CLIENTS_MAX as u64;

/// Limits of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent clients, [`CLIENTS_MAX`] at most. Further clients get an error and are dropped.
    pub clients_max: usize,
    /// Bytes of a request or of a line to load, with its line feed.
    pub line_bytes_max: usize,
    /// Unsent bytes of a long response after which the job waits.
    pub unsent_bytes_max: usize,
    /// How long the server waits for a client, milliseconds.
    pub stall_ms: u64,
}

impl Default for Limits {
    /// 8 clients, lines of 64 KiB, 64 KiB unsent, 30 s: a few MB at most.
    fn default() -> Limits {
        Limits {
            clients_max: 8,
            line_bytes_max: 64 << 10,
            unsent_bytes_max: 64 << 10,
            stall_ms: 30_000,
        }
    }
}

/// The socket and its clients.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    _file: SocketFile,
    limits: Limits,
    first_token: u64,
    /// Jobs wake the event loop with it.
    waker: Arc<Waker>,
    clients: Vec<Option<Client>>,
    /// No client is accepted before this time.
    paused_until_ms: Option<u64>,
}

/// The result of a client's turn.
#[derive(PartialEq, Eq)]
enum Turn {
    /// Nothing is left to do for now.
    Rests,
    /// There may be more to do.
    Goes,
    /// The connection ends.
    Ends,
}

#[derive(Debug)]
struct Client {
    socket: Watched<UnixStream>,
    interest: Interest,
    /// The poller had this interest before it returned the events that are being handled.
    is_settled: bool,
    input: Vec<u8>,
    /// Bytes of the input that were consumed, and bytes that contain no line feed.
    taken: usize,
    scanned: usize,
    has_ended_input: bool,
    output: Vec<u8>,
    sent: usize,
    job: Option<Running>,
    /// The connection closes after the output.
    is_last: bool,
    /// The time of the client's last progress.
    moved_ms: u64,
}

impl Control {
    /// Opens the socket at `path` with file mode `mode`, and adds it to `poller`. The caller passes
    /// events with the [`TOKENS`] tokens from `first_token` on to [`Control::handle`].
    ///
    /// A socket without a listener is replaced. The error says what to do: `AddrInUse` if another
    /// server listens there, `AlreadyExists` if the file is not a socket.
    pub fn open(
        path: &Path,
        mode: u32,
        limits: Limits,
        poller: &Poller,
        first_token: u64,
    ) -> io::Result<Control> {
        let (listener, file) = listen(path, mode)?;
        let waker = Arc::new(Waker::new()?);
        poller.add(&listener, first_token, Interest::READ)?;
        poller.add(&*waker, first_token + 1, Interest::READ)?;
        let clients_max = limits.clients_max.clamp(1, CLIENTS_MAX);
        let clients = (0..clients_max).map(|_| None).collect();
        let paused_until_ms = None;
        Ok(Control { listener, _file: file, limits, first_token, waker, clients, paused_until_ms })
    }

    /// Handles an event. An event of a closed client, whose token another client has now, is
    /// harmless: that client gets a turn early.
    pub fn handle(
        &mut self,
        event: Event,
        poller: &Poller,
        service: &mut impl Service,
        now_ms: u64,
    ) {
        match event.token.wrapping_sub(self.first_token) {
            0 => self.accept(poller, now_ms),
            1 => {
                // The result does not matter: the jobs are checked in any case.
                let _ = self.waker.clear();
                for slot in 0..self.clients.len() {
                    let has_job = |client: &Client| client.job.is_some();
                    if self.clients[slot].as_ref().is_some_and(has_job) {
                        self.serve(slot, poller, service, now_ms);
                    }
                }
            }
            number => {
                let slot = (number - 2) as usize;
                let Some(Some(client)) = self.clients.get(slot) else { return };
                // Without an interest, `closed` means that both directions are closed, and repeats
                // until the server closes the socket. An event from before the interest changed may
                // mean only the end of the input.
                let is_polled = ![Interest::NONE, Interest::WRITE].contains(&client.interest);
                if event.closed && !is_polled {
                    if client.is_settled {
                        self.clients[slot] = None;
                    }
                } else {
                    self.serve(slot, poller, service, now_ms);
                }
            }
        }
    }

    /// Milliseconds until [`Control::expire`] is due; `None`: it is not.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let stalls = self.clients.iter().flatten().filter(|client| client.has_the_move());
        let due = stalls.map(|client| client.moved_ms + self.limits.stall_ms);
        let first = due.chain(self.paused_until_ms).min()?;
        Some(first.saturating_sub(now_ms))
    }

    /// Drops clients that exceeded [`Limits::stall_ms`].
    pub fn expire(&mut self, poller: &Poller, now_ms: u64) {
        for client in self.clients.iter_mut().flatten() {
            client.is_settled = true;
        }
        for slot in &mut self.clients {
            let is_stalled = |client: &Client| {
                client.has_the_move() && now_ms >= client.moved_ms + self.limits.stall_ms
            };
            if slot.as_ref().is_some_and(is_stalled) {
                *slot = None;
            }
        }
        if self.paused_until_ms.is_some_and(|until| now_ms >= until) {
            self.paused_until_ms = None;
            // It fails only for a descriptor that the poller does not have.
            let _ = poller.modify(&self.listener, self.first_token, Interest::READ);
        }
    }

    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        self.clients.iter().flatten().count()
    }

    fn accept(&mut self, poller: &Poller, now_ms: u64) {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => self.admit(socket, poller, now_ms),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Without file descriptors the poller would report the waiting client again and
                    // again.
                    self.paused_until_ms = Some(now_ms + PAUSE_MS);
                    let _ = poller.modify(&self.listener, self.first_token, Interest::NONE);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: UnixStream, poller: &Poller, now_ms: u64) {
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        let Some(slot) = self.clients.iter().position(Option::is_none) else {
            let count = self.clients.len();
            let error = format!("{count} clients are connected; try again when one has left");
            // The client may have closed the connection.
            let _ = (&socket).write(closing_line(Err(error)).as_bytes());
            return;
        };
        if poller.add(&socket, self.first_token + 2 + slot as u64, Interest::READ).is_ok() {
            self.clients[slot] = Some(Client::new(socket, now_ms));
        }
    }

    /// Gives a client its turns, and sets the poller's interest in it.
    fn serve(&mut self, slot: usize, poller: &Poller, service: &mut impl Service, now_ms: u64) {
        let Some(client) = &mut self.clients[slot] else { return };
        let mut turn = Turn::Goes;
        for _ in 0..ROUNDS {
            turn = client.turn(&self.limits, &self.waker, service, now_ms);
            if turn != Turn::Goes {
                break;
            }
        }
        if turn == Turn::Goes {
            // The job may have sent something already, and would not wake the event loop for it
            // again.
            let _ = self.waker.wake();
        }
        let interest = client.wants(&self.limits);
        if turn != Turn::Ends && interest != client.interest {
            (client.interest, client.is_settled) = (interest, false);
            let token = self.first_token + 2 + slot as u64;
            if poller.modify(&client.socket, token, interest).is_err() {
                turn = Turn::Ends;
            }
        }
        if turn == Turn::Ends {
            self.clients[slot] = None;
        }
    }
}

impl Client {
    fn new(socket: UnixStream, now_ms: u64) -> Client {
        Client {
            socket: Watched::new(socket),
            interest: Interest::READ,
            is_settled: true,
            input: Vec::new(),
            taken: 0,
            scanned: 0,
            has_ended_input: false,
            output: Vec::new(),
            sent: 0,
            job: None,
            is_last: false,
            moved_ms: now_ms,
        }
    }

    /// Sends, takes lines from the job, handles lines of the client, reads: each once.
    fn turn(
        &mut self,
        limits: &Limits,
        waker: &Arc<Waker>,
        service: &mut impl Service,
        now_ms: u64,
    ) -> Turn {
        let Ok(mut moved) = self.send(now_ms) else { return Turn::Ends };
        moved |= self.take_lines(limits);
        if self.job.is_some() {
            moved |= self.feed_job(limits);
        } else if self.unsent() == 0 {
            if self.is_last {
                return Turn::Ends;
            }
            if let Some(line) = self.line() {
                self.take(&line, waker, service);
                moved = true;
            } else if self.has_ended_input {
                return Turn::Ends;
            } else if self.is_full(limits) {
                self.refuse_line(limits);
                moved = true;
            }
        }
        match self.receive(limits, now_ms) {
            Ok(received) if moved | received => Turn::Goes,
            Ok(_) => Turn::Rests,
            Err(_) => Turn::Ends,
        }
    }

    fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether the server waits for the client.
    fn has_the_move(&self) -> bool {
        match &self.job {
            Some(job) => self.unsent() > 0 || job.is_hungry(),
            None => true,
        }
    }

    fn wants_input(&self, limits: &Limits) -> bool {
        let has_room = limits.line_bytes_max > self.input.len() - self.taken;
        let is_receiving = !self.is_last || self.job.as_ref().is_some_and(Running::receives);
        has_room && is_receiving && !self.has_ended_input
    }

    fn wants(&self, limits: &Limits) -> Interest {
        match (self.wants_input(limits), self.unsent() > 0) {
            (true, true) => Interest::BOTH,
            (true, false) => Interest::READ,
            (false, true) => Interest::WRITE,
            (false, false) => Interest::NONE,
        }
    }

    fn answer(&mut self, lines: &str) {
        self.output.extend_from_slice(lines.as_bytes());
    }

    /// Handles the request of a line.
    fn take(&mut self, line: &[u8], waker: &Arc<Waker>, service: &mut impl Service) {
        let answer = service.request(line);
        let receives = matches!(answer, Answer::Receives(_));
        // All further input belongs to the job, so no request can follow.
        self.is_last |= receives;
        let answer = match answer {
            Answer::Now(result) => result,
            Answer::Later(job) | Answer::Receives(job) => match Running::start(job, waker) {
                Ok(mut running) => {
                    if !receives {
                        running.end_lines();
                    }
                    self.job = Some(running);
                    return;
                }
                Err(error) => Err(error),
            },
        };
        self.answer(&closing_line(answer));
    }

    /// Takes lines from the job, if there is room. True if there were any.
    fn take_lines(&mut self, limits: &Limits) -> bool {
        // Invariant 2, as for requests in `turn`.
        let has_room = self.unsent() < limits.unsent_bytes_max;
        let Some(job) = self.job.as_mut().filter(|_| has_room) else { return false };
        match job.next() {
            Next::Nothing => return false,
            Next::Lines(lines) => self.answer(&lines),
            Next::Last(line) => {
                self.answer(&line);
                self.job = None;
            }
        }
        true
    }

    fn feed_job(&mut self, limits: &Limits) -> bool {
        let Some(mut job) = self.job.take() else { return false };
        let moved = job.feed(|| self.line());
        if job.is_hungry() && self.is_full(limits) {
            // The job ends when its client is dropped.
            self.refuse_line(limits);
            return true;
        }
        if self.has_ended_input && self.taken == self.input.len() {
            job.end_lines();
        }
        self.job = Some(job);
        moved
    }

    /// Whether the input has no room for the rest of a line.
    fn is_full(&self, limits: &Limits) -> bool {
        self.input.len() - self.taken >= limits.line_bytes_max
    }

    fn refuse_line(&mut self, limits: &Limits) {
        let error = format!("a line has {} bytes at most, with its end", limits.line_bytes_max);
        self.answer(&closing_line(Err(error)));
        self.is_last = true;
    }

    /// The next whole line, without its line feed; at the end of the input, the rest.
    fn line(&mut self) -> Option<Vec<u8>> {
        let rest = &self.input[self.scanned..];
        let (end, next) = match rest.iter().position(|byte| *byte == b'\n') {
            Some(at) => (self.scanned + at, self.scanned + at + 1),
            None => {
                self.scanned = self.input.len();
                if !self.has_ended_input || self.taken == self.scanned {
                    return None;
                }
                (self.scanned, self.scanned)
            }
        };
        let line = self.input[self.taken..end].to_vec();
        (self.taken, self.scanned) = (next, next);
        Some(line)
    }

    /// Reads once. True if there were bytes, or the end of the input.
    fn receive(&mut self, limits: &Limits, now_ms: u64) -> io::Result<bool> {
        if !self.wants_input(limits) {
            return Ok(false);
        }
        self.input.drain(..self.taken);
        self.scanned -= self.taken;
        self.taken = 0;
        let start = self.input.len();
        let room = READ_BYTES.min(limits.line_bytes_max - start);
        self.input.resize(start + room, 0);
        let read = retry(|| (&*self.socket).read(&mut self.input[start..]));
        self.input.truncate(start + read.as_ref().map_or(0, |count| count.unwrap_or(0)));
        match read? {
            None => return Ok(false),
            Some(0) => self.has_ended_input = true,
            Some(_) => {}
        }
        self.moved_ms = now_ms;
        Ok(true)
    }

    /// Sends the output. True if any byte was sent.
    fn send(&mut self, now_ms: u64) -> io::Result<bool> {
        let mut moved = false;
        while self.unsent() > 0 {
            match retry(|| (&*self.socket).write(&self.output[self.sent..]))? {
                None => break,
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(count) => self.sent += count,
            }
            (self.moved_ms, moved) = (now_ms, true);
        }
        if self.unsent() == 0 {
            self.output.clear();
            self.sent = 0;
        }
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::Shutdown;
    use std::sync::mpsc;

    use larder_io::epoll::Events;

    use super::*;
    use crate::control::{Answer, Fields};

    /// A job that receives all lines of its client, and ends when the test lets it.
    struct Receiving(Option<mpsc::Receiver<()>>);

    impl Service for Receiving {
        fn request(&mut self, _: &[u8]) -> Answer {
            let go = self.0.take().unwrap();
            Answer::Receives(Box::new(move |talk| {
                while talk.receive()?.is_some() {}
                go.recv().unwrap();
                Ok(Fields::new())
            }))
        }
    }

    /// A client has sent its last line. An event from before the interest changed may report the
    /// end of its input: the client still gets its response.
    #[test]
    fn the_end_of_the_input_is_not_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (path, poller) = (folder.path().join("ctl"), Poller::new().unwrap());
        let mut control = Control::open(&path, 0o600, Limits::default(), &poller, 0).unwrap();
        let (go, may_go) = mpsc::channel();
        let mut service = Receiving(Some(may_go));
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"load\nentry\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut events = Events::new(8);
        let is_served = |control: &Control| {
            control.clients.iter().flatten().any(|one| one.interest == Interest::NONE)
        };
        while !is_served(&control) {
            poller.wait(&mut events, Some(1_000)).unwrap();
            for event in events.iter().filter(|_| !is_served(&control)).collect::<Vec<_>>() {
                control.handle(event, &poller, &mut service, 0);
            }
        }
        let late = Event { token: 2, readable: true, writable: false, closed: true };
        control.handle(late, &poller, &mut service, 0);
        assert_eq!(control.clients(), 1);
        go.send(()).unwrap();
        while control.clients() > 0 {
            control.expire(&poller, 0);
            poller.wait(&mut events, Some(1_000)).unwrap();
            for event in events.iter().collect::<Vec<_>>() {
                control.handle(event, &poller, &mut service, 0);
            }
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "{\"ok\":true}\n");
    }
}
