//! Errors of a policy, and reports of skipped lines.

use std::fmt;
use std::io;

/// Skipped lines that are reported in full; all are counted.
const PROBLEMS_MAX: usize = 5;

/// Why a policy could not be built. A reload keeps the previous policy.
#[derive(Debug)]
#[non_exhaustive]
pub enum PolicyError {
    /// A file could not be read. Look at its path and permissions.
    Read {
        /// Its name in the settings.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file is larger than the limit. Split or shorten it.
    TooLarge {
        /// Its name in the settings.
        file: String,
        /// The limit, bytes.
        bytes_max: u64,
    },
    /// Names and records of one kind take more than 4 GiB. Use fewer or smaller files.
    Full {
        /// The file or setting that did not fit.
        file: String,
    },
    /// A line in a file that the operator writes is wrong. The error says how to write it.
    Line {
        /// Its name in the settings.
        file: String,
        /// Counted from 1.
        number: u32,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A setting is wrong. The error says how to write it.
    Setting {
        /// Its text.
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
                write!(f, "{file}: larger than {bytes_max} bytes; split or shorten it")
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

/// The result of reading a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Its number among files of its kind, from 0: that of [`Source`](super::Source).
    pub number: u16,
    /// Names or records read.
    pub taken: u64,
    /// Names that add nothing, since they or a name above them were listed before.
    pub covered: u64,
    /// Skipped lines that could not be understood.
    pub skipped: u64,
    /// The first of these: number of the line, from 1, and the problem.
    pub problems: Vec<(u32, String)>,
}

impl Loaded {
    pub(super) fn skip(&mut self, line: u32, problem: impl fmt::Display) {
        self.skipped += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push((line, problem.to_string()));
        }
    }
}
