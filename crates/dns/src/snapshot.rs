//! The cache in a file: saved on a timer and at the end, loaded in the background at the start.
//!
//! ```text
//! start   clear_leftovers, load (on a thread; cores respond meanwhile)
//! runs    is_due -> start -> finished returns the result; `larder ctl snapshot` saves the same way
//! end     start once more, when a running save has finished
//! ```
//!
//! The engine makes a save safe. It writes a temporary file and renames it to the snapshot's name.
//! So a process killed at any time leaves either the old file or the new one. It checks each part
//! of a file before it loads any of that part. The temporary file of a killed process has another
//! name. It is never loaded, and the next start removes it.
//!
//! Invariants
//! 1. At most one save runs. A second request meanwhile gets an error.
//! 2. A failed save changes no file, and the next save is at its usual time.
//!    [`Snapshots::finished`] returns the same error only once, until a save succeeds.
//!
//! The supervisor and the cores never wait for a load or a save.
//!
//! Loading inserts entries, and the engine limits how far inserts may be ahead of the readers. So
//! between chunks the loader waits until every reader has caught up, and wakes sleeping cores.
//!
//! Cost of a save: a walk over the cache with short locks, on its own thread, some seconds for
//! millions of entries. A save and a dump share the walk, so only one runs at a time.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use larder::{Cache, Error, Loaded, SaveError, Seconds};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::ctl::{Answer, Fields};

/// How long the loader waits, for each chunk, until the cores have seen what it stored.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the loader starts a load in all, if readers are too far behind.
const TRIES: u32 = 5;

/// The result of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// Entries in the file.
    pub entries: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Duration, milliseconds.
    pub took_ms: u64,
}

/// Saves of one cache to one file.
#[derive(Debug)]
pub struct Snapshots {
    cache: Cache,
    path: PathBuf,
    period_ms: Option<u64>,
    due_ms: Option<u64>,
    /// True during a save.
    saving: Arc<AtomicBool>,
    /// Receives the result of the save that runs on its thread.
    running: Option<Receiver<Result<Saved, SaveError>>>,
    /// The text of the last reported failure since the last success.
    reported: Option<String>,
}

/// The right to save; dropping it releases the right, also in a panic.
struct Turn(Arc<AtomicBool>);

impl Turn {
    fn take(saving: &Arc<AtomicBool>) -> Option<Turn> {
        let was = saving.swap(true, Ordering::Acquire);
        (!was).then(|| Turn(Arc::clone(saving)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Snapshots {
    /// Saves `cache` to `path` every `period_ms` from `now_ms` on; `None`: only on request.
    pub fn new(cache: Cache, path: PathBuf, period_ms: Option<u64>, now_ms: u64) -> Snapshots {
        let period_ms = period_ms.map(|ms| ms.max(1));
        let due_ms = period_ms.map(|ms| now_ms + ms);
        let saving = Arc::default();
        Snapshots { cache, path, period_ms, due_ms, saving, running: None, reported: None }
    }

    /// Milliseconds until [`Snapshots::is_due`]; `None` for never.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.due_ms.map(|due| due.saturating_sub(now_ms))
    }

    /// Whether it is time for [`Snapshots::start`]. If so, this sets the next time.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = self.due_ms.is_some_and(|due| now_ms >= due);
        if is_due {
            self.due_ms = self.period_ms.map(|ms| now_ms + ms);
        }
        is_due
    }

    /// Starts a save on a thread, which calls `wake` at its end. Returns false and does nothing if
    /// a save runs, or if the system has no thread for it.
    pub fn start(&mut self, now: Seconds, wake: impl FnOnce() + Send + 'static) -> bool {
        if self.running.is_some() {
            return false;
        }
        let Some(turn) = Turn::take(&self.saving) else { return false };
        let (cache, path) = (self.cache.clone(), self.path.clone());
        let (say, said) = sync_channel(1);
        let thread = thread::Builder::new().name("larder-save".to_owned()).spawn(move || {
            let saved = save(&cache, &path, now);
            drop(turn);
            // The receiver may be gone.
            let _ = say.send(saved);
            wake();
        });
        self.running = thread.ok().map(|_| said);
        self.running.is_some()
    }

    /// The result of a save that [`Snapshots::start`] began, once. `None` while it runs, if none
    /// was started, and for a failure already reported. The text of a failure says what to do.
    pub fn finished(&mut self) -> Option<Result<Saved, String>> {
        let result = match self.running.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Ok(result) => result,
            Err(TryRecvError::Disconnected) => {
                Err(io::Error::other("the thread that saves failed; see above").into())
            }
        };
        self.running = None;
        match result {
            Ok(saved) => {
                self.reported = None;
                Some(Ok(saved))
            }
            Err(error) => {
                let text = self.explain(&error);
                let is_news = self.reported.as_deref() != Some(&text);
                self.reported = Some(text.clone());
                is_news.then_some(Err(text))
            }
        }
    }

    /// A save for `larder ctl snapshot`.
    pub fn answer(&self, now: Seconds) -> Answer {
        let (cache, path) = (self.cache.clone(), self.path.clone());
        let saving = Arc::clone(&self.saving);
        Answer::Later(Box::new(move |_| {
            let _turn = Turn::take(&saving)
                .ok_or("a snapshot is being saved; ask again when it is done")?;
            let saved = save(&cache, &path, now).map_err(|error| explain(&path, &error))?;
            let counts =
                [("entries", saved.entries), ("bytes", saved.bytes), ("took_ms", saved.took_ms)];
            let fields = counts.map(|(name, count)| (name.to_owned(), count.into()));
            Ok(Fields::from_iter(fields))
        }))
    }

    /// Whether a save runs: one of a client, or one of [`Snapshots::start`] whose result
    /// [`Snapshots::finished`] has not returned yet.
    pub fn is_saving(&self) -> bool {
        self.running.is_some() || self.saving.load(Ordering::Acquire)
    }

    fn explain(&self, error: &SaveError) -> String {
        explain(&self.path, error)
    }
}

fn save(cache: &Cache, path: &Path, now: Seconds) -> Result<Saved, SaveError> {
    let start = Instant::now();
    let entries = cache.save(path, now)?;
    let bytes = fs::metadata(path)?.len();
    Ok(Saved { entries, bytes, took_ms: start.elapsed().as_millis() as u64 })
}

fn explain(path: &Path, error: &SaveError) -> String {
    let next = match error {
        SaveError::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
            "make room on that disk, or name another file"
        }
        _ => "name a file in a directory that this user may write to",
    };
    format!(
        "{}: {error}; the older snapshot is as it was, and answers go on: {next}",
        path.display()
    )
}

/// Removes the temporary files that killed processes left next to the snapshot, and returns their
/// number. Files of running processes stay.
pub fn clear_leftovers(path: &Path) -> io::Result<usize> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut removed = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let pid = path.file_name().and_then(|file| owner_of(file, &entry.file_name()));
        if pid.is_some_and(|pid| !is_running(pid)) {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Whether a process has this ID.
fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Another user's process refuses.
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// The process ID in `name` if it is a temporary file of `file`: `<file>.<process>.<number>.new`.
fn owner_of(file: &OsStr, name: &OsStr) -> Option<u32> {
    let (file, name) = (file.to_str()?, name.to_str()?);
    let (pid, rest) = name.strip_prefix(file)?.strip_prefix('.')?.split_once('.')?;
    let number = rest.strip_suffix(".new")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(pid) && is_number(number) { pid.parse().ok() } else { None }
}

/// A load that runs while the server responds.
#[derive(Debug)]
pub struct Loading {
    said: Receiver<Result<Option<Loaded>, SaveError>>,
}

impl Loading {
    /// Starts to load `path` into `cache` on a thread. The thread calls `wake` repeatedly while it
    /// waits for sleeping cores to see what it stored; `wake` makes each core run one turn of its
    /// event loop. It also calls `wake` at the end, for the supervisor.
    pub fn start(
        cache: Cache,
        path: PathBuf,
        now: Seconds,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Loading> {
        let (say, said) = sync_channel(1);
        thread::Builder::new().name("larder-load".to_owned()).spawn(move || {
            let loaded = load(&cache, &path, now, PATIENCE, &wake);
            // The receiver may be gone.
            let _ = say.send(loaded);
            wake();
        })?;
        Ok(Loading { said })
    }

    /// The result, once. `Ok(None)`: there was no file, as on a first start. `None` while the load
    /// runs, and after the result was returned. After an error, the entries loaded before it stay
    /// in the cache and are valid.
    pub fn finished(&mut self) -> Option<Result<Option<Loaded>, SaveError>> {
        self.said.try_recv().ok()
    }
}

fn load(
    cache: &Cache,
    path: &Path,
    now: Seconds,
    patience: Duration,
    wake: &impl Fn(),
) -> Result<Option<Loaded>, SaveError> {
    let mut tries = 0;
    loop {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        tries += 1;
        let mut paced = Paced { file, cache, patience, wake };
        match cache.load_from(&mut paced, now) {
            // A chunk was larger than the distance that this cache allows between inserts and
            // readers. The stored entries stay, and the readers see them before the next try.
            Err(SaveError::Cache(Error::Stalled { .. } | Error::Starved)) if tries < TRIES => {
                paced.wait()?;
            }
            result => return result.map(Some),
        }
    }
}

/// Reads a file no faster than the cache's readers follow.
struct Paced<'a, W> {
    file: File,
    cache: &'a Cache,
    patience: Duration,
    wake: &'a W,
}

impl<W: Fn()> Paced<'_, W> {
    /// Waits until no reader is behind by more than what was stored since this call began. Then
    /// each reader has seen everything stored before the call.
    fn wait(&self) -> io::Result<()> {
        let stats = || self.cache.stats().map_err(io::Error::other);
        let (start, first) = (Instant::now(), stats()?.log_position);
        loop {
            let stats = stats()?;
            let behind = stats.readers.iter().filter_map(|reader| reader.behind).max().unwrap_or(0);
            if behind <= stats.log_position - first {
                return Ok(());
            }
            if start.elapsed() >= self.patience {
                let text =
                    "a core has not looked at the cache for long, so loading stopped; is it stuck?";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            (self.wake)();
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl<W: Fn()> Read for Paced<'_, W> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.wait()?;
        self.file.read(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder::Ttl;
    use std::collections::BTreeSet;
    use std::process::Command;

    const NOW: Seconds = Seconds(100);

    fn cache() -> Cache {
        Cache::builder().budget(8 << 20).readers_max(2).build().unwrap()
    }

    /// A cache with `entries` entries of about 100 bytes, all of one `generation`.
    fn filled(entries: u32, generation: u8) -> Cache {
        let cache = cache();
        let mut writer = cache.writer();
        for number in 0..entries {
            let value = [generation; 100];
            writer.insert(&number.to_be_bytes(), &value, Ttl::seconds(60), NOW).unwrap();
        }
        writer.flush().unwrap();
        cache
    }

    /// The generations of a cache's entries, and the number of entries.
    fn content(cache: &Cache) -> (BTreeSet<u8>, usize) {
        let generations: Vec<u8> = cache.iter(NOW).map(|entry| entry.value()[0]).collect();
        (generations.iter().copied().collect(), generations.len())
    }

    fn wait<R>(mut poll: impl FnMut() -> Option<R>) -> R {
        let start = Instant::now();
        loop {
            if let Some(result) = poll() {
                return result;
            }
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A save on the timer can be loaded while a core reads. Loading without a file, as on a first
    /// start, is no error.
    #[test]
    fn a_cache_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let mut snapshots = Snapshots::new(filled(20_000, 1), path.clone(), Some(1000), 50);
        assert_eq!((snapshots.wait_ms(50), snapshots.is_due(1049)), (Some(1000), false));
        assert!(snapshots.is_due(1050) && !snapshots.is_due(1051));
        assert!(snapshots.start(NOW, || {}));
        assert!(!snapshots.start(NOW, || {}), "invariant 1");
        let saved = wait(|| snapshots.finished()).unwrap();
        assert_eq!((saved.entries, saved.bytes), (20_000, path.metadata().unwrap().len()));
        assert!(!snapshots.is_saving());

        let empty = cache();
        let (mut reader, ends) = (empty.reader().unwrap(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    reader.sync();
                    thread::sleep(Duration::from_micros(100));
                }
            });
            let mut loading = Loading::start(empty.clone(), path.clone(), NOW, || {}).unwrap();
            let loaded = wait(|| loading.finished());
            ends.store(true, Ordering::Relaxed);
            assert_eq!(loaded.unwrap().unwrap().entries, 20_000);
            assert!(loading.finished().is_none());
        });
        assert_eq!(content(&empty), (BTreeSet::from([1]), 20_000));
        let mut first = Loading::start(cache(), folder.path().join("none"), NOW, || {}).unwrap();
        assert!(wait(|| first.finished()).unwrap().is_none());
    }

    /// A core that never reads the cache ends the load with an error that says so. The service
    /// continues.
    #[test]
    fn a_core_that_is_stuck() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        filled(20_000, 1).save(&path, NOW).unwrap();
        let empty = cache();
        let _stuck = empty.reader().unwrap();
        let woken = std::cell::Cell::new(0);
        let wake = || woken.set(woken.get() + 1);
        let error = load(&empty, &path, NOW, Duration::from_millis(20), &wake).unwrap_err();
        assert!(error.to_string().contains("is it stuck?"), "{error}");
        assert!(woken.get() > 0);
    }

    /// A failed save is reported once, with what to do. After a success, the next failure is
    /// reported again.
    /// Invariant 2.
    #[test]
    fn failures_are_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("cache");
        let mut snapshots = Snapshots::new(filled(10, 1), path.clone(), None, 0);
        let mut save = || {
            assert!(snapshots.start(NOW, || {}));
            wait(|| {
                let said = snapshots.finished();
                snapshots.running.is_none().then_some(said)
            })
        };
        let error = save().unwrap().unwrap_err();
        assert!(error.contains("answers go on: name a file in a directory"), "{error}");
        assert_eq!(save(), None);
        fs::create_dir(folder.path().join("missing")).unwrap();
        assert_eq!(save().unwrap().unwrap().entries, 10);
        fs::remove_dir_all(folder.path().join("missing")).unwrap();
        assert!(save().unwrap().is_err());
        let full = explain(&path, &io::Error::from(io::ErrorKind::StorageFull).into());
        assert!(full.contains("make room on that disk"), "{full}");
    }

    /// Temporary files of ended processes are removed. Those of running processes, and other files,
    /// stay. None is loaded.
    #[test]
    fn leftovers_are_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let (gone, ours) = (gone.id(), std::process::id());
        let stays = [
            format!("cache.{ours}.0.new"),
            format!("cache.{gone}.0.old"),
            format!("cache.{gone}.x.new"),
            format!("other.{gone}.0.new"),
            format!("cache.{gone}.new"),
        ];
        for name in stays.iter().chain([&format!("cache.{gone}.17.new")]) {
            fs::write(folder.path().join(name), b"half").unwrap();
        }
        assert!(load(&cache(), &path, NOW, PATIENCE, &|| {}).unwrap().is_none());
        assert_eq!(clear_leftovers(&path).unwrap(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), stays.len());
        assert!(clear_leftovers(&folder.path().join("none").join("cache")).is_err());
    }

    /// A file that was truncated, or changed anywhere, gives an error. Only entries that were
    /// saved, or none, are loaded.
    #[test]
    fn damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        filled(5_000, 1).save(&path, NOW).unwrap();
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 50).chain([whole.len() - 1]) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            for bytes in [&whole[..at], &changed] {
                fs::write(&path, bytes).unwrap();
                let other = cache();
                let result = load(&other, &path, NOW, PATIENCE, &|| {});
                assert!(matches!(result, Err(SaveError::Foreign(_) | SaveError::Damaged(_))));
                assert!(content(&other).0.iter().all(|generation| *generation == 1));
            }
        }
    }

    /// Kills the process when dropped, also when a test fails.
    struct Killed(std::process::Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// A process killed repeatedly during a save leaves one of the two whole files.
    /// Invariant 2.
    #[test]
    fn killed_in_a_save() {
        const CHILD: &str = "LARDER_TEST_SNAPSHOT";
        if let Some(path) = std::env::var_os(CHILD) {
            let caches = [filled(30_000, 1), filled(30_000, 2)];
            loop {
                for cache in &caches {
                    cache.save(&path, NOW).unwrap();
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        for round in 0..6u64 {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "snapshot::tests::killed_in_a_save"]).env(CHILD, &path);
            let child = Killed(child.stdout(std::process::Stdio::null()).spawn().unwrap());
            wait(|| path.exists().then_some(()));
            thread::sleep(Duration::from_millis(3 * round));
            drop(child);
            let other = cache();
            let loaded = load(&other, &path, NOW, PATIENCE, &|| {}).unwrap().unwrap();
            let (generations, count) = content(&other);
            assert_eq!((loaded.entries, generations.len(), count), (30_000, 1, 30_000));
            fs::remove_file(&path).unwrap();
            clear_leftovers(&path).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}
