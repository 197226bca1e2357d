//! Settings that are read again while a program runs: every layer, compared with what is in force.
//!
//! A row of the table says whether a running program can change the setting ([`Setting::is_live`]). Whoever reloads is told of
//! each row that differs: that it changed, or that it needs a restart.

use std::sync::{Mutex, PoisonError};

use larder_serve::changes::Changes;
use larder_settings::exit::Failure;
use larder_settings::layers::Resolved;
use larder_settings::table::Setting;

/// Reads all layers of a command's settings again.
pub type Again = Box<dyn Fn() -> Result<Resolved, Failure> + Send + Sync>;

/// The settings of a running program.
pub struct Reloading {
    /// Those of the start: what cannot change is still as it was then.
    start: Resolved,
    /// Those that were applied last, if not those of the start.
    applied: Mutex<Option<Resolved>>,
    again: Again,
}

impl Reloading {
    /// The program starts with these settings.
    pub fn new(start: Resolved, again: Again) -> Reloading {
        Reloading { start, applied: Mutex::new(None), again }
    }

    /// What the settings say by now, and how that differs. They are in force when [`Reloading::apply`] is told so. The error
    /// says what to do.
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

    /// These settings are in force from now on, as far as they can be.
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
        PROGRAM.asked(["larder", "dns"]).expect("no flags").settings_with(text)
    }

    /// Each row that differs is named as what it is: once as changed, and as needing a restart until it is as at the start
    /// again. What cannot be read or was not applied changes nothing.
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
            Ok::<_, String>(changes.to_string())
        };
        let expect = |what, is_applied, line: &str| {
            assert_eq!(read(what, is_applied), Ok(line.to_owned()), "{what}");
        };
        expect("cache = '32MiB'", true, "nothing changed");
        let both = "cache = '64MiB'\nblock_answer = 'zero'";
        expect(both, false, "changed block-answer; cache needs a restart");
        expect(both, true, "changed block-answer; cache needs a restart");
        expect(both, true, "nothing changed; cache needs a restart");
        assert!(read("block_anwser = 'zero'", true).unwrap_err().contains("did you mean"));
        expect(both, true, "nothing changed; cache needs a restart");
        expect("cache = '32MiB'", true, "changed block-answer");
    }
}
