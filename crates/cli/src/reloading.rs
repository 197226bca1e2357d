//! Settings that are read again while a program runs: all layers, compared with the settings in force.
//!
//! A row of the table states whether a reload changes the setting ([`Setting::is_live`]). A reload lists each
//! row that differs, as changed or as needing a restart.

use std::sync::{Mutex, PoisonError};

use larder_serve::changes::Changes;
use larder_settings::exit::Failure;
use larder_settings::layers::Resolved;
use larder_settings::table::Setting;

/// Reads all layers of a command's settings again.
pub type Again = Box<dyn Fn() -> Result<Resolved, Failure> + Send + Sync>;

/// The settings of a running program.
pub struct Reloading {
    /// Those of the start. Settings that need a restart still have these values.
    start: Resolved,
    /// Those that were applied last; `None` before the first reload.
    applied: Mutex<Option<Resolved>>,
    again: Again,
}

impl Reloading {
    /// The program starts with these settings.
    pub fn new(start: Resolved, again: Again) -> Reloading {
        Reloading { start, applied: Mutex::new(None), again }
    }

    /// The settings as they are now, and the changes. They are in force after [`Reloading::apply`]. The error
    /// states what to do.
    pub fn read(&self) -> Result<(Resolved, Changes), String> {
        let fresh = (self.again)().map_err(|failure| failure.message)?;
        let applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let before = applied.as_ref().unwrap_or(&self.start);
        let names = |other: &Resolved, is_live| {
            let rows = fresh.differing(other).filter(|row: &&Setting| row.is_live == is_live);
            rows.map(|row| row.name.to_owned()).collect::<Vec<_>>()
        };
        let changes =
            Changes { changed: names(before, true), needs_restart: names(&self.start, false) };
        drop(applied);
        Ok((fresh, changes))
    }

    /// From now on these settings are in force, as far as a reload can change them.
    pub fn apply(&self, settings: Resolved) {
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::settings::PROGRAM;

    fn resolved(text: &str) -> Result<Resolved, Failure> {
        PROGRAM.parse(["larder", "dns"]).expect("no flags").settings_with(text)
    }

    /// A row that differs is listed: once as changed, or as needing a restart until it has its first value
    /// again. A file that cannot be read, and settings that were not applied, change nothing.
    #[test]
    fn each_row_is_named() {
        let text = Arc::new(Mutex::new(String::new()));
        let start = resolved("[dns]\ncache = '32MiB'\n").expect("sound");
        let now = text.clone();
        let again = move || resolved(&now.lock().expect("whole"));
        let reloading = Reloading::new(start, Box::new(again));
        let read = |what: &str, is_applied: bool| {
            *text.lock().expect("whole") = format!("[dns]\n{what}\n");
            let (settings, changes) = reloading.read()?;
            if is_applied {
                reloading.apply(settings);
            }
            Ok::<_, String>((changes.changed.join(","), changes.needs_restart.join(",")))
        };
        let expect = |what, is_applied, changed: &str, needs_restart: &str| {
            let expected = Ok((changed.to_owned(), needs_restart.to_owned()));
            assert_eq!(read(what, is_applied), expected, "{what}");
        };
        expect("cache = '32MiB'", true, "", "");
        let both = "cache = '64MiB'\nblock_answer = 'zero'";
        expect(both, false, "block-answer", "cache");
        expect(both, true, "block-answer", "cache");
        expect(both, true, "", "cache");
        assert!(read("block_anwser = 'zero'", true).unwrap_err().contains("did you mean"));
        expect(both, true, "", "cache");
        expect("cache = '32MiB'", true, "block-answer", "");
    }
}
