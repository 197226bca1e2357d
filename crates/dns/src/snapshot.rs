//! The cache in a file: saved on a timer and at the end, loaded in the background at the start.
//!
//! ```text
//! start   clear_leftovers, load (a thread; cores answer meanwhile)
//! runs    is_due -> start -> finished says how it went; `larder ctl snapshot` likewise
//! end     start once more, when a save that runs has finished
//! ```
//!
//! What makes it safe is the engine's: a file is written beside its place and renamed over it, so that whoever is
//! killed, whenever, leaves the old file or the new one; and each part of a file is checked before any of it is
//! loaded. What a killed process leaves beside the file has another name, is never loaded, and is removed at the
//! next start.
//!
//! Invariants
//! 1. One save at a time. Who asks for a second one meanwhile is told so.
//! 2. A save that fails changes no file, and the next one is tried at its time. The same error again is not
//!    news: [`Snapshots::finished`] gives it once, until a save succeeds.
//!
//! The supervisor and the cores wait for nothing here.
//!
//! Loading is inserts, and those need readers to see what was stored: the engine refuses to run ahead of them without
//! end. So between chunks the loader waits until every reader has come near, and wakes cores that sleep.
//!
//! Cost: to save, a walk over the cache with short lock holds, some seconds for millions of entries on a thread of
//! its own; the walk is shared with dumps (one at a time).

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

use crate::ctl::{Answer, Fields};

/// How long the loader waits for cores to see what it stored, a chunk.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a load is begun anew that readers were in the way of.
const TRIES: u32 = 5;

/// How a save went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// Entries in the file.
    pub entries: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// How long it took, milliseconds.
    pub took_ms: u64,
}

/// Saves of one cache to one file.
#[derive(Debug)]
pub struct Snapshots {
    cache: Cache,
    path: PathBuf,
    period_ms: Option<u64>,
    due_ms: Option<u64>,
    /// True while somebody saves.
    saving: Arc<AtomicBool>,
    /// Where the save on its thread will say how it went.
    running: Option<Receiver<Result<Saved, SaveError>>>,
    /// The text of the last failure that was told, since the last success.
    told: Option<String>,
}

/// The right to save; given back when dropped, also by a panic.
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
    /// Saves of `cache` to `path`, each `period_ms` from `now_ms` on; `None`: only when asked.
    pub fn new(cache: Cache, path: PathBuf, period_ms: Option<u64>, now_ms: u64) -> Snapshots {
        let period_ms = period_ms.map(|ms| ms.max(1));
        let due_ms = period_ms.map(|ms| now_ms + ms);
        let saving = Arc::default();
        Snapshots { cache, path, period_ms, due_ms, saving, running: None, told: None }
    }

    /// Milliseconds until [`Snapshots::is_due`]; `None` for never.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.due_ms.map(|due| due.saturating_sub(now_ms))
    }

    /// Whether it is time for [`Snapshots::start`]; the next time is set.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = self.due_ms.is_some_and(|due| now_ms >= due);
        if is_due {
            self.due_ms = self.period_ms.map(|ms| now_ms + ms);
        }
        is_due
    }

    /// Starts a save on a thread, which calls `wake` at its end. False, and nothing done, while one runs or where no
    /// thread can be had.
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
            // Nobody may be there to hear it.
            let _ = say.send(saved);
            wake();
        });
        self.running = thread.ok().map(|_| said);
        self.running.is_some()
    }

    /// How a save that [`Snapshots::start`] began has ended, once; `None` while it runs, where none was begun, and
    /// for a failure that was told before. The text of a failure says what to do.
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
                self.told = None;
                Some(Ok(saved))
            }
            Err(error) => {
                let text = self.explain(&error);
                let is_news = self.told.as_deref() != Some(&text);
                self.told = Some(text.clone());
                is_news.then_some(Err(text))
            }
        }
    }

    /// As the answer to `larder ctl snapshot`.
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

    /// Whether somebody saves: a thread of [`Snapshots::start`] of which [`Snapshots::finished`] has not told, or a
    /// client.
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

/// Removes what killed processes left beside the file: their halves of a save, which nobody will ever load. How
/// many. Those of processes that live are let be.
pub fn clear_leftovers(path: &Path) -> io::Result<usize> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut removed = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_dead = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
        let pid = path.file_name().and_then(|file| owner_of(file, &entry.file_name()));
        if pid.is_some_and(is_dead) {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The process that `name` belongs to, if it is a half of a save of `file`: `<file>.<process>.<number>.new`.
fn owner_of(file: &OsStr, name: &OsStr) -> Option<u32> {
    let (file, name) = (file.to_str()?, name.to_str()?);
    let (pid, rest) = name.strip_prefix(file)?.strip_prefix('.')?.split_once('.')?;
    let number = rest.strip_suffix(".new")?;
    let is_number =
        |text: &str| !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    if is_number(pid) && is_number(number) { pid.parse().ok() } else { None }
}

/// A load that goes on beside the service.
#[derive(Debug)]
pub struct Loading {
    said: Receiver<Result<Option<Loaded>, SaveError>>,
}

impl Loading {
    /// Starts to load `path` into `cache` on a thread. `wake` is called, often, while cores sleep that should see what was stored:
    /// it makes each turn its loop once. It is called at the end too, for the supervisor.
    pub fn start(
        cache: Cache,
        path: PathBuf,
        now: Seconds,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Loading> {
        let (say, said) = sync_channel(1);
        thread::Builder::new().name("larder-load".to_owned()).spawn(move || {
            let loaded = load(&cache, &path, now, PATIENCE, &wake);
            // Nobody may be there to hear it.
            let _ = say.send(loaded);
            wake();
        })?;
        Ok(Loading { said })
    }

    /// How it ended, once; `Ok(None)`: there was no file, which is a first start. `None` while it runs, and after that.
    /// After an error what was loaded before it is there and good, and the service goes on.
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
            // A chunk was more than this cache can run ahead of its readers. What was stored stays, and by now they
            // have seen it.
            Err(SaveError::Cache(Error::Stalled { .. } | Error::Starved)) if tries < TRIES => {
                paced.wait()?;
            }
            result => return result.map(Some),
        }
    }
}

/// A file that is read no faster than readers follow.
struct Paced<'a, W> {
    file: File,
    cache: &'a Cache,
    patience: Duration,
    wake: &'a W,
}

impl<W: Fn()> Paced<'_, W> {
    /// Waits until each reader is behind by no more than what was stored since this call began: it
    /// has seen all that was stored before.
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

    /// A cache with so many entries of a hundred bytes or so, all of one `generation`.
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

    /// Generations of a cache's entries, and how many there are.
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

    /// What was saved on the timer and at the end is loaded beside a core that answers; a first start has nothing to
    /// load, and is no error.
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

    /// A core that never looks at the cache ends the load with an error that says so, and not the service.
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

    /// A save that fails says what to do, once; the next success makes the next failure news again.
    /// Invariant 2.
    #[test]
    fn failures_are_told_once() {
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

    /// Halves of saves of processes that are gone are removed; those of living ones, and files of others, stay. None is loaded.
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

    /// A file that was cut short or changed anywhere loads a beginning of what was saved and says where it stops, or
    /// nothing: never anything else.
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

    /// Killed when dropped, also when a test fails.
    struct Killed(std::process::Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// A process that is killed while it saves, again and again, leaves the one whole file or the other.
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
