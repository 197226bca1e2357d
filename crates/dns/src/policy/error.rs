//! What keeps a policy from being made, and what was passed over while it was.

use std::fmt;
use std::io;

/// Lines that were passed over and are told in full; all are counted.
const TOLD_MAX: usize = 5;

/// Why a policy was not made. Whoever reloads keeps the policy before.
#[derive(Debug)]
#[non_exhaustive]
pub enum PolicyError {
    /// A file could not be read. Look at its path and permissions.
    Read {
        /// As it was named.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A file is larger than any we take. Split or shorten it.
    TooLarge {
        /// As it was named.
        file: String,
        /// The limit, octets.
        bytes_max: u64,
    },
    /// Names and records of one kind take more than 4 GiB. Use fewer or smaller files.
    Full {
        /// The file or setting that did not fit any more.
        file: String,
    },
    /// A line of a file that the operator writes makes no sense. It says how to write it.
    Line {
        /// As it was named.
        file: String,
        /// From 1.
        number: u32,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A setting makes no sense. It says how to write it.
    Setting {
        /// As it was written.
        setting: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl PolicyError {
    pub(super) fn setting(setting: &str, problem: impl fmt::Display) -> PolicyError {
        PolicyError::Setting { setting: setting.into(), problem: problem.to_string() }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Read { file, source } => {
                write!(f, "{file}: cannot be read: {source}")
            }
            PolicyError::TooLarge { file, bytes_max } => {
                write!(f, "{file}: larger than {bytes_max} octets; split or shorten it")
            }
            PolicyError::Full { file } => {
                write!(f, "{file}: more than 4 GiB of names; use fewer or smaller files")
            }
            PolicyError::Line { file, number, problem } => {
                write!(f, "{file}:{number}: {problem}")
            }
            PolicyError::Setting { setting, problem } => {
                write!(f, "in the setting {setting:?}: {problem}")
            }
        }
    }
}

impl std::error::Error for PolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PolicyError::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// What came of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Its number among files of its kind, from 0: that of [`Source`](super::Source).
    pub number: u16,
    /// Names or records taken.
    pub taken: u64,
    /// Names that add nothing, since they or a name above them were listed before.
    pub covered: u64,
    /// Lines passed over because they make no sense.
    pub skipped: u64,
    /// The first few of these: number of the line, from 1, and what is wrong.
    pub told: Vec<(u32, String)>,
}

impl Loaded {
    pub(super) fn skip(&mut self, line: u32, problem: impl fmt::Display) {
        self.skipped += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push((line, problem.to_string()));
        }
    }
}
