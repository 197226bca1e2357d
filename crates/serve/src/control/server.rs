//! The socket of `larder ctl` and its clients, in the supervisor's loop.
//!
//! life of a client   does                                        leaves by
//! asked nothing      its next line is read                       a request; its end
//! waits for a job    what the job says goes out as it reads      the job's last line; its end
//! is answered        the answer goes out                         the last byte sent
//! last answer        nothing more is read                        the last byte sent: closed
//!
//! Invariants
//! 1. Nothing here waits: sockets are non-blocking, jobs have threads of their own.
//! 2. A request is taken when the answer before it has gone out. So a client that asks and does not read holds one
//!    answer, and a job's no more than [`Limits::unsent_bytes_max`] and a chunk.
//!
//! A client that leaves the next move to us may wait; one that has the next move and does not make it for
//! [`Limits::stall_ms`] is dropped. Bounds: [`Limits`]. Cost: none while nobody asks.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use super::job::{Next, Running};
use super::socket::{SocketFile, listen};
use super::{Answer, Service, closing_line};
use crate::nonblocking::retry;
use larder_io::epoll::{Event, Interest, Poller, Waker};

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;

/// Rounds for one client before others have their turn.
const ROUNDS: usize = 16;

/// How long no client is taken after the system had no descriptor for one.
const PAUSE_MS: u64 = 1_000;

/// Most clients that may be allowed.
pub const CLIENTS_MAX: usize = 64;

/// Tokens that a [`Control`] uses, from the one it is given.
pub const TOKENS: u64 = 2 + CLIENTS_MAX as u64;

/// What clients may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Clients at once, [`CLIENTS_MAX`] at most; others are told so and dropped.
    pub clients_max: usize,
    /// Bytes of a request, or of a line to be loaded, with its end.
    pub line_bytes_max: usize,
    /// Bytes of a long answer that wait to be sent before the job has to wait.
    pub unsent_bytes_max: usize,
    /// How long a client may leave its move undone, milliseconds.
    pub stall_ms: u64,
}

impl Default for Limits {
    /// 8 clients, lines of 64 KiB, as much unsent, 30 s: a few MB at the very most.
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
    /// Called by jobs.
    waker: Arc<Waker>,
    clients: Vec<Option<Client>>,
    /// No client is taken before this time.
    paused_until_ms: Option<u64>,
}

/// What a turn of a client has come to.
#[derive(PartialEq, Eq)]
enum Turn {
    /// Everything that could be done is done.
    Rests,
    /// There may be more to do.
    Goes,
    /// It is over.
    Ends,
}

#[derive(Debug)]
struct Client {
    socket: UnixStream,
    interest: Interest,
    /// The poller knew the interest before it gave the events that are being handled.
    is_settled: bool,
    input: Vec<u8>,
    /// Bytes of the input that are taken, and those that are known to hold no line's end.
    taken: usize,
    scanned: usize,
    has_ended_input: bool,
    output: Vec<u8>,
    sent: usize,
    job: Option<Running>,
    /// It gets what is in the output, and no more.
    is_last: bool,
    /// When it last made a move.
    moved_ms: u64,
}

impl Control {
    /// Opens the socket at `path` with file mode `mode`, and has `poller` watch it. Tokens from `first_token` on, [`TOKENS`]
    /// of them, are to be passed to [`Control::handle`].
    ///
    /// A socket on which nobody listens is replaced. The error says what to do: `AddrInUse` where somebody does,
    /// `AlreadyExists` where something else than a socket is there.
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

    /// Does what an event asks for. An event of a client that has left, and whose place another has, does no harm: the
    /// other is looked after early.
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
                // What it says does not matter: the jobs are looked at either way.
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
                // Not asked for, `closed` says that both directions are, and says it until we close. An event
                // from before the poller was told so may mean the end of the input alone.
                let is_asked = ![Interest::NONE, Interest::WRITE].contains(&client.interest);
                if event.closed && !is_asked {
                    if client.is_settled {
                        self.clients[slot] = None;
                    }
                } else {
                    self.serve(slot, poller, service, now_ms);
                }
            }
        }
    }

    /// Milliseconds until [`Control::expire`] has something to do; `None`: nothing.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let stalls = self.clients.iter().flatten().filter(|client| client.has_the_move());
        let due = stalls.map(|client| client.moved_ms + self.limits.stall_ms);
        let first = due.chain(self.paused_until_ms).min()?;
        Some(first.saturating_sub(now_ms))
    }

    /// Drops clients that did not make their move in time.
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
            // It fails for a descriptor that is not watched; this one is.
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
                    // No descriptors: who waits would be told again and again.
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
            // It may not be there to read it.
            let _ = (&socket).write(closing_line(Err(error)).as_bytes());
            return;
        };
        if poller.add(&socket, self.first_token + 2 + slot as u64, Interest::READ).is_ok() {
            self.clients[slot] = Some(Client::new(socket, now_ms));
        }
    }

    /// Gives a client its turns, and settles what is to be told of it next.
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
            // The job may have said its word already, and would not wake us for it again.
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
            socket,
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

    /// Sends, asks the job, takes lines, reads: each once.
    fn turn(
        &mut self,
        limits: &Limits,
        waker: &Arc<Waker>,
        service: &mut impl Service,
        now_ms: u64,
    ) -> Turn {
        let Ok(mut moved) = self.send(now_ms) else { return Turn::Ends };
        moved |= self.ask_job(limits);
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

    /// Whether it is the client who must do something.
    fn has_the_move(&self) -> bool {
        match &self.job {
            Some(job) => self.unsent() > 0 || job.is_hungry(),
            None => true,
        }
    }

    fn wants_input(&self, limits: &Limits) -> bool {
        let has_room = limits.line_bytes_max > self.input.len() - self.taken;
        let is_heard = !self.is_last || self.job.as_ref().is_some_and(Running::hears);
        has_room && is_heard && !self.has_ended_input
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

    /// Does what a line asks for.
    fn take(&mut self, line: &[u8], waker: &Arc<Waker>, service: &mut impl Service) {
        let answer = service.ask(line);
        let hears = matches!(answer, Answer::Hears(_));
        // The input after what it hears is its own too, so nothing can be asked after that.
        self.is_last |= hears;
        let answer = match answer {
            Answer::Now(result) => result,
            Answer::Later(job) | Answer::Hears(job) => match Running::start(job, waker) {
                Ok(mut running) => {
                    if !hears {
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

    /// Takes what the job has said, if there is room. True if it was anything.
    fn ask_job(&mut self, limits: &Limits) -> bool {
        // Invariant 2, as where `turn` takes a line.
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
            // Without its client the job ends.
            self.refuse_line(limits);
            return true;
        }
        if self.has_ended_input && self.taken == self.input.len() {
            job.end_lines();
        }
        self.job = Some(job);
        moved
    }

    /// Whether there is no room for the rest of a line.
    fn is_full(&self, limits: &Limits) -> bool {
        self.input.len() - self.taken >= limits.line_bytes_max
    }

    fn refuse_line(&mut self, limits: &Limits) {
        let error = format!("a line has {} bytes at most, with its end", limits.line_bytes_max);
        self.answer(&closing_line(Err(error)));
        self.is_last = true;
    }

    /// The next whole line, without its end; at the end of the input, what is left.
    fn line(&mut self) -> Option<Vec<u8>> {
        let rest = &self.input[self.scanned..];
        let (end, next) = match rest.iter().position(|octet| *octet == b'\n') {
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

    /// Reads once. True if something came, an end as well.
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
        let read = retry(|| (&self.socket).read(&mut self.input[start..]));
        self.input.truncate(start + read.as_ref().map_or(0, |count| count.unwrap_or(0)));
        match read? {
            None => return Ok(false),
            Some(0) => self.has_ended_input = true,
            Some(_) => {}
        }
        self.moved_ms = now_ms;
        Ok(true)
    }

    /// Sends what there is. True if something went out.
    fn send(&mut self, now_ms: u64) -> io::Result<bool> {
        let mut moved = false;
        while self.unsent() > 0 {
            match retry(|| (&self.socket).write(&self.output[self.sent..]))? {
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

    /// Hears all that its client says, and ends when the test lets it.
    struct Hearing(Option<mpsc::Receiver<()>>);

    impl Service for Hearing {
        fn ask(&mut self, _: &[u8]) -> Answer {
            let go = self.0.take().unwrap();
            Answer::Hears(Box::new(move |talk| {
                while talk.hear()?.is_some() {}
                go.recv().unwrap();
                Ok(Fields::new())
            }))
        }
    }

    /// A client that has said all may be seen to end its input by an event from before the poller knew that nobody
    /// asks for that any more: it still gets its answer.
    #[test]
    fn the_end_of_the_input_is_not_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (path, poller) = (folder.path().join("ctl"), Poller::new().unwrap());
        let mut control = Control::open(&path, 0o600, Limits::default(), &poller, 0).unwrap();
        let (go, may_go) = mpsc::channel();
        let mut service = Hearing(Some(may_go));
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
