//! The log of a running program: one format for all programs.
//!
//! ```text
//! warn dns: upstream down upstream=192.0.2.1:53 hint="check the server"
//! {"time":"2024-01-02T03:04:05.006Z","level":"warn","component":"dns","event":"upstream down",...}
//! ```
//!
//! A line is queued, and a thread writes it to standard error ([`Log::print`]), so that a thread that
//! logs never waits for a reader that does not read.
//!
//! Invariants
//! 1. A line is one line, and has no control character: values are quoted as logfmt does, with the
//!    escapes of JSON.
//! 2. Nothing is formatted for a level that is off.
//!
//! Bounds: [`QUEUE_MAX`] lines wait; later ones are dropped and counted, and a line states how many.
//! Cost: an atomic load for a line whose level is off; an allocation and a lock for another.

use std::collections::VecDeque;
use std::fmt::{self, Display, Write as _};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_wire::civil::Civil;

/// Lines that wait to be written.
pub const QUEUE_MAX: usize = 1_024;

/// How long the end of a program waits for its last lines to be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// How important a line is; the first is the most important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed, and stays so until an operator acts.
    Error,
    /// Something is lost or limited; the program continues.
    Warn,
    /// A change of state.
    Info,
    /// Details for developers.
    Debug,
}

impl Level {
    const ALL: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];

    /// The word in log lines.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// The level of that name.
    pub fn of_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `level component: event key=value ...`
    Text,
    /// An object of JSON a line.
    Json,
}

/// The log of one component. Clones write to the same place; the default writes nowhere.
#[derive(Clone, Default)]
pub struct Log {
    component: &'static str,
    shared: Option<Arc<Shared>>,
}

struct Shared {
    level: AtomicU8,
    format: AtomicU8,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    dropped: u64,
    has_ended: bool,
}

impl Shared {
    /// A thread that panicked with the lock left a valid state: a line is added in one step.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// A log whose lines wait until [`Log::print`] or [`Log::take`].
    pub fn new(component: &'static str, level: Level, format: Format) -> Log {
        let shared = Shared {
            level: AtomicU8::new(level as u8),
            format: AtomicU8::new(format as u8),
            queue: Mutex::default(),
            changed: Condvar::new(),
        };
        Log { component, shared: Some(Arc::new(shared)) }
    }

    /// The same for another component.
    pub fn of(&self, component: &'static str) -> Log {
        Log { component, shared: self.shared.clone() }
    }

    /// Changes level and format, of all components.
    pub fn set(&self, level: Level, format: Format) {
        if let Some(shared) = &self.shared {
            shared.level.store(level as u8, Ordering::Relaxed);
            shared.format.store(format as u8, Ordering::Relaxed);
        }
    }

    /// Begins a line of level error, which is queued when it is dropped.
    pub fn error(&self, event: &str) -> Line<'_> {
        self.line(Level::Error, event)
    }

    /// Begins a line of level warn.
    pub fn warn(&self, event: &str) -> Line<'_> {
        self.line(Level::Warn, event)
    }

    /// Begins a line of level info.
    pub fn info(&self, event: &str) -> Line<'_> {
        self.line(Level::Info, event)
    }

    /// Begins a line of level debug.
    pub fn debug(&self, event: &str) -> Line<'_> {
        self.line(Level::Debug, event)
    }

    fn line(&self, level: Level, event: &str) -> Line<'_> {
        let is_on = |shared: &&Arc<Shared>| level as u8 <= shared.level.load(Ordering::Relaxed);
        Line(self.shared.as_ref().filter(is_on).map(|shared| {
            let is_json = shared.format.load(Ordering::Relaxed) == Format::Json as u8;
            Open { text: begin(is_json, level, self.component, event), is_json, shared }
        }))
    }

    /// Starts a thread that writes lines to standard error until the printer is dropped. Before
    /// each it writes `wipe`, which clears the current line of a terminal.
    pub fn print(&self, wipe: &'static str) -> io::Result<Printer> {
        let (ends, ended) = channel();
        let log = self.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            let _ends = ends;
            log.write(wipe);
        })?;
        Ok(Printer { log: self.clone(), ended })
    }

    /// The lines that wait, for tests.
    pub fn take(&self) -> Vec<String> {
        self.shared.as_ref().map_or_else(Vec::new, |it| it.lock().lines.drain(..).collect())
    }

    fn write(&self, wipe: &str) {
        let Some(shared) = &self.shared else { return };
        loop {
            let mut queue = shared.lock();
            while queue.lines.is_empty() && !queue.has_ended {
                queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let Queue { lines, dropped, has_ended } = std::mem::take(&mut *queue);
            queue.has_ended = has_ended;
            drop(queue);
            for line in &lines {
                // A reader that went away is no reason to end.
                let _ = io::stderr().write_all(format!("{wipe}{line}\n").as_bytes());
            }
            if dropped > 0 {
                self.of("log").warn("lines dropped").number("count", dropped);
            } else if has_ended {
                return;
            }
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("component", &self.component).finish_non_exhaustive()
    }
}

/// The thread that writes lines. Dropped, it writes those that wait, and waits for that, but not for
/// a reader that does not read.
pub struct Printer {
    log: Log,
    ended: Receiver<()>,
}

impl Drop for Printer {
    fn drop(&mut self) {
        if let Some(shared) = &self.log.shared {
            shared.lock().has_ended = true;
            shared.changed.notify_all();
            // Nothing is sent: the thread drops the other end.
            let _: Result<(), RecvTimeoutError> = self.ended.recv_timeout(PATIENCE);
        }
    }
}

/// A line that is being made; empty where its level is off.
pub struct Line<'a>(Option<Open<'a>>);

struct Open<'a> {
    text: String,
    is_json: bool,
    shared: &'a Shared,
}

impl Line<'_> {
    /// Adds a value.
    pub fn text(mut self, key: &str, value: impl Display) -> Self {
        if let Some(Open { text, is_json, .. }) = &mut self.0 {
            add_key(text, *is_json, key);
            add_value(text, *is_json, &value.to_string());
        }
        self
    }

    /// Adds a value, if there is one.
    pub fn maybe(self, key: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// Adds a number; one above what 64 bits hold is written as the largest.
    pub fn number(mut self, key: &str, value: impl TryInto<u64>) -> Self {
        if let Some(Open { text, is_json, .. }) = &mut self.0 {
            add_key(text, *is_json, key);
            // Writing to a string does not fail.
            let _ = write!(text, "{}", value.try_into().unwrap_or(u64::MAX));
        }
        self
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let Some(Open { mut text, is_json, shared }) = self.0.take() else { return };
        if is_json {
            text.push('}');
        }
        let mut queue = shared.lock();
        if queue.lines.len() < QUEUE_MAX {
            queue.lines.push_back(text);
        } else {
            queue.dropped += 1;
        }
        shared.changed.notify_all();
    }
}

fn begin(is_json: bool, level: Level, component: &str, event: &str) -> String {
    let level = level.name();
    if !is_json {
        return format!("{level} {component}: {event}");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = Civil::from_ns(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)).rfc3339_ms();
    let time = String::from_utf8_lossy(&time).into_owned();
    let mut text = "{".to_owned();
    let fields = [("time", &*time), ("level", level), ("component", component), ("event", event)];
    for (at, (key, value)) in fields.into_iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "," });
        add_quoted(&mut text, key);
        text.push(':');
        add_quoted(&mut text, value);
    }
    text
}

fn add_key(out: &mut String, is_json: bool, key: &str) {
    if is_json {
        out.push(',');
        add_quoted(out, key);
        out.push(':');
    } else {
        out.push(' ');
        out.push_str(key);
        out.push('=');
    }
}

/// Invariant 1.
fn add_value(out: &mut String, is_json: bool, value: &str) {
    let is_plain = |c: char| !c.is_whitespace() && !is_unsafe(c) && !matches!(c, '"' | '\\' | '=');
    if is_json || value.is_empty() || !value.chars().all(is_plain) {
        add_quoted(out, value);
    } else {
        out.push_str(value);
    }
}

/// Appends a string of JSON.
fn add_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // All of these are in the first plane.
            c if is_unsafe(c) => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Controls a terminal, or the direction or place of other characters.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind of value in both formats. Syntax and control characters in values are quoted and
    /// escaped. Invariant 1.
    #[test]
    fn values_are_quoted() {
        let log = Log::new("dns", Level::Info, Format::Text);
        let line = |log: &Log| {
            log.warn("upstream down")
                .text("upstream", "192.0.2.1:53")
                .text("name", "a b=\"\\\x1b[2J\n\u{9b}\u{202e}ä")
                .text("empty", "")
                .maybe("none", None::<&str>)
                .number("count", 3_usize);
            log.take().remove(0)
        };
        let name = r#""a b=\"\\\u001b[2J\n\u009b\u202eä""#;
        let text = r#"warn dns: upstream down upstream=192.0.2.1:53 name=NAME empty="" count=3"#;
        assert_eq!(line(&log), text.replace("NAME", name));
        log.set(Level::Info, Format::Json);
        let json = line(&log.of("store"));
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["name"], "a b=\"\\\x1b[2J\n\u{9b}\u{202e}ä");
        assert_eq!((&parsed["count"], &parsed["level"]), (&3.into(), &"warn".into()));
        assert_eq!((&parsed["component"], &parsed["empty"]), (&"store".into(), &"".into()));
        assert_eq!(parsed["time"].as_str().map(str::len), Some(24));
        assert!(!json.chars().any(is_unsafe), "{json}");
    }

    /// A value that must not be formatted.
    struct Never;

    impl Display for Never {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("it is formatted")
        }
    }

    /// A level that is off formats nothing; another level takes effect at once, for all components.
    /// Invariant 2.
    #[test]
    fn levels_that_are_off() {
        let log = Log::new("http", Level::Warn, Format::Text);
        log.info("listening").text("address", Never);
        Log::default().error("failed").text("error", Never);
        assert!(log.take().is_empty());
        log.of("tls").set(Level::Debug, Format::Text);
        log.debug("turn").number("count", -1);
        assert_eq!(log.take(), ["debug http: turn count=18446744073709551615"]);
        for level in Level::ALL {
            assert_eq!(Level::of_name(level.name()), Some(level));
        }
        assert_eq!(Level::of_name("trace"), None);
    }

    /// A reader that does not read costs lines, and no memory; how many is counted.
    #[test]
    fn the_queue_is_bounded() {
        let log = Log::new("dns", Level::Info, Format::Text);
        (0..QUEUE_MAX + 5).for_each(|_| drop(log.info("reload")));
        let queue = log.shared.as_ref().unwrap().lock();
        assert_eq!((queue.lines.len(), queue.dropped), (QUEUE_MAX, 5));
    }
}
