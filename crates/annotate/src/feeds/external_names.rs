//! Names from other logs: `--zeek-dns` and `--dnstap`, in the order of their times.
//!
//! ```text
//! phase     does                                                            ends with
//! gather    reads files, and a socket next to a finished input, to their    end of all, stop
//!           end into a sorter
//! serve     until(t): each observation not later than t, once, in order;    drop
//!           then those that a live socket has brought so far
//! ```
//!
//! larder listens on the dnstap socket: a server connects to it and writes. If the input grows (a
//! pipe), names are learned as they arrive. If the input is a finished file, the first sender is
//! read to its end before the file, as if the socket were a file.
//!
//! Bounds: the sorter's memory ([`MEMORY_BYTES_MAX`]) and disk;
//! [`SENDERS_MAX`](larder_io::sender::SENDERS_MAX) senders at one time; [`ARRIVED_MAX`]
//! observations that were not learned yet: then senders wait. For flows that come later, as of routers,
//! observations wait for their time, at most `HELD_MAX`.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use larder_io::frame_streams::{FrameError, Frames};
use larder_io::sender::{IsOver, Patient, Socket};
use larder_wire::dns::answers::Extract;

use super::dns_observation::{DnsObservation, time_key};
use super::input;
use super::zeek::{self, Item};
use crate::options::{Damage, Damages, Endpoint, Options, Summary, add_damage};
use crate::sort::{MEMORY_BYTES_MAX, Sorted, Sorter};
use crate::{Error, Progress};

/// Observations that have arrived and were not learned yet, at most.
pub const ARRIVED_MAX: usize = 1 << 12;
/// Observations that wait for their time, at most.
const HELD_MAX: usize = 1 << 18;

/// See the module.
pub struct ExternalNames {
    sorted: Sorted,
    next: Option<DnsObservation>,
    live: Option<Live>,
    /// Where observations of the live socket wait for their time; `None` where they count at once.
    held: Option<BTreeMap<(i64, u64), DnsObservation>>,
    arrived: u64,
    damaged: Damages,
}

/// Counts one damaged place.
pub fn note(damaged: &mut Damages, kind: &'static str, offset: u64, file: &str) {
    let damage = Damage { count: 1, first_offset: offset, first_file: file.to_owned() };
    add_damage(damaged, kind, damage);
}

impl ExternalNames {
    /// Opens and reads the logs of the options; `None` without any. `input_is_live`: the input of
    /// the run grows.
    pub fn open(
        options: &Options,
        input_is_live: bool,
        progress: &Arc<Progress>,
    ) -> Result<Option<ExternalNames>, Error> {
        if options.zeek_dns.is_empty() && options.dnstap.is_none() {
            return Ok(None);
        }
        let mut gather = Gather {
            sorter: Sorter::new(MEMORY_BYTES_MAX, None),
            scratch: Vec::new(),
            damaged: Damages::new(),
        };
        for endpoint in &options.zeek_dns {
            gather.zeek(endpoint, progress)?;
        }
        let mut live = None;
        if let Some(endpoint) = &options.dnstap {
            match socket_path(endpoint)? {
                None => gather.dnstap_file(endpoint, progress)?,
                Some(path) if input_is_live => live = Some(Live::listen(path, progress)?),
                Some(path) => gather.dnstap_socket(path, progress)?,
            }
        }
        let mut external_names = ExternalNames {
            sorted: gather.sorter.sorted()?,
            next: None,
            live,
            held: None,
            arrived: 0,
            damaged: gather.damaged,
        };
        external_names.step()?;
        Ok(Some(external_names))
    }

    fn step(&mut self) -> Result<(), Error> {
        let record = self.sorted.advance()?;
        self.next = record.and_then(|(_, record)| DnsObservation::read(record));
        Ok(())
    }

    /// From now on observations of a live socket wait for their time.
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// The next observation that is not later than `time_ns`, or that a live socket has brought. If too many
    /// wait for their time, the earliest waits no longer.
    pub fn until(&mut self, time_ns: i64) -> Result<Option<DnsObservation>, Error> {
        if self.next.as_ref().is_some_and(|observation| observation.time_ns <= time_ns) {
            let observation = self.next.take();
            self.step()?;
            return Ok(observation);
        }
        let Some(live) = &self.live else { return Ok(None) };
        let Some(held) = &mut self.held else { return Ok(live.arrived.try_recv().ok()) };
        while held.len() <= HELD_MAX
            && let Ok(observation) = live.arrived.try_recv()
        {
            self.arrived += 1;
            held.insert((observation.time_ns, self.arrived), observation);
        }
        let is_due = held.first_key_value().is_some_and(|((of_ns, _), _)| *of_ns <= time_ns);
        let due = (is_due || held.len() > HELD_MAX).then(|| held.pop_first()).flatten();
        Ok(due.map(|(_, observation)| observation))
    }

    /// Adds the damage that was found to the summary.
    pub fn add_damage(&self, summary: &mut Summary) {
        add(&self.damaged, summary);
        if let Some(live) = &self.live {
            add(&live.damaged.lock().unwrap_or_else(PoisonError::into_inner), summary);
        }
    }
}

/// Adds damage to a summary.
pub fn add(damaged: &Damages, summary: &mut Summary) {
    for (kind, damage) in damaged {
        add_damage(&mut summary.damaged, kind, damage.clone());
    }
}

struct Gather {
    sorter: Sorter,
    scratch: Vec<u8>,
    damaged: Damages,
}

impl Gather {
    fn push(&mut self, observation: &DnsObservation) -> Result<(), Error> {
        self.scratch.clear();
        observation.write(&mut self.scratch);
        self.sorter.push(time_key(observation.time_ns), &self.scratch)
    }

    fn zeek(&mut self, endpoint: &Endpoint, progress: &Arc<Progress>) -> Result<(), Error> {
        let text = input::open(endpoint, progress)?;
        let refused = |missing: String| Error::Input {
            what: text.name.clone(),
            why: format!(
                "{missing}: --zeek-dns reads the dns.log of Zeek; for names of an earlier run of larder, \
                 write them with --names-save and read them with --names-load"
            ),
        };
        let mut log = zeek::Log::new(text.reader);
        let mut offset = 0;
        let (mut objects, mut dns_objects) = (0_u64, 0_u64);
        while !progress.stop.load(Ordering::Relaxed) {
            match log.advance() {
                Ok(None) => break,
                Ok(Some(Item::Damaged { first: true })) => {
                    note(&mut self.damaged, "log_line", offset, &text.name);
                }
                Ok(Some(item)) => {
                    if item == Item::Fields
                        && let Some(column) = log.missing_dns_column()
                    {
                        return Err(refused(format!("it has no column {column}")));
                    }
                    if item == Item::Json {
                        objects += 1;
                        dns_objects += u64::from(log.is_dns_object());
                    }
                    if let Some(observation) =
                        log.dns_row(item).and_then(|row| DnsObservation::of_row(&row))
                    {
                        self.push(&observation)?;
                    }
                }
                Err(_) => {
                    note(&mut self.damaged, "log_cut_short", offset, &text.name);
                    break;
                }
            }
            offset += log.line().len() as u64;
        }
        if objects > 0 && dns_objects == 0 {
            return Err(refused("no line has the keys query and id.orig_h".to_owned()));
        }
        Ok(())
    }

    fn dnstap_file(&mut self, endpoint: &Endpoint, progress: &Arc<Progress>) -> Result<(), Error> {
        let text = input::open(endpoint, progress)?;
        let failed = |why: FrameError| Error::Input {
            what: text.name.clone(),
            why: format!("{why}; name a file that a dnstap sender or fstrm_capture wrote"),
        };
        let mut frames = Frames::open(text.reader).map_err(failed)?;
        self.frames(&mut frames, &text.name, progress)
    }

    /// Reads the first sender to its end.
    fn dnstap_socket(&mut self, path: PathBuf, progress: &Arc<Progress>) -> Result<(), Error> {
        let socket = bind(path)?;
        let is_over = Ending::new(progress).watched();
        while let Some(stream) = socket.accept(&is_over) {
            match Frames::accept(stream) {
                Ok(mut frames) => {
                    self.frames(&mut frames, &socket.name(), progress)?;
                    // The sender may have closed the connection; nothing is lost.
                    let _ = frames.finish();
                    break;
                }
                Err(_) => note(&mut self.damaged, "dnstap_handshake", 0, &socket.name()),
            }
        }
        Ok(())
    }

    fn frames<S: Read>(
        &mut self,
        frames: &mut Frames<S>,
        name: &str,
        progress: &Progress,
    ) -> Result<(), Error> {
        let mut extract = Extract::new();
        let mut offset = 0;
        while !progress.stop.load(Ordering::Relaxed) {
            match frames.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    let len = frame.len() as u64;
                    match DnsObservation::of_dnstap(frame, &mut extract) {
                        Ok(Some(observation)) => self.push(&observation)?,
                        Ok(None) => {}
                        Err(kind) => note(&mut self.damaged, kind, offset, name),
                    }
                    offset += len;
                }
                Err(_) => {
                    note(&mut self.damaged, "dnstap_cut_short", offset, name);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The path to listen on; `None` for a file. A missing path is a socket to be made only if its name
/// ends so: larder does not wait for a mistyped file.
fn socket_path(endpoint: &Endpoint) -> Result<Option<PathBuf>, Error> {
    let Endpoint::Path(path) = endpoint else { return Ok(None) };
    let named_so = path.extension().is_some_and(|end| end == "sock" || end == "socket");
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => Ok(Some(path.clone())),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named_so => Ok(Some(path.clone())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Input {
            what: path.display().to_string(),
            why: format!("{error}; check the path, or name a socket to be made NAME.sock"),
        }),
        _ => Ok(None),
    }
}

/// The socket at a path.
fn bind(path: PathBuf) -> Result<Socket, Error> {
    let what = path.display().to_string();
    Socket::bind(path).map_err(|why| Error::Input { what, why })
}

/// Ends the threads that wait for a sender.
struct Ending {
    progress: Arc<Progress>,
    closed: AtomicBool,
}

impl Ending {
    fn new(progress: &Arc<Progress>) -> Arc<Ending> {
        Arc::new(Ending { progress: Arc::clone(progress), closed: AtomicBool::new(false) })
    }

    fn watched(self: &Arc<Ending>) -> IsOver {
        let ending = Arc::clone(self);
        Arc::new(move || ending.has_come())
    }

    fn has_come(&self) -> bool {
        // Relaxed: no other memory depends on it.
        self.closed.load(Ordering::Relaxed) || self.progress.stop.load(Ordering::Relaxed)
    }
}

/// A socket that is read during the run, with a thread for each sender.
struct Live {
    arrived: Receiver<DnsObservation>,
    ending: Arc<Ending>,
    damaged: Arc<Mutex<Damages>>,
    acceptor: Option<JoinHandle<()>>,
}

impl Live {
    fn listen(path: PathBuf, progress: &Arc<Progress>) -> Result<Live, Error> {
        let socket = bind(path)?;
        let (observations, arrived) = sync_channel(ARRIVED_MAX);
        let ending = Ending::new(progress);
        let damaged = Arc::new(Mutex::new(Damages::new()));
        let hearing = Hearing {
            name: socket.name(),
            observations,
            ending: Arc::clone(&ending),
            damaged: Arc::clone(&damaged),
        };
        let refusing = hearing.clone();
        let refuse = move || refusing.note("dnstap_too_many_senders");
        let acceptor = socket
            .receive(ending.watched(), move |stream| hearing.hear(stream), refuse)
            .map_err(|error| Error::Options(format!("--dnstap: no thread ({error})")))?;
        Ok(Live { arrived, ending, damaged, acceptor: Some(acceptor) })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.ending.closed.store(true, Ordering::Relaxed);
        // The acceptor removes the socket's path. Threads of senders end by themselves: they check
        // the flag, or find their channel closed.
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Shared by the threads of a live socket.
#[derive(Clone)]
struct Hearing {
    name: String,
    observations: SyncSender<DnsObservation>,
    ending: Arc<Ending>,
    damaged: Arc<Mutex<Damages>>,
}

impl Hearing {
    fn note(&self, kind: &'static str) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        note(&mut damaged, kind, 0, &self.name);
    }

    fn hear(&self, stream: Patient) {
        let Ok(mut frames) = Frames::accept(stream) else { return self.note("dnstap_handshake") };
        let mut extract = Extract::new();
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => match DnsObservation::of_dnstap(frame, &mut extract) {
                    Ok(Some(observation)) => {
                        if self.observations.send(observation).is_err() {
                            return;
                        }
                    }
                    Ok(None) => {}
                    Err(kind) => self.note(kind),
                },
                Ok(None) => break,
                Err(_) if self.ending.has_come() => return,
                Err(_) => return self.note("dnstap_cut_short"),
            }
        }
        // The sender may have closed the connection; nothing is lost.
        let _ = frames.finish();
    }
}
