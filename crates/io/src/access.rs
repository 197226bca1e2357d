//! File modes: only the user that runs larder may read its files, and one group if the operator
//! names one.
//!
//! This module sets the mode and group of files, whatever the umask is. It makes a file with mode
//! 0600, gives it to its group, and then opens it to that group: no other group can read it in
//! between.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown,
};
use std::path::Path;

/// Access to files and folders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    group: Option<u32>,
}

impl Access {
    /// The user alone: 0600 and 0700.
    pub const PRIVATE: Access = Access { group: None };

    /// The user, and this group may read: 0640 and 0750.
    pub fn shared(group: u32) -> Access {
        Access { group: Some(group) }
    }

    /// The group that may read.
    pub fn group(self) -> Option<u32> {
        self.group
    }

    /// The mode of files.
    pub fn file_mode(self) -> u32 {
        if self.group.is_some() { 0o640 } else { 0o600 }
    }

    /// The mode of folders.
    pub fn folder_mode(self) -> u32 {
        if self.group.is_some() { 0o750 } else { 0o700 }
    }

    /// The mode of a socket's file.
    pub fn socket_mode(self) -> u32 {
        if self.group.is_some() { 0o660 } else { 0o600 }
    }

    /// Creates or empties a file.
    pub fn create(self, path: &Path) -> io::Result<File> {
        self.open(OpenOptions::new().write(true).create(true).truncate(true), path)
    }

    /// Opens a file with `options`, which may create it. Anything but a regular file keeps its
    /// mode, as do paths in `/dev` and `/proc`, which lead to files of other programs.
    pub fn open(self, options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        let file = options.mode(0o600).open(path)?;
        let about = file.metadata()?;
        if about.is_file() && !["/dev", "/proc"].iter().any(|root| path.starts_with(root)) {
            if let Some(group) = self.group.filter(|group| *group != about.gid()) {
                fchown(&file, None, Some(group)).map_err(|error| self.refused(&error))?;
            }
            if about.mode() & 0o7777 != self.file_mode() {
                allowed(file.set_permissions(Permissions::from_mode(self.file_mode())))?;
            }
        }
        Ok(file)
    }

    /// Gives an existing file or folder its mode and group.
    pub fn apply(self, path: &Path) -> io::Result<()> {
        let about = fs::symlink_metadata(path)?;
        let mode = match about.file_type() {
            kind if kind.is_file() => self.file_mode(),
            kind if kind.is_dir() => self.folder_mode(),
            kind if kind.is_symlink() => return Ok(()),
            _ => self.socket_mode(),
        };
        if let Some(group) = self.group.filter(|group| *group != about.gid()) {
            chown(path, None, Some(group)).map_err(|error| self.refused(&error))?;
        }
        if about.mode() & 0o7777 != mode {
            allowed(fs::set_permissions(path, Permissions::from_mode(mode)))?;
        }
        Ok(())
    }

    /// Makes a folder, and the missing ones above it. An existing folder stays unchanged.
    pub fn make_folder(self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        if let Some(above) = path.parent() {
            self.make_folder(above)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made.and_then(|()| self.apply(path)),
        }
    }

    fn refused(self, error: &io::Error) -> io::Error {
        let group = self.group.unwrap_or_default();
        let text = format!(
            "group {group} cannot be set: {error}; run as root or as a member of the group"
        );
        io::Error::new(error.kind(), text)
    }
}

/// A file of another user keeps its mode: only its owner may change it.
fn allowed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

/// The number of a group, by its name or as digits.
pub fn group_id(word: &str) -> io::Result<u32> {
    if let Ok(group) = word.parse() {
        return Ok(group);
    }
    let groups = fs::read_to_string("/etc/group")?;
    let found = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == word).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| {
        let text = format!("there is no group '{word}' in /etc/group; give its number (GID)");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    /// Files and folders get their modes whether they are new, were open to all, or were closed to
    /// their owner. Anything but a plain file, and an existing folder, keeps its own.
    #[test]
    fn modes_are_set() {
        let own = fs::metadata("/proc/self").unwrap().gid();
        let folder = tempfile::tempdir().unwrap();
        for (access, file_mode, folder_mode) in
            [(Access::PRIVATE, 0o600, 0o700), (Access::shared(own), 0o640, 0o750)]
        {
            let deep = folder.path().join(format!("{folder_mode:o}/b"));
            access.make_folder(&deep).unwrap();
            assert_eq!((mode(&deep), mode(deep.parent().unwrap())), (folder_mode, folder_mode));
            let path = deep.join("file");
            for before in [None, Some(0o666), Some(0o400)] {
                if let Some(before) = before {
                    fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
                }
                if before == Some(0o400) {
                    access.apply(&path).unwrap();
                }
                drop(access.create(&path).unwrap());
                assert_eq!(mode(&path), file_mode, "{before:?}");
                assert_eq!(fs::metadata(&path).unwrap().gid(), own);
            }
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        Access::PRIVATE.make_folder(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o755);
        let before = mode(Path::new("/dev/null"));
        drop(Access::PRIVATE.create(Path::new("/dev/null")).unwrap());
        assert_eq!(mode(Path::new("/dev/null")), before);
    }

    /// Groups are known by name and by number.
    #[test]
    fn groups_have_numbers() {
        assert_eq!(group_id("4711").unwrap(), 4711);
        assert_eq!(group_id("root").unwrap(), 0);
        let error = group_id("no-such-group").unwrap_err().to_string();
        assert!(error.contains("GID"), "{error}");
    }
}
