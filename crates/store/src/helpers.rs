//! Threads that work on closed segments: the compressor and the one that runs hooks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use crate::catalog::{Catalog, Content, Hook};
use crate::compress::Compressor;
use crate::growing::Shared;
use crate::hook::Hooks;
use crate::options::Options;

/// Time between two looks at what is left to do.
const POLL: Duration = Duration::from_millis(1);

/// The threads that the options ask for.
#[derive(Debug)]
pub(crate) struct Helpers {
    compressor: Option<JoinHandle<()>>,
    hooks: Option<JoinHandle<()>>,
}

impl Helpers {
    pub fn start(
        shared: &Arc<Shared>,
        options: &Options,
        disk_writer: &Thread,
    ) -> io::Result<Helpers> {
        let thread = |name: &str| thread::Builder::new().name(name.into());
        let compressor = options.compress.then(|| {
            let compressor = Compressor::new(Arc::clone(shared), options, disk_writer.clone());
            thread("compress").spawn(move || compressor.run())
        });
        let hooks = options.hook.clone().map(|hook| {
            let hooks = Hooks::new(Arc::clone(shared), options, hook);
            thread("hook").spawn(move || hooks.run())
        });
        let helpers = Helpers { compressor: compressor.transpose()?, hooks: hooks.transpose()? };
        let threads = helpers.all().map(|thread| thread.thread().clone());
        shared.helpers.lock().unwrap_or_else(|poison| poison.into_inner()).extend(threads);
        Ok(helpers)
    }

    fn all(&self) -> impl Iterator<Item = &JoinHandle<()>> {
        self.compressor.iter().chain(&self.hooks)
    }

    /// A closed segment is not in its final file, or its hook has not run. That ends: what fails is
    /// not tried forever.
    fn have_work(&self, catalog: &Catalog) -> bool {
        let is_running = |thread: &Option<JoinHandle<()>>| {
            thread.as_ref().is_some_and(|thread| !thread.is_finished())
        };
        let (compresses, has_hook) = (is_running(&self.compressor), is_running(&self.hooks));
        let found = catalog.first_from(0, |segment| match &segment.file {
            // Without a file of its own it could not be closed.
            None => matches!(segment.content, Content::Memory(_)),
            Some(_) => {
                let is_hooked = matches!(segment.hook, Hook::Done | Hook::Failed);
                compresses && !segment.is_final || has_hook && !is_hooked
            }
        });
        found.is_some()
    }

    /// Waits until closed segments have their final form, and their hooks have run.
    pub fn finish_work(&self, catalog: &Catalog, disk_writer: Option<&JoinHandle<()>>) {
        while let Some(disk_writer) = disk_writer.filter(|thread| !thread.is_finished())
            && self.have_work(catalog)
        {
            disk_writer.thread().unpark();
            thread::sleep(POLL);
        }
    }

    /// Ends them.
    pub fn end(&mut self, shared: &Shared) {
        shared.helpers_end.store(true, Ordering::Release);
        shared.wake_helpers();
        // A panic of theirs was reported, and concerns no other thread.
        for thread in self.compressor.take().into_iter().chain(self.hooks.take()) {
            let _ = thread.join();
        }
    }
}
