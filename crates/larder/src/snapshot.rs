//! Saved caches as files.
//!
//! This is the only module of the crate that touches files, and only on request; `save` has the
//! format, over `Read` and `Write`. It is not in the workspace's crate for files: that one must not
//! depend on the engine, and a program that embeds the engine should need no second crate for a
//! warm restart.
//!
//! A file is replaced as a whole or not at all. It is written next to its place under a name of its
//! own, flushed to disk and renamed, and the directory is flushed. So after a crash or a power loss
//! the file is the old one or the new one. A symbolic link is followed, not replaced. Only the
//! owner can read the file (0600), because it has the cache's contents.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::build::Builder;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::codec::{Key, Value};
use crate::map::Map;
use crate::save::{Loaded, SaveError};
use crate::time::Seconds;

impl Cache {
    /// Saves all entries that are live at `now` to a file, replaces an older one, and returns their
    /// number. See [`Cache::save_to`].
    pub fn save(&self, path: impl AsRef<Path>, now: Seconds) -> Result<u64, SaveError> {
        Ok(replace(path.as_ref(), |file| self.save_to(file, now))?)
    }
}

impl Builder {
    /// Builds the cache and loads a saved one into it. [`SaveError::Io`] with `NotFound` is a first
    /// start: use [`Builder::build`] then.
    pub fn load(self, path: impl AsRef<Path>, now: Seconds) -> Result<(Cache, Loaded), SaveError> {
        let mut file = open(path.as_ref())?;
        let cache = self.build()?;
        let loaded = cache.load_from(&mut file, now)?;
        Ok((cache, loaded))
    }
}

impl<K: Key + ?Sized, V: Value> Map<K, V> {
    /// Saves all live entries to a file, replaces an older one, and returns their number. See
    /// [`Cache::save_to`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<u64, SaveError> {
        self.cache().save(path, self.now())
    }

    /// Inserts the saved entries of a map with the same types; bytes that are no `V` are a miss
    /// later. [`SaveError::Io`] with `NotFound` is a first start.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Loaded, SaveError> {
        self.load_from(&mut open(path.as_ref())?)
    }

    /// A new map from a file, as by [`Map::build`] and [`Map::load`].
    pub fn build_from(
        builder: Builder,
        clock: Clock,
        path: impl AsRef<Path>,
    ) -> Result<(Self, Loaded), SaveError> {
        let mut file = open(path.as_ref())?;
        let map = Map::build(builder, clock)?;
        let loaded = map.load_from(&mut file)?;
        Ok((map, loaded))
    }
}

/// Opens a file to load from. Reads are of whole chunks, except for the 12 bytes of each chunk's
/// head, so a buffer would only add a copy.
fn open(path: &Path) -> io::Result<impl Read> {
    File::open(path)
}

/// Replaces a file by the output of `write`.
fn replace<R>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<R>) -> io::Result<R> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let temp_file = TempFile::create(&target)?;
    let mut file = &temp_file.file;
    let written = write(&mut file.try_clone()?)?;
    file.flush()?;
    file.sync_all()?;
    fs::rename(&temp_file.path, &target)?;
    // Without this a power loss could undo the rename. A directory that can't be opened gives no
    // such guarantee.
    if let Some(directory) = directory_of(&target)
        && let Ok(directory) = File::open(directory)
    {
        directory.sync_all()?;
    }
    Ok(written)
}

fn directory_of(path: &Path) -> Option<&Path> {
    path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// A file that is being written. Dropping it deletes the file unless it was renamed.
struct TempFile {
    path: PathBuf,
    file: File,
}

impl TempFile {
    fn create(target: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut name = target
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?
            .to_os_string();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".{}.{number}.new", std::process::id()));
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        Ok(TempFile { path, file })
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // After the rename there is nothing to delete.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Ttl;

    fn files(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// A saved map is loaded by another map: values, long keys, and the remaining lifetimes. No
    /// other file is left in the directory.
    #[test]
    fn a_map_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let builder = || Cache::builder().budget(1 << 20).readers_max(1);
        let clock = Clock::manual(Seconds(50));
        let map: Map<str, u64> = Map::build(builder(), clock.clone()).unwrap();
        let long = "long".repeat(200);
        map.insert("a", 1).unwrap();
        map.insert(&long, 2).unwrap();
        map.insert_ttl("short", 3, Ttl::seconds(10)).unwrap();
        for _ in 0..2 {
            assert_eq!(map.save(&path).unwrap(), 3);
        }
        assert_eq!(files(directory.path()), ["cache"]);
        clock.set(Seconds(59));
        let (other, loaded) =
            Map::<str, u64>::build_from(builder().seed(5), clock.clone(), &path).unwrap();
        assert_eq!(loaded.entries, 3);
        assert_eq!(
            [other.get("a"), other.get(&*long), other.get("short")],
            [Some(1), Some(2), Some(3)]
        );
        clock.set(Seconds(60));
        assert_eq!(other.get("short"), None);
        assert_eq!(other.load(&path).unwrap().expired, 1);
    }

    /// A save that fails half-way leaves the old file unchanged, and no other file. A missing file
    /// is an error that states it.
    #[test]
    fn a_failed_save_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        fs::write(&path, b"old").unwrap();
        let failed: io::Result<()> = replace(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(files(directory.path()), ["cache"]);
        let missing = Cache::builder().budget(1 << 20).load(directory.path().join("x"), Seconds(1));
        let Err(SaveError::Io(error)) = missing else { panic!("there is no such file") };
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(replace(Path::new("/"), |_| Ok(())).is_err());
    }

    /// A symbolic link is followed: its target is replaced. Only the owner can read a saved cache.
    #[cfg(unix)]
    #[test]
    fn a_link_is_followed() {
        use std::os::unix::fs::{MetadataExt, symlink};

        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, b"old").unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    }
}
