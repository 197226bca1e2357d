//! `--flows-listen`: export packets of UDP sockets, while names are learned from interfaces, dnstap and logs.
//!
//! ```text
//! socket -> a thread each -> QUEUE_MAX datagrams -> collect -> flows that wait, by start --+
//! packets of interfaces, dnstap -> what waits for its time (crate::knowledge)             --+-> moment -> log
//! ```
//!
//! A router exports a flow after it began: up to its active timeout. So the moment up to which names are known is
//! [`Options::flows_delay_s`] behind the clock, and a flow is named when the moment has reached its start. A flow
//! that comes even later is named by what is known then; a name that is newer than its start is marked late.
//! A flow without a name waits as in a run over captures, so it is written after twice that time.
//!
//! Life cycle: bind, receive until `progress.stop`, then name and write all that waits.
//!
//! Bounds: `QUEUE_MAX` datagrams between threads, and the sockets' buffers (the kernel drops what does not fit, and
//! larder counts it); [`HELD_MAX`] flows that wait for the moment: the earliest waits no longer if there are more.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder_io::batch::Source;
use larder_io::udp::{UdpOptions, UdpSocket};
use larder_wire::Addr;

use super::collect::Collector;
use super::record::Export;
use super::{Naming, check_options, oriented};
use crate::files::make_directory;
use crate::knowledge::Knowledge;
use crate::live::CaptureStats;
use crate::log::Log;
use crate::options::{Damage, Options, Summary, add_damage};
use crate::{Error, Progress};

/// Flows that wait for the moment, at most.
pub const HELD_MAX: usize = 1 << 20;
/// Datagrams between the threads that receive and the one that names, at most.
const QUEUE_MAX: usize = 1 << 12;
/// How often the moment moves, and how long a thread waits before it looks whether the run ends.
const TURN: Duration = Duration::from_millis(100);
/// Requested size of a socket's buffer: exporters send in bursts.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// A datagram is no longer.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// A datagram, its sender, and when it came, ns.
type Received = (SocketAddr, i64, Vec<u8>);

/// Receives flows and names them until `progress.stop`. `interfaces`: packets to learn names from.
///
/// # Errors
/// Options that contradict each other; addresses that cannot be bound; outputs that cannot be written.
pub fn run(
    options: &Options,
    interfaces: Option<(Source, CaptureStats)>,
    progress: &Arc<Progress>,
) -> Result<Summary, Error> {
    check_options(options)?;
    if options.operation.control.is_some() || options.operation.metrics.is_some() {
        let text =
            "--flows-listen with --ctl or --metrics: the counts come at the end; leave them out";
        return Err(Error::Options(text.to_owned()));
    }
    let sockets = options.flows_listen.iter().map(|address| bind(*address));
    let sockets = sockets.collect::<Result<Vec<UdpSocket>, Error>>()?;
    if let Some(directory) = &options.directory {
        make_directory(directory, "-d", options.access)?;
    }
    let log = Log::open(options)?;
    let (source, capture) = interfaces.unzip();
    let knowledge = Knowledge::open_live(options, source, progress)?;
    let mut listener = Listener::new(options, log, knowledge)?;
    let log = options.log.of("flows");
    for socket in &sockets {
        if let Ok(address) = socket.local_address() {
            log.info("listening").text("address", address);
        }
    }
    let (to, received) = sync_channel(QUEUE_MAX);
    let ended = Arc::new(AtomicBool::new(false));
    let threads = sockets.into_iter().map(|socket| receive(socket, to.clone(), ended.clone()));
    let threads = threads.collect::<Result<Vec<_>, Error>>()?;
    drop(to);
    let result = listener.serve(&received, progress);
    ended.store(true, Ordering::Relaxed);
    // A thread that waits for room sees that nobody takes any more.
    drop(received);
    let dropped: u64 = threads.into_iter().map(|it| it.join().map_or(0, u64::from)).sum();
    result?;
    if dropped > 0 {
        let damage = Damage { count: dropped, first_offset: 0, first_file: "sockets".to_owned() };
        add_damage(&mut listener.summary.damaged, "flows_socket_full", damage);
    }
    let mut summary = listener.finish(progress)?;
    if let Some(capture) = capture {
        capture.add_to(&mut summary);
    }
    Ok(summary)
}

/// A socket at the address, whose reads wait for a turn at most.
fn bind(address: SocketAddr) -> Result<UdpSocket, Error> {
    let options =
        UdpOptions { receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES), ..UdpOptions::default() };
    let socket = UdpSocket::bind(address, &options).and_then(|socket| {
        socket.as_std().set_nonblocking(false)?;
        socket.as_std().set_read_timeout(Some(TURN))?;
        Ok(socket)
    });
    socket.map_err(|error| {
        Error::Options(format!(
            "--flows-listen {address}: {error}; name a free port of this machine, or end what listens there"
        ))
    })
}

/// A thread that passes on what a socket receives. It returns how many datagrams the kernel dropped.
fn receive(
    socket: UdpSocket,
    to: SyncSender<Received>,
    ended: Arc<AtomicBool>,
) -> Result<JoinHandle<u32>, Error> {
    let run = move || {
        let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
        while !ended.load(Ordering::Relaxed) {
            // An error is a time without datagrams, or a report about one that larder never sent.
            let Ok((len, from)) = socket.as_std().recv_from(&mut datagram) else { continue };
            if to.send((from, now_ns(), datagram[..len].to_vec())).is_err() {
                break;
            }
        }
        socket.drops().unwrap_or(0)
    };
    let thread = std::thread::Builder::new().name("flows".to_owned()).spawn(run);
    thread.map_err(|error| Error::Options(format!("--flows-listen: no thread ({error})")))
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Flows that wait for the moment, and what names them. No sockets, no clock.
struct Listener<'a> {
    options: &'a Options,
    collector: Collector,
    /// By start and number.
    held: BTreeMap<(i64, u64), Export>,
    held_max: usize,
    count: u64,
    naming: Naming<'a>,
    summary: Summary,
}

impl<'a> Listener<'a> {
    fn new(options: &'a Options, log: Log, knowledge: Knowledge) -> Result<Listener<'a>, Error> {
        let mut naming = Naming::new(options, log, knowledge)?;
        naming.log.start()?;
        Ok(Listener {
            options,
            collector: Collector::new(),
            held: BTreeMap::new(),
            held_max: HELD_MAX,
            count: 0,
            naming,
            summary: Summary { is_endless: true, ..Summary::default() },
        })
    }

    fn serve(&mut self, received: &Receiver<Received>, progress: &Progress) -> Result<(), Error> {
        let mut turned = Instant::now();
        while !progress.stop.load(Ordering::Relaxed) {
            match received.recv_timeout(TURN) {
                Ok((from, at_ns, datagram)) => {
                    self.datagram(Addr::from(from.ip()), at_ns, &datagram, progress)?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if turned.elapsed() >= TURN {
                turned = Instant::now();
                self.turn(now_ns(), progress)?;
            }
        }
        // What was received by now is named.
        while let Ok((from, at_ns, datagram)) = received.try_recv() {
            self.datagram(Addr::from(from.ip()), at_ns, &datagram, progress)?;
        }
        Ok(())
    }

    fn datagram(
        &mut self,
        exporter: Addr,
        at_ns: i64,
        datagram: &[u8],
        progress: &Progress,
    ) -> Result<(), Error> {
        let Listener { collector, held, count, .. } = self;
        // What is refused is counted by the exporter.
        let _ = collector.datagram(exporter, at_ns, datagram, |export| {
            let export = oriented(export);
            *count += 1;
            held.insert((export.started_ns(), *count), export);
        });
        self.summary.packets += 1;
        self.summary.input_bytes += datagram.len() as u64;
        while self.held.len() > self.held_max
            && let Some((_, export)) = self.held.pop_first()
        {
            self.naming.take(export, progress)?;
        }
        Ok(())
    }

    /// Names the flows whose start the moment has reached.
    fn turn(&mut self, now_ns: i64, progress: &Progress) -> Result<(), Error> {
        self.naming.knowledge.gather(progress);
        let delay_ns = i64::from(self.options.flows_delay_s) * 1_000_000_000;
        let moment_ns = now_ns.saturating_sub(delay_ns);
        while let Some(first) = self.held.first_entry()
            && first.key().0 <= moment_ns
        {
            let export = first.remove();
            self.naming.take(export, progress)?;
        }
        // The clock may have been set back.
        self.naming.until(moment_ns.max(self.naming.knowledge.now_ns), progress)?;
        let now_ns = self.naming.now_ns.max(0);
        if progress.reopen.swap(false, Ordering::AcqRel) {
            self.naming.log.reopen(now_ns)?;
        }
        self.naming.log.end_batch(true, now_ns, progress)
    }

    /// Names all that waits, and closes the log.
    fn finish(mut self, progress: &Progress) -> Result<Summary, Error> {
        self.naming.knowledge.gather(progress);
        for (_, export) in std::mem::take(&mut self.held) {
            self.naming.take(export, progress)?;
        }
        self.naming.finish(self.collector, self.summary, self.options, progress)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;

    use super::*;
    use crate::options::{Endpoint, OutputFormat};

    const T_S: u32 = 1_800_000_000;
    const SECOND_NS: i64 = 1_000_000_000;
    const T_NS: i64 = T_S as i64 * SECOND_NS;

    /// A message with a template and a flow of 10.0.0.7 to 203.0.113.9 that begins `start_ms` after T.
    fn export(sent_s: u32, start_ms: u64) -> Vec<u8> {
        let fields: [(u16, u16); 8] =
            [(8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (2, 4), (152, 8), (153, 8)];
        let template: Vec<u8> = [(256, fields.len() as u16)]
            .iter()
            .chain(&fields)
            .flat_map(|(a, b)| [a.to_be_bytes(), b.to_be_bytes()].concat())
            .collect();
        let time = (u64::from(T_S) * 1_000 + start_ms).to_be_bytes();
        let ends = [10, 0, 0, 7, 203, 0, 113, 9, 0xc3, 0x50, 1, 0xbb, 6, 0, 0, 0, 3];
        let record = [&ends[..], &time, &time].concat();
        let set = |number: u16, body: &[u8]| {
            [&number.to_be_bytes()[..], &(body.len() as u16 + 4).to_be_bytes(), body].concat()
        };
        let sets = [set(2, &template), set(256, &record)].concat();
        let len = (16 + sets.len() as u16).to_be_bytes();
        [&[0, 10][..], &len, &sent_s.to_be_bytes(), &[0; 8], &sets].concat()
    }

    /// Options with two lookups of the client: at T and 2 s later, of two names with the same address.
    fn options(folder: &std::path::Path) -> Options {
        let mut log = "#separator \\x09\n#fields\tts\tid.orig_h\tid.resp_h\tquery\tqtype_name\tanswers\tTTLs\n"
            .to_owned();
        for (after_s, name) in [(0, "first.example"), (2, "second.example")] {
            let _ = writeln!(
                log,
                "{}.000000\t10.0.0.7\t10.0.0.53\t{name}\tA\t203.0.113.9\t300.000000",
                T_S + after_s
            );
        }
        fs::write(folder.join("dns.log"), log).expect("room");
        Options {
            zeek_dns: vec![Endpoint::Path(folder.join("dns.log"))],
            output: Endpoint::Path(folder.join("out.csv")),
            format: OutputFormat::Csv,
            flows_delay_s: 10,
            ..Options::default()
        }
    }

    struct Run<'a> {
        listener: Listener<'a>,
        progress: Arc<Progress>,
    }

    impl<'a> Run<'a> {
        fn new(options: &'a Options) -> Run<'a> {
            let progress = Arc::new(Progress::default());
            let log = Log::open(options).expect("a file");
            let knowledge = Knowledge::open_live(options, None, &progress).expect("a log");
            let listener = Listener::new(options, log, knowledge).expect("memory");
            Run { listener, progress }
        }

        fn receive(&mut self, after_s: u32, start_ms: u64) {
            let at_ns = T_NS + i64::from(after_s) * SECOND_NS;
            let exporter = Addr::v4([192, 0, 2, 1]);
            let datagram = export(T_S + after_s, start_ms);
            self.listener.datagram(exporter, at_ns, &datagram, &self.progress).expect("room");
        }

        /// The moment at a time after T; returns the flows that are written.
        fn turn(&mut self, after_s: i64) -> u64 {
            self.listener.turn(T_NS + after_s * SECOND_NS, &self.progress).expect("room");
            self.listener.naming.summary.flows
        }

        /// Names and late flags of the log.
        fn finish(self) -> Vec<(String, String)> {
            let Endpoint::Path(path) = self.listener.options.output.clone() else {
                return Vec::new();
            };
            self.listener.finish(&self.progress).expect("room");
            let mut reader = csv::Reader::from_path(path).expect("a log");
            let rows = reader.deserialize().map(|row| row.expect("a record"));
            rows.map(|mut row: BTreeMap<String, String>| {
                let mut take = |field: &str| row.remove(field).unwrap_or_default();
                (take("destination.domain"), take("larder.destination.name_late"))
            })
            .collect()
        }
    }

    /// Invariant 2 of `knowledge`: a flow waits for the moment and has the name of its start, though a newer
    /// one is known when it comes. One that comes after its moment has what is known then, marked late.
    #[test]
    fn names_are_those_of_the_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(folder.path());
        let mut run = Run::new(&options);
        run.receive(5, 500);
        assert_eq!(run.turn(10), 0, "its start is not reached");
        assert_eq!(run.turn(11), 1);
        run.receive(12, 2_500);
        assert_eq!(run.turn(20), 2);
        run.receive(21, 500);
        assert_eq!(run.turn(21), 3);
        let said = |name: &str, late: &str| (name.to_owned(), late.to_owned());
        let expected = [
            said("first.example", "false"),
            said("second.example", "false"),
            said("second.example", "true"),
        ];
        assert_eq!(run.finish(), expected);
    }

    /// A flow that was exported after its deadline, without a name, is written at the next turn, and moves no time
    /// back.
    #[test]
    fn flows_that_come_late_wait_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { zeek_dns: Vec::new(), flows_delay_s: 1, ..options(folder.path()) };
        let mut run = Run::new(&options);
        assert_eq!(run.turn(50), 0);
        run.receive(50, 500);
        run.turn(51);
        assert_eq!(run.turn(52), 1);
        assert_eq!(run.finish().len(), 1);
    }

    /// A clock that is set back moves nothing back; the end of the run names all; and too many flows do not wait.
    #[test]
    fn flows_that_wait_are_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(folder.path());
        let mut run = Run::new(&options);
        run.listener.held_max = 2;
        assert_eq!(run.turn(12), 0);
        assert_eq!(run.turn(-500), 0);
        for start_ms in [9_000, 8_000, 7_000] {
            run.receive(10, start_ms);
        }
        assert_eq!(run.listener.held.len(), 2);
        assert_eq!(run.listener.naming.summary.flows, 1, "the earliest");
        assert_eq!(run.finish().len(), 3);
    }
}
