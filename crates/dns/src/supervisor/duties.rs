//! What the server is asked for while it runs, and what that takes: figures, snapshots, reloads, files begun anew.
//!
//! ```text
//! loading   the snapshot of the run before: nothing is saved until that is over, or that one would be lost
//! saving    now and then, and when somebody asks
//! last      when the cores have ended; cut short where a signal forced the end
//! ```

use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use larder::{Cache, Seconds};

use super::Common;
use crate::bridge::Running;
use crate::ctl::{Actions, Answer, Fields};
use crate::metrics::{Gauge, cache_gauges, gauge_fields, write_gauges};
use crate::reload::Reloaded;
use crate::snapshot::{Loading, Snapshots};
use larder_serve::crew::wake;
use larder_serve::figures::write_build_info;
use larder_serve::writer::Writer;

/// What clients of the control socket may ask for.
pub(super) struct Duties {
    pub common: Common,
    /// What is served beside the cores.
    pub beside: Option<Box<dyn Running>>,
    pub snapshots: Option<Snapshots>,
    pub loading: Option<Loading>,
    pub snapshot_path: Option<PathBuf>,
    pub is_stop_asked: bool,
    pub is_last_save_begun: bool,
}

impl Duties {
    pub fn now_ms(&self) -> u64 {
        self.common.clock.now().us / 1_000
    }

    pub fn seconds(&self) -> Seconds {
        Seconds(self.common.clock.now().wall_s)
    }

    /// Has files begun anew, after a rotation.
    pub fn reopen(&self) {
        self.common.writers.iter().for_each(Writer::reopen);
    }

    pub fn wakes(&self) -> impl FnOnce() + Send + 'static {
        let own = Arc::clone(&self.common.waker);
        move || wake(&own)
    }

    /// Tells how the load ended, if it did.
    pub fn look_at_loading(&mut self, tell: &mut dyn FnMut(&str)) {
        let Some(result) = self.loading.as_mut().and_then(Loading::finished) else { return };
        self.loading = None;
        let path = self.snapshot_path.clone().unwrap_or_default();
        match result {
            Ok(None) => {}
            Ok(Some(loaded)) => {
                tell(&format!("{} answers came back from {}", loaded.entries, path.display()));
            }
            Err(error) => tell(&format!(
                "snapshot {}: {error}; what was read before is used, the rest is found anew",
                path.display()
            )),
        }
    }

    /// Saves for the last time. True when that is over, or where there is nothing to save.
    pub fn last_save(&mut self, tell: &mut dyn FnMut(&str)) -> bool {
        let (now, wake) = (self.seconds(), self.wakes());
        let Some(snapshots) = &mut self.snapshots else { return true };
        if self.loading.is_some() {
            tell("the snapshot was not loaded to its end, and stays as it is");
            return true;
        }
        if !self.is_last_save_begun {
            // What a save that still runs has to say is said by this one.
            let _ = snapshots.finished();
            self.is_last_save_begun = snapshots.start(now, wake);
            if self.is_last_save_begun || snapshots.is_saving() {
                return false;
            }
            tell("no thread can be had to save the cache; the older snapshot is as it was");
            return true;
        }
        match snapshots.finished() {
            Some(Ok(saved)) => {
                tell(&format!("{} answers were saved in {} ms", saved.entries, saved.took_ms));
                true
            }
            Some(Err(text)) => {
                tell(&text);
                true
            }
            None => !snapshots.is_saving(),
        }
    }

    /// Figures that are not counted by cores.
    fn gauges(&self) -> Vec<Gauge> {
        // Statistics fail only for a cache that is broken, which its users are told of.
        let mut gauges =
            self.common.cache.stats().map_or_else(|_| Vec::new(), |it| cache_gauges(&it));
        let mut add = |name, help, value| gauges.push(Gauge { name, help, label: None, value });
        let up_s = self.common.clock.now().us as f64 / 1e6;
        add("uptime_seconds", "Time since the start", up_s);
        let counts = || self.common.writers.iter().map(|writer| (writer.name(), writer.counts()));
        let of = |name: &str| Some(("of", name.to_owned()));
        gauges.extend(counts().map(|(name, (written, _))| Gauge {
            name: "records_written_total",
            help: "Records of dnstap and lines of the query log that were written",
            label: of(name),
            value: written as f64,
        }));
        gauges.extend(counts().map(|(name, (_, lost))| Gauge {
            name: "records_lost_total",
            help: "Records of dnstap and lines of the query log that could not be written",
            label: of(name),
            value: lost as f64,
        }));
        gauges.extend(self.common.published.upstream_gauges());
        gauges.extend(self.beside.iter().flat_map(|beside| beside.gauges()));
        let answerers = self.common.answerers.iter();
        gauges.extend(by_name(answerers.flat_map(|answerer| answerer.gauges()).collect()));
        gauges
    }

    /// All of it for Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        write_build_info(&mut text);
        self.common.published.sum().write_text(&mut text);
        write_gauges(&mut text, &self.gauges());
        text
    }
}

/// Gauges of one name, one after the other.
fn by_name(mut gauges: Vec<Gauge>) -> Vec<Gauge> {
    gauges.sort_by_key(|gauge| gauge.name);
    gauges
}

impl Actions for Duties {
    fn cache(&self) -> &Cache {
        &self.common.cache
    }

    fn now(&self) -> Seconds {
        self.seconds()
    }

    fn stats(&mut self) -> Fields {
        let mut fields = self.common.published.sum().fields();
        fields.extend(gauge_fields(&self.gauges()));
        fields
    }

    fn snapshot(&mut self) -> Answer {
        match &self.snapshots {
            None => {
                let text = "there is no file to save to; start larder dns with --snapshot FILE";
                Answer::Now(Err(text.to_owned()))
            }
            Some(_) if self.loading.is_some() => {
                let text = "the last snapshot is being loaded; ask again when it is";
                Answer::Now(Err(text.to_owned()))
            }
            Some(snapshots) => snapshots.answer(self.seconds()),
        }
    }

    fn reload(&mut self) -> Answer {
        self.reopen();
        let reload = self.common.reload.clone();
        Answer::Later(Box::new(move |_| {
            let (said, heard) = mpsc::channel();
            let told = Box::new(move |outcome: &Result<Reloaded, String>| {
                // The client may be gone by then.
                let _ = said.send(outcome.clone());
            });
            reload.start(told).map_err(|error| error.to_string())?;
            let ended = "the server ended meanwhile";
            let Reloaded { changes, policy } = heard.recv().map_err(|_| ended.to_owned())??;
            Ok(Fields::from_iter([
                ("changed".to_owned(), changes.changed.into()),
                ("needs_restart".to_owned(), changes.needs_restart.into()),
                ("policy".to_owned(), policy.to_string().into()),
            ]))
        }))
    }

    fn stop(&mut self) -> Answer {
        self.is_stop_asked = true;
        Answer::done()
    }
}
