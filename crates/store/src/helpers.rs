//! Threads that work on closed segments: the compressor and the one that runs hooks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use larder_io::cores;

use crate::catalog::{Catalog, Content, Hook, Segment};
use crate::compress::Compressor;
use crate::growing::Shared;
use crate::hook::Hooks;
use crate::options::Options;

/// Time between two looks at what is left to do.
const POLL: Duration = Duration::from_millis(1);

/// Time after which the catalog is looked at again, if nothing wakes the thread.
const LOOK: Duration = Duration::from_secs(1);

/// Takes one ready segment after the other until the store ends.
fn run<T>(
    shared: &Shared,
    mut of: T,
    next: impl Fn(&mut T) -> Option<Segment>,
    take: impl Fn(&mut T, &Segment),
) {
    // Without it the thread competes with others for the cores.
    let _ = cores::lower_priority();
    while !shared.helpers_must_end() {
        match next(&mut of) {
            Some(segment) => take(&mut of, &segment),
            None => thread::park_timeout(LOOK),
        }
    }
}

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
            let shared = Arc::clone(shared);
            let compressor = Compressor::new(Arc::clone(&shared), options, disk_writer.clone());
            thread("compress")
                .spawn(move || run(&shared, compressor, Compressor::next, Compressor::take))
        });
        let hooks = options.hook.clone().map(|hook| {
            let shared = Arc::clone(shared);
            let hooks = Hooks::new(Arc::clone(&shared), options, hook);
            thread("hook").spawn(move || run(&shared, hooks, Hooks::next, Hooks::take))
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
