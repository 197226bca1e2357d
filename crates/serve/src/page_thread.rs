//! The thread of a page: it takes notes of what workers did, takes samples, and saves the history.
//!
//! ```text
//! four times a second   notes
//! once a second         a sample
//! once a minute         the file, and at the beginning and the end
//! ```
//!
//! Invariants
//! 1. A file that cannot be written is logged once, until it can be written again; the program continues (test
//!    `a_file_that_fails_is_logged_once`).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder_io::access::Access;

use crate::log::Log;
use crate::saved;

/// How often the thread takes notes.
const TURN: Duration = Duration::from_millis(250);

/// Takes the samples of a program.
pub trait Sampler: Send + 'static {
    /// Takes what workers noted since the last call.
    fn take_notes(&mut self);

    /// Takes a sample of the second `now_s`; `seconds` since the last one. True if a minute is over.
    fn sample(&mut self, now_s: u64, seconds: u64) -> bool;

    /// Ends the current minute, also before its time.
    fn end_minute(&mut self);

    /// The bytes of the file.
    fn bytes(&self) -> Vec<u8>;
}

/// The file that has the history.
#[derive(Debug)]
pub struct HistoryFile {
    path: PathBuf,
    access: Access,
    log: Log,
    is_saved: bool,
}

impl HistoryFile {
    /// A file of this mode and group; failures are logged to `log`.
    pub fn new(path: PathBuf, access: Access, log: Log) -> HistoryFile {
        HistoryFile { path, access, log, is_saved: true }
    }

    /// What an earlier run saved; a damaged file is logged, and the history begins again.
    pub fn load<T>(
        &self,
        load: impl FnOnce(&std::path::Path) -> Result<Option<T>, String>,
    ) -> Option<T> {
        match load(&self.path) {
            Ok(saved) => saved,
            Err(why) => {
                let event = self.log.warn("history not read; it begins again");
                event.text("file", self.path.display()).text("reason", why);
                None
            }
        }
    }

    /// Saves the bytes; invariant 1.
    pub fn save(&mut self, bytes: &[u8]) {
        let saved = saved::write(&self.path, bytes, self.access);
        if let (Err(error), true) = (&saved, self.is_saved) {
            let event = self.log.error("history not written; correct the path or its permissions");
            event.text("file", self.path.display()).text("error", error);
        }
        self.is_saved = saved.is_ok();
    }
}

/// The thread. It ends when dropped, after it has saved the history.
#[derive(Debug)]
pub struct PageThread {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PageThread {
    /// Starts the thread.
    pub fn start(sampler: impl Sampler, file: Option<HistoryFile>) -> io::Result<PageThread> {
        let ends = Arc::new(AtomicBool::new(false));
        let run = {
            let ends = Arc::clone(&ends);
            move || run(sampler, file, &ends)
        };
        let thread = thread::Builder::new().name("page".to_owned()).spawn(run)?;
        Ok(PageThread { ends, thread: Some(thread) })
    }
}

impl Drop for PageThread {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn run(mut sampler: impl Sampler, mut file: Option<HistoryFile>, ends: &AtomicBool) {
    let (mut sampled, mut sampled_s) = (Instant::now(), now_s());
    // A file that cannot be written is noticed at once.
    if let Some(file) = &mut file {
        file.save(&sampler.bytes());
    }
    while !ends.load(Ordering::Acquire) {
        thread::park_timeout(TURN);
        sampler.take_notes();
        let now_s = now_s();
        if now_s == sampled_s {
            continue;
        }
        // Turns are late by up to a quarter of a second, and later on a busy machine.
        let seconds = (sampled.elapsed().as_secs_f64().round() as u64).max(1);
        (sampled, sampled_s) = (Instant::now(), now_s);
        if sampler.sample(now_s, seconds)
            && let Some(file) = &mut file
        {
            file.save(&sampler.bytes());
        }
    }
    sampler.take_notes();
    sampler.end_minute();
    if let Some(file) = &mut file {
        file.save(&sampler.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Format, Level};

    fn log() -> Log {
        Log::new("dns", Level::Info, Format::Text)
    }

    /// Invariant 1.
    #[test]
    fn a_file_that_fails_is_logged_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, log) = (folder.path().join("none/history"), log());
        let mut file = HistoryFile::new(path.clone(), Access::PRIVATE, log.clone());
        file.save(b"1");
        file.save(b"2");
        assert_eq!(log.take().len(), 1);
        std::fs::create_dir(folder.path().join("none")).expect("made");
        file.save(b"3");
        assert_eq!(std::fs::read(&path).expect("written"), b"3");
        assert_eq!(log.take().len(), 0);
        std::fs::remove_dir_all(folder.path().join("none")).expect("removed");
        file.save(b"4");
        let lines = log.take();
        assert!(lines.len() == 1 && lines[0].contains("history not written"), "{lines:?}");
        assert_eq!(file.load(|_| Err::<Option<u8>, _>("damaged".to_owned())), None);
        assert!(log.take()[0].contains("it begins again"));
    }

    /// The thread samples, and at its end takes the last notes and saves.
    #[test]
    fn the_last_notes_are_saved() {
        struct Numbers(u8, bool);
        impl Sampler for Numbers {
            fn take_notes(&mut self) {
                self.0 = 7;
            }
            fn sample(&mut self, _: u64, seconds: u64) -> bool {
                assert!(seconds > 0);
                false
            }
            fn end_minute(&mut self) {
                self.1 = true;
            }
            fn bytes(&self) -> Vec<u8> {
                [&b"larder01"[..], &[self.0, u8::from(self.1)]].concat()
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history");
        let file = HistoryFile::new(path.clone(), Access::PRIVATE, log());
        drop(PageThread::start(Numbers(0, false), Some(file)).expect("a thread"));
        assert_eq!(std::fs::read(&path).expect("written"), b"larder01\x07\x01");
    }
}
