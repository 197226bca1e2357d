//! `larder annotate` inside another program: settings by name in, rows and a summary out.
//!
//! The bindings for other languages use it (`bindings/python`). A setting has the name, the range and the error text
//! that it has on a command line; what is wrong with several settings together is said with the names of flags.
//! Neither the environment nor a configuration file counts: a program's result must not depend on a file that it does
//! not know of.
//!
//! Life cycle: [`Flows::new`] checks the settings and opens no capture. Each [`Flows::start`] is a run over the
//! captures, in a thread of its own, whose records arrive as [`rows`] in the order of the
//! log. [`Run::next`] waits for them; a dropped run stops.
//!
//! Invariants
//! 1. A run is at most `CHUNKS_AHEAD` chunks of about 1 MiB, and the one that it has in hand, ahead of its reader.
//! 2. A run reads no standard input, writes nothing to standard output or standard error, and changes neither user nor
//!    working directory of the process. It sets the handler of one signal, SIGBUS, once: a capture that is cut while
//!    larder reads it is an error, and other accesses go to the handler that was there before.
//! 3. Every setting of the table is taken here, or refused (a test compares).

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use larder_annotate::Error;
pub use larder_annotate::format::{fields, rows, schema};

use larder_annotate::options::{Endpoint, OutputFormat, RowsTo, Summary};
use larder_annotate::{Options, Progress};
use larder_settings::exit::Failure;
use larder_settings::program::settings_named;
use larder_settings::table::Setting;
use larder_settings::value::Kind;

use crate::annotate::{check_inputs, check_outputs, check_readable, failed, inputs, options};
use crate::settings::{ANNOTATE, Annotate};
use crate::summary;

/// Chunks of rows that wait for their reader (invariant 1).
const CHUNKS_AHEAD: usize = 2;

/// Settings that belong to a program of its own: its log, its interfaces, its services.
const OF_THE_PROGRAM: &[&str] = &[
    "read",
    "pcap-listen",
    "interface",
    "eve",
    "zeek-log",
    "flows-listen",
    "names-at",
    "names-for",
    "output",
    "format",
    "dataset",
    "resume",
    "ipfix-to",
    "numeric",
    "quiet",
    "no-progress",
    "active",
];

/// Groups of the table that do, too.
const GROUPS_OF_THE_PROGRAM: &[&str] =
    &["Log rotation", "Live capture", "Packet store", "Operation"];

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// On or off.
    Flag(bool),
    /// A whole number.
    Number(i128),
    /// A moment, by RFC 3339.
    Moment(String),
    /// A duration, milliseconds.
    Milliseconds(i128),
    /// As on a command line.
    Word(OsString),
    /// Several values.
    Words(Vec<OsString>),
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::Flag(is_on) => is_on.fmt(f),
            Given::Number(number) => number.fmt(f),
            Given::Moment(moment) => moment.fmt(f),
            Given::Milliseconds(ms) => write!(f, "{ms} ms"),
            Given::Word(word) => write!(f, "{word:?}"),
            Given::Words(words) => write!(f, "{words:?}"),
        }
    }
}

impl Given {
    /// The values as words; `None` if a setting of this kind has no such values. Otherwise `stats=True` would be the
    /// name of a file.
    fn into_words(self, setting: &Setting) -> Option<Vec<OsString>> {
        let is_of_kind = match (&self, setting.kind) {
            (Given::Flag(_), Kind::Switch) => true,
            (Given::Flag(_), Kind::Choice(words)) => words.contains(&"true"),
            (Given::Number(_), kind) => matches!(
                kind,
                Kind::Bytes { .. }
                    | Kind::Count { .. }
                    | Kind::Seconds { .. }
                    | Kind::Cores
                    | Kind::Seed
                    | Kind::Time(_)
            ),
            (Given::Moment(_), kind) => matches!(kind, Kind::Time(_)),
            (Given::Milliseconds(_), kind) => matches!(kind, Kind::Seconds { .. }),
            (Given::Word(_) | Given::Words(_), kind) => !matches!(kind, Kind::Switch),
            (Given::Flag(_), _) => false,
        };
        let has_commas = matches!(setting.kind, Kind::Set { .. } | Kind::List);
        is_of_kind.then(|| match self {
            Given::Flag(is_on) => vec![is_on.to_string().into()],
            Given::Number(number) => vec![number.to_string().into()],
            Given::Moment(moment) => vec![moment.into()],
            Given::Milliseconds(ms) => vec![format!("{ms}ms").into()],
            Given::Word(word) => vec![word],
            // As a command line has them.
            Given::Words(words) if has_commas => vec![words.join(OsStr::new(","))],
            Given::Words(words) => words,
        })
    }
}

/// Flows that a run would find. Making it reads no packet.
#[derive(Clone, Debug)]
pub struct Flows {
    options: Options,
    is_strict: bool,
}

impl Flows {
    /// The flows of these captures, with these settings: names as on a command line, with `_` or `-`.
    ///
    /// # Errors
    /// The program's text: an unknown name, a value out of range, a capture that cannot be opened.
    pub fn new(captures: &[PathBuf], settings: &[(String, Given)]) -> Result<Flows, String> {
        Flows::checked(captures, settings).map_err(|failure| failure.message)
    }

    fn checked(captures: &[PathBuf], settings: &[(String, Given)]) -> Result<Flows, Failure> {
        check_captures(captures)?;
        let settings = resolved(captures, settings)?;
        let options = Options { format: OutputFormat::Rows, ..options(&settings)? };
        if options.read.is_empty() && options.flows_read.is_empty() {
            return Err(Failure::usage("no input: name a capture"));
        }
        // Invariant 2.
        if let Some((flag, _)) =
            inputs(&options).iter().find(|(_, input)| **input == Endpoint::Pipe)
        {
            return Err(Failure::usage(format!("{flag} -: this is standard input; name a file")));
        }
        if options.write_packets == Some(Endpoint::Pipe) {
            return Err(Failure::usage("write: - is standard output; name a file"));
        }
        check_inputs(&options, false)?;
        check_outputs(&options)?;
        Ok(Flows { options, is_strict: settings.output.strict })
    }

    /// Starts a run.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(&self) -> Result<Run, String> {
        let (to, rows) = sync_channel(CHUNKS_AHEAD);
        let options = Options { rows_to: Some(RowsTo(to)), ..self.options.clone() };
        let progress = Arc::new(Progress::default());
        let thread = thread::Builder::new().name("larder-annotate".to_owned());
        let (of_run, is_strict, started) = (Arc::clone(&progress), self.is_strict, Instant::now());
        let run = move || finished(larder_annotate::run(&options, &of_run), is_strict, started);
        let thread = thread.spawn(run);
        let thread = thread.map_err(|error| {
            format!(
                "cannot start a thread for the run: {error}; end other threads, or raise the limit"
            )
        })?;
        let running = Running { rows, thread };
        Ok(Run { running: Mutex::new(Some(running)), progress, process: std::process::id() })
    }
}

/// What a run was, once it is over.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The counters, as `--stats` writes them: JSON.
    pub stats: String,
    /// The lines that the program prints at the end.
    pub text: String,
}

fn finished(
    run: Result<Summary, Error>,
    is_strict: bool,
    started: Instant,
) -> Result<Ended, String> {
    let summary = run.map_err(|error| match error {
        Error::ClosedPipe => {
            "write: its reader closed it; start the reader again, and the run".to_owned()
        }
        error => failed(error).message,
    })?;
    let text = summary::text(&summary, started.elapsed());
    if let Some(why) = summary.failure {
        return Err(why);
    }
    if is_strict && summary.input_damaged {
        return Err(format!(
            "the input is damaged, and strict is set:\n{}",
            summary::troubles(&summary).trim_end()
        ));
    }
    Ok(Ended { stats: summary.to_json(), text })
}

/// A run under way. Threads may share it; each chunk is returned to one of them.
#[derive(Debug)]
pub struct Run {
    /// `None` at the end.
    running: Mutex<Option<Running>>,
    progress: Arc<Progress>,
    /// The process that has the run's threads.
    process: u32,
}

#[derive(Debug)]
struct Running {
    rows: Receiver<Vec<u8>>,
    thread: JoinHandle<Result<Ended, String>>,
}

/// What a run has for its reader.
#[derive(Debug)]
pub enum Next {
    /// Whole rows.
    Rows(Vec<u8>),
    /// Nothing in this time.
    NotYet,
    /// The end of the run; `None` for a reader that comes once more, or after [`Run::stop`].
    End(Option<Ended>),
}

impl Run {
    /// The next rows; waits for them this long.
    ///
    /// # Errors
    /// Why the run failed, once. Always in a process that was forked from that of the run.
    pub fn next(&self, patience: Duration) -> Result<Next, String> {
        if self.is_of_another_process() {
            return Err("the run belongs to the process that forked; start another one".to_owned());
        }
        let mut place = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Running { rows, .. }) = &*place else { return Ok(Next::End(None)) };
        match rows.recv_timeout(patience) {
            Ok(rows) => return Ok(Next::Rows(rows)),
            Err(RecvTimeoutError::Timeout) => return Ok(Next::NotYet),
            Err(RecvTimeoutError::Disconnected) => {}
        }
        let Some(Running { thread, .. }) = place.take() else { return Ok(Next::End(None)) };
        let panicked = |_| Err("the run panicked; please report this".to_owned());
        Ok(Next::End(Some(thread.join().unwrap_or_else(panicked)?)))
    }

    /// Ends the run, whose other rows no reader gets. Does not wait for it: it may be at a read that takes long.
    pub fn stop(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
        if !self.is_of_another_process() {
            *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    fn is_of_another_process(&self) -> bool {
        self.process != std::process::id()
    }
}

impl Drop for Run {
    /// A fork may have copied locks that a thread held. So a child forgets the channel, and does not drop it.
    fn drop(&mut self) {
        if self.is_of_another_process() {
            std::mem::forget(self.running.get_mut().map(Option::take));
        } else {
            self.stop();
        }
    }
}

fn resolved(captures: &[PathBuf], settings: &[(String, Given)]) -> Result<Annotate, Failure> {
    let mut named = Vec::with_capacity(1 + settings.len());
    if !captures.is_empty() {
        let words = captures.iter().map(|path| path.clone().into_os_string());
        named.push(("read".to_owned(), words.collect()));
    }
    for (name, given) in settings {
        let key = name.replace('_', "-");
        // Of an unknown name, the table says which one it is like.
        let words = match ANNOTATE.settings.iter().find(|setting| setting.name == key) {
            None => Vec::new(),
            Some(setting) if is_of_the_program(setting) => {
                let why = "only the program larder annotate has this setting; leave it out, or run the program";
                return Err(Failure::usage(format!("{name}: {why}")));
            }
            Some(setting) => given.clone().into_words(setting).ok_or_else(|| {
                let range = setting.kind.range();
                Failure::usage(format!("{name} {given}: expected {range}"))
            })?,
        };
        named.push((name.clone(), words));
    }
    Ok(settings_named(&ANNOTATE, &named)?.read())
}

/// The settings of the table that a run takes.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    ANNOTATE.settings.iter().filter(|setting| !is_of_the_program(setting))
}

fn is_of_the_program(setting: &Setting) -> bool {
    OF_THE_PROGRAM.contains(&setting.name) || GROUPS_OF_THE_PROGRAM.contains(&setting.group)
}

/// Captures that can be opened. On a command line, words after the captures may be a filter, but not here.
fn check_captures(captures: &[PathBuf]) -> Result<(), Failure> {
    for path in captures {
        match Endpoint::from(path.clone()) {
            Endpoint::Pipe => return Err(Failure::usage("-: this is standard input; name a file")),
            Endpoint::Path(path) => check_readable("the capture", &path)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/demo.pcapng");

    fn flows(settings: &[(&str, &str)]) -> Result<Flows, String> {
        let given = |(name, word): &(&str, &str)| ((*name).to_owned(), Given::Word(word.into()));
        Flows::new(&[DEMO.into()], &settings.iter().map(given).collect::<Vec<_>>())
    }

    /// A run has the records of the capture, then its summary, then nothing; another one begins again.
    #[test]
    fn runs_to_its_end() {
        let flows = flows(&[("cores", "2")]).expect("sound");
        for _ in 0..2 {
            let run = flows.start().expect("a thread");
            let mut records = 0;
            let ended = loop {
                match run.next(Duration::from_secs(1)).expect("a sound capture") {
                    Next::Rows(bytes) => {
                        let mut bytes = &bytes[..];
                        while !bytes.is_empty() {
                            for field in fields::FIELDS {
                                rows::next(field.kind, &mut bytes).expect("whole rows");
                            }
                            records += 1;
                        }
                    }
                    Next::NotYet => {}
                    Next::End(ended) => break ended.expect("a summary"),
                }
            };
            assert_eq!(records, 16);
            assert!(ended.text.starts_with("packets    197 "), "{}", ended.text);
            assert!(ended.stats.contains("\"flows\": 16"), "{}", ended.stats);
            assert!(matches!(run.next(Duration::ZERO), Ok(Next::End(None))));
        }
        let stopped = flows.start().expect("a thread");
        stopped.stop();
        assert!(matches!(stopped.next(Duration::ZERO), Ok(Next::End(None))));
    }

    /// What is wrong with a setting is said before a run, with the name that the caller used.
    #[test]
    fn refused() {
        let refused = |name, word| flows(&[(name, word)]).expect_err("wrong settings");
        assert!(refused("name_budget", "1MiB").contains("did you mean 'names_budget'?"));
        assert!(refused("names_budget", "1").starts_with("names_budget \"1\": out of range"));
        let of_kind =
            |name: &str, given| Flows::new(&[DEMO.into()], &[(name.to_owned(), given)]).map(drop);
        assert!(
            of_kind("stats", Given::Flag(true))
                .is_err_and(|text| text.starts_with("stats true: expected "))
        );
        assert!(of_kind("write", Given::Milliseconds(60_000)).is_err());
        assert!(of_kind("names_save", Given::Number(5)).is_err());
        assert!(of_kind("cores", Given::Flag(true)).is_err());
        assert!(of_kind("strict", Given::Word("true".into())).is_err());
        assert!(of_kind("tcp_idle", Given::Milliseconds(60_000)).is_ok());
        assert!(of_kind("unresolved", Given::Flag(true)).is_ok());
        let twice = ["names-budget", "names_budget"]
            .map(|name| (name.to_owned(), Given::Word("2MiB".into())));
        assert!(Flows::new(&[DEMO.into()], &twice).is_err_and(|text| text.contains("given twice")));
        assert!(refused("output", "x").contains("only the program larder annotate"));
        assert!(refused("write", "-").contains("standard output"));
        assert!(refused("filter", "no filter").contains("no filter"));
        let of = |captures: &[&str]| {
            Flows::new(&captures.iter().map(PathBuf::from).collect::<Vec<_>>(), &[]).map(drop)
        };
        // As a second word after -r, this would be a filter.
        assert!(
            of(&[DEMO, "tcp"]).is_err_and(|text| text.starts_with("the capture tcp: no such file"))
        );
        assert!(of(&["-"]).is_err_and(|text| text.contains("standard input")));
        assert!(of(&[]).is_err_and(|text| text.contains("no input")));
    }

    /// Every setting of the table is taken inside a program, or refused (invariant 3).
    #[test]
    fn settings_are_taken_or_refused() {
        let taken: Vec<&str> = settings().map(|setting| setting.name).collect();
        assert_eq!(
            taken.join(" "),
            "filter count names-read from to capture-began zeek-dns dnstap flows-read flows-delay write directory \
             stats sort unresolved strict names min-confidence candidates names-load names-save ignore-vlan lookup \
             cores names-budget flows-max reassembly-budget tcp-idle udp-idle linger cut-every seed"
        );
        for name in OF_THE_PROGRAM {
            assert!(ANNOTATE.settings.iter().any(|setting| setting.name == *name), "{name}");
        }
        for group in GROUPS_OF_THE_PROGRAM {
            assert!(ANNOTATE.settings.iter().any(|setting| setting.group == *group), "{group}");
        }
    }
}
