//! The server: sockets, loops on their threads, and a life with an end.
//!
//! ```text
//! bind -> memory -> loops -> serving -> draining (SIGINT, SIGTERM: no new connections, what was begun is finished)
//!                                    -> ended (all done; or DRAIN_MS are over; or a signal forces the end)
//! ```

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use larder_io::clock::Clock;
use larder_io::epoll::Waker;
use larder_io::reactor::Batch;
use larder_io::signals::Signals;
use larder_io::tcp::{ListenOptions, Sharing, listen};
use larder_serve::changes::Changes;
use larder_serve::lifecycle::{Lifecycle, Stage};
use larder_serve::log::Log;
use larder_serve::reload::{Reload, Reloaded, with_part};
use larder_serve::server_page::Begun;
use larder_serve::start::{self, ServeError, system};
use larder_serve::supervisor::{Ended, Supervisor};
use larder_serve::worker_threads::WorkerThreads;

use crate::common::{Common, seconds};
use crate::counts::{Counts, Shared};
use crate::descriptors;
use crate::driver::{Driver, Parts};
use crate::loop_channel::LoopChannels;
use crate::options::Options;
use crate::page::{self, Figures, HttpShown};
use crate::reload::{ConfigWatch, Fresh, Source};
use crate::snapshot::{self, Loaded};
use crate::store::Store;
use crate::supervisor::Duties;
use crate::tls_bridge::{self, Acceptor};

pub use crate::supervisor::DRAIN_MS;

/// Loops at most: the bodies of objects know as many.
pub const LOOPS_MAX: usize = larder_mem::object::LOOPS_MAX as usize;

/// How long the last lines of the log may take to be written.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// A server that has its addresses and its memory, and does not serve yet.
struct Ready {
    addresses: Vec<SocketAddr>,
    drivers: Vec<(Driver, Batch)>,
    /// What came of the snapshot.
    loaded: Loaded,
    page: Option<Begun>,
    common: Common,
}

impl Ready {
    /// Takes addresses and memory.
    fn new(options: &Options, log: &Log) -> Result<Ready, ServeError> {
        let loops = options.loops.clamp(1, LOOPS_MAX);
        let mut options = Options { loops, ..options.clone() };
        let wanted = options.clients_max;
        let division = descriptors::divide(descriptors::raise(), &options);
        options.clients_max = division.clients_max;
        division.log(wanted, log);
        let options = Arc::new(options);
        let listeners = bind(&options)?;
        let addresses: Vec<SocketAddr> =
            listeners[0].iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let channels = LoopChannels::new(loops);
        let store = Store::open(options.memory, loops, Arc::new(channels.clone()));
        let store =
            Arc::new(store.map_err(|error| ServeError::Refused(format!("{error}; see --memory")))?);
        let clock = Clock::start();
        // Before loops have faces, which would be in its way.
        let loaded = match &options.operation.snapshot {
            Some(path) => snapshot::load(&store, path, seconds(&clock)),
            None => Loaded::Nothing,
        };
        let acceptor = Acceptor::new(channels.clone(), loops);
        let tls_bridge = options.tls_bridge.as_ref().map(|it| it.start(acceptor)).transpose();
        let config_watch = ConfigWatch::start((*options).clone(), log);
        let config_watch = Arc::new(config_watch.map_err(system("a thread for the access log"))?);
        let (page, notes) = options.operation.page.as_ref().map(page::begin).unzip();
        let common = Common {
            notes,
            tls_bridge: tls_bridge.map_err(ServeError::Refused)?,
            store,
            shared: Arc::new(Shared::new(loops)),
            config_watch,
            connections: Arc::default(),
            channels,
            clock,
            lifecycle: Arc::new(Lifecycle::new()),
            log: log.clone(),
            waker: Arc::new(Waker::new().map_err(system("eventfd"))?),
            options,
        };
        let mut drivers = Vec::new();
        for (number, listeners) in listeners.into_iter().enumerate() {
            let parts = Parts { number: number as u32, listeners, common: common.clone() };
            drivers.push(Driver::new(parts).map_err(system("a loop"))?);
        }
        Ok(Ready { addresses, drivers, loaded, page, common })
    }

    /// Begins to serve.
    fn start(self) -> Result<Running, ServeError> {
        let Ready { addresses, drivers, common, .. } = self;
        let io = match drivers[0].0.io() {
            (backend, Some(why)) => format!("{backend} ({why})"),
            (backend, None) => backend.to_string(),
        };
        let channels = common.channels.clone();
        let wake_all = Arc::new(move || channels.wake_all());
        let mut workers =
            WorkerThreads::new("http", wake_all, common.lifecycle.clone(), common.waker.clone());
        for (mut driver, mut batch) in drivers {
            workers.start(move || driver.run(&mut batch)).map_err(system("a thread"))?;
        }
        Ok(Running { addresses, io, workers, common })
    }
}

/// A server that serves, on threads of its own. Dropped, it ends at once.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<SocketAddr>,
    io: String,
    workers: WorkerThreads,
    common: Common,
}

impl Running {
    /// Takes addresses and memory, and begins to serve. Nobody is there to operate it but the caller.
    pub fn start(options: &Options) -> Result<Running, ServeError> {
        Ready::new(options, &Log::default())?.start()
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How it waits for the kernel.
    pub fn io(&self) -> &str {
        &self.io
    }

    /// What was counted, as of a tenth of a second ago or a turn of the loops, whichever is longer.
    pub fn counts(&self) -> Counts {
        self.common.shared.counts.sum()
    }

    /// All numbers.
    pub fn figures(&self) -> Figures {
        Figures(self.common.clone())
    }

    /// What is kept.
    pub fn store(&self) -> &Store {
        &self.common.store
    }

    /// The settings in force.
    pub fn options(&self) -> Arc<Options> {
        self.common.config_watch.current().options
    }

    /// Other settings, as far as they may change while it serves ([`crate::reload`]).
    pub fn replace(&self, options: Options) -> io::Result<()> {
        self.common.config_watch.replace(options)?;
        if let Some(tls_bridge) = self.tls_bridge() {
            tls_bridge.follow(&self.options().client_limits());
        }
        self.workers.wake();
        Ok(())
    }

    /// Makes each loop turn, though nothing has come for it.
    pub fn wake(&self) {
        self.workers.wake();
    }

    /// Who makes connections that are encrypted.
    pub fn tls_bridge(&self) -> Option<&dyn tls_bridge::Running> {
        self.common.tls_bridge.as_deref()
    }

    /// Takes nothing new, and finishes what was begun.
    pub fn drain(&self) {
        if let Some(tls_bridge) = self.tls_bridge() {
            tls_bridge.drain();
        }
        self.workers.advance(Stage::Drains);
    }

    /// Ends now: what was begun is broken off.
    pub fn hurry(&self) {
        self.workers.advance(Stage::Ends);
    }

    /// True when all loops have ended.
    pub fn has_ended(&self) -> bool {
        self.workers.ended() == self.workers.count()
    }

    /// Ends now, and says what was counted in all. An error is why a loop could not go on.
    pub fn stop(mut self) -> io::Result<Counts> {
        self.hurry();
        self.workers.join()?;
        if let Some(writer) = self.common.config_watch.take_writer() {
            writer.finish_within(LOG_PATIENCE);
        }
        Ok(self.counts())
    }
}

/// How the server ended.
pub type Served = start::Served<Counts>;

/// Serves until told to end. Asked to read its settings anew (SIGHUP, `larder ctl reload`) it asks `source` for them.
pub fn serve(options: &Options, source: Option<Source>, log: &Log) -> Result<Served, ServeError> {
    // Before any thread starts, so that all of them leave signals to this one.
    let signals = Signals::block().map_err(system("signals"))?;
    let ready = Ready::new(options, log)?;
    let common = ready.common.clone();
    let places = common.options.operation.places();
    let supervisor = Supervisor::open(&places, common.waker.clone(), signals, log)
        .map_err(ServeError::refused)?;
    let mut ready = ready;
    let (loaded, page) = (ready.loaded.clone(), ready.page.take());
    let saves = !matches!(loaded, Loaded::Foreign(_));
    let listen = ready.addresses.iter().map(SocketAddr::to_string).collect();
    let page = page
        .map(|page| page.start(HttpShown { figures: Figures(common.clone()), listen }, log))
        .transpose();
    let page = page.map_err(|error| ServeError::refused(format!("--ui: {error}")))?;
    // Before loops serve: from then on somebody may purge what is in the file.
    take_over(&common, loaded);
    let mut running = ready.start()?;
    let text: Vec<String> = running.addresses().iter().map(SocketAddr::to_string).collect();
    let line = log.info("listening").text("address", text.join(","));
    line.number("event_loops", running.workers.count()).text("io", running.io());
    for (transport, address) in running.tls_bridge().map(|it| it.listeners()).unwrap_or_default() {
        log.info("listening").text("address", address).text("transport", transport);
    }
    let mut duties = Duties::new(common.clone(), reload(source, &common), saves);
    let loops = running.workers.count();
    let plural = if loops == 1 { "" } else { "s" };
    let status = format!("serves with {loops} loop{plural}");
    let ended = supervisor.run(&mut running.workers, &mut duties, &status);
    drop(page);
    let ended = ended.map_err(system("serving"))?;
    Ok(Served { counts: running.counts(), was_hurried: ended != Ended::Well })
}

/// Reads all that an operator may change while the server serves: certificates, settings, the file
/// of the log. Without a source settings stay as they were at the start.
fn reload(source: Option<Source>, common: &Common) -> Reload {
    let Common { config_watch, tls_bridge, channels, .. } = common.clone();
    Reload::new(move || {
        // Each is read whatever comes of the others.
        let encrypted = tls_bridge.as_ref().map(|it| it.reload());
        let changes = source.as_ref().map_or(Ok(Changes::default()), |source| {
            let Fresh { options, changes } = source()?;
            config_watch
                .replace(options)
                .map_err(|error| format!("a thread for the log: {error}"))?;
            if let Some(tls_bridge) = &tls_bridge {
                tls_bridge.follow(&config_watch.current().options.client_limits());
            }
            channels.wake_all();
            Ok(changes)
        });
        // After a rotation: what is in the place of its file by now.
        config_watch.reopen_log();
        let outcome = changes.map(|changes| Reloaded { changes, parts: Vec::new() });
        with_part(outcome, "encrypted", encrypted)
    })
}

/// Logs what came of the snapshot. It is removed: what is purged from now on must not come back with it.
fn take_over(common: &Common, loaded: Loaded) {
    let Some(path) = &common.options.operation.snapshot else { return };
    let log = &common.log;
    let warn = |event, error: &dyn fmt::Display, hint| {
        let line = log.warn(event).text("file", path.display()).text("error", error);
        line.text("hint", hint);
    };
    match loaded {
        Loaded::Nothing => {}
        Loaded::Records(count) => {
            log.info("snapshot loaded").number("entries", count).text("file", path.display());
        }
        Loaded::Broken(error) => {
            let hint = "the origin is asked for what was not read";
            warn("snapshot damaged, loaded in part", &error, hint);
        }
        Loaded::Foreign(error) => {
            let hint = "it stays as it is, and nothing is saved: name another file";
            return warn("snapshot not readable", &error, hint);
        }
    }
    if let Err(error) = snapshot::try_out(path) {
        let hint = "create its directory, or name another file";
        warn("snapshot not writable", &error, hint);
    }
    if let Err(error) = snapshot::remove(path) {
        let hint = "remove it: the next start would load what is purged";
        warn("snapshot not removed", &error, hint);
    }
}

/// Listeners of each loop at each address. The first of an address must find it free, unless the operator allows sharing.
fn bind(options: &Options) -> Result<Vec<Vec<TcpListener>>, ServeError> {
    let mut all: Vec<Vec<TcpListener>> = (0..options.loops).map(|_| Vec::new()).collect();
    for &address in &options.listen {
        // The kernel's choice of a port is for all loops.
        let mut address = address;
        for (at, listeners) in all.iter_mut().enumerate() {
            let sharing = Sharing::of(at, options.loops, options.reuse_port);
            let how = ListenOptions { sharing, ..ListenOptions::default() };
            let failed = |error| ServeError::Listen(address, error);
            let listener = listen(address, &how).map_err(failed)?;
            address = listener.local_addr().map_err(system("a socket's address"))?;
            listeners.push(listener);
        }
    }
    Ok(all)
}
