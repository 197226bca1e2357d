//! The server: sockets, loops on their threads, and a life with an end.
//!
//! ```text
//! bind -> memory -> loops -> serving -> draining (SIGINT, SIGTERM: no new connections, what was begun is finished)
//!                                    -> ended (all done; or DRAIN_MS are over; or asked twice)
//! ```

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use larder_io::clock::Clock;
use larder_io::event::{Events, Interest, Poller, Signal, Signals, Waker};
use larder_io::stage::{Stage, Stages};
use larder_io::tcp::{ListenOptions, listen};

use crate::counts::{Counts, Shared};
use crate::driver::{Driver, Parts};
use crate::mail::Mail;
use crate::options::Options;
use crate::store::{OpenError, Store};

/// How long answers that were begun may take when the server is asked to end, milliseconds.
pub const DRAIN_MS: u64 = 10_000;

/// Loops at most: the bodies of objects know as many.
pub const LOOPS_MAX: usize = larder::mem::object::LOOPS_MAX as usize;

/// What there is to tell while serving.
#[derive(Debug)]
pub enum News<'a> {
    /// It serves.
    Started {
        /// Where.
        addresses: &'a [SocketAddr],
        /// How it waits for the kernel.
        io: String,
    },
    /// A line for the operator.
    Line(&'a str),
}

/// How it went.
#[derive(Debug)]
pub struct Served {
    /// What was counted.
    pub counts: Counts,
    /// It was asked twice to end, or could not end in time.
    pub was_hurried: bool,
}

/// Why it does not serve.
#[derive(Debug)]
pub enum ServeError {
    /// An address cannot be had.
    Listen(SocketAddr, io::Error),
    /// There is no memory.
    Memory(OpenError),
    /// What was tried, and the kernel's answer.
    System(&'static str, io::Error),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServeError::Listen(address, error) => {
                let what = match error.kind() {
                    io::ErrorKind::AddrInUse => "; another program has it: choose another port",
                    io::ErrorKind::PermissionDenied => {
                        "; ports below 1024 want CAP_NET_BIND_SERVICE: choose a higher one"
                    }
                    io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
                    _ => "",
                };
                write!(f, "cannot listen at {address}: {error}{what}")
            }
            ServeError::Memory(error) => write!(f, "{error}; see --memory"),
            ServeError::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

fn system(what: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |error| ServeError::System(what, error)
}

/// Says that a thread has ended, also by a panic.
struct Ending {
    ended: Arc<AtomicUsize>,
    waker: Arc<Waker>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Release);
        // It fails for nothing that could be mended here; the supervisor looks around anyway.
        let _ = self.waker.wake();
    }
}

/// A server that serves, on threads of its own. Dropped, it ends at once.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<SocketAddr>,
    io: String,
    threads: Vec<JoinHandle<io::Result<()>>>,
    stages: Arc<Stages>,
    mail: Mail,
    store: Arc<Store>,
    shared: Arc<Shared>,
    ended: Arc<AtomicUsize>,
    /// Wakes who waits for threads to end.
    waker: Arc<Waker>,
}

impl Running {
    /// Takes addresses and memory, and begins to serve.
    pub fn start(options: &Options) -> Result<Running, ServeError> {
        let loops = options.loops.clamp(1, LOOPS_MAX);
        let options = Arc::new(Options { loops, ..options.clone() });
        let listeners = bind(&options)?;
        let addresses: Vec<SocketAddr> =
            listeners[0].iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let mail = Mail::new(loops);
        let store = Store::open(options.memory, loops, Arc::new(mail.clone()));
        let store = Arc::new(store.map_err(ServeError::Memory)?);
        let (shared, stages) = (Arc::new(Shared::new(loops)), Arc::new(Stages::new()));
        let waker = Arc::new(Waker::new().map_err(system("eventfd"))?);
        let clock = Clock::start();
        let mut drivers = Vec::new();
        for (number, listeners) in listeners.into_iter().enumerate() {
            let parts = Parts {
                number: number as u32,
                options: options.clone(),
                store: store.clone(),
                mail: mail.clone(),
                listeners,
                clock,
                shared: shared.clone(),
                stages: stages.clone(),
            };
            drivers.push(Driver::new(parts).map_err(system("a loop"))?);
        }
        let io = match drivers[0].0.io() {
            (backend, Some(why)) => format!("{backend} ({why})"),
            (backend, None) => backend.to_string(),
        };
        let (threads, ended) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
        let mut running =
            Running { addresses, io, threads, stages, mail, store, shared, ended, waker };
        for (number, (mut driver, mut batch)) in drivers.into_iter().enumerate() {
            let ending = Ending { ended: running.ended.clone(), waker: running.waker.clone() };
            let run = move || {
                let _ending = ending;
                driver.run(&mut batch)
            };
            let thread = thread::Builder::new().name(format!("http-{number}")).spawn(run);
            running.threads.push(thread.map_err(system("a thread"))?);
        }
        Ok(running)
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
        self.shared.sum()
    }

    /// What is kept.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Makes each loop turn, though nothing has come for it.
    pub fn wake(&self) {
        self.mail.wake_all();
    }

    /// Takes nothing new, and finishes what was begun.
    pub fn drain(&self) {
        self.go_on(Stage::Drains);
    }

    /// Ends now: what was begun is broken off.
    pub fn hurry(&self) {
        self.go_on(Stage::Ends);
    }

    /// True when all loops have ended.
    pub fn has_ended(&self) -> bool {
        self.ended() == self.threads.len()
    }

    /// Ends now, and says what was counted in all. An error is why a loop could not go on.
    pub fn stop(mut self) -> io::Result<Counts> {
        self.hurry();
        self.join()?;
        Ok(self.shared.sum())
    }

    fn go_on(&self, stage: Stage) {
        self.stages.go_on(stage);
        self.wake();
    }

    /// Loops that have ended.
    fn ended(&self) -> usize {
        self.ended.load(Ordering::Acquire)
    }

    fn join(&mut self) -> io::Result<()> {
        let panicked = |_| Err(io::Error::other("a loop's thread panicked; see above"));
        let results = self.threads.drain(..).map(|it| it.join().unwrap_or_else(panicked));
        results.fold(Ok(()), Result::and)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.hurry();
        // Whoever wants to know how it went calls `stop`.
        let _ = self.join();
    }
}

/// Serves until told to end.
pub fn serve(options: &Options, tell: &mut dyn FnMut(News<'_>)) -> Result<Served, ServeError> {
    // Before any thread starts, so that all of them leave signals to this one.
    let signals = Signals::block().map_err(system("signals"))?;
    let running = Running::start(options)?;
    tell(News::Started { addresses: running.addresses(), io: running.io().to_owned() });
    let was_hurried = watch(&running, &signals, tell).map_err(system("waiting"))?;
    signals.unblock().map_err(system("signals"))?;
    let counts = running.stop().map_err(system("a loop"))?;
    Ok(Served { counts, was_hurried })
}

/// Listeners of each loop at each address.
fn bind(options: &Options) -> Result<Vec<Vec<TcpListener>>, ServeError> {
    let how = ListenOptions { reuse_port: options.loops > 1, ..ListenOptions::default() };
    let mut all: Vec<Vec<TcpListener>> = (0..options.loops).map(|_| Vec::new()).collect();
    for &address in &options.listen {
        // The kernel's choice of a port is for all loops.
        let mut address = address;
        for listeners in &mut all {
            let failed = |error| ServeError::Listen(address, error);
            let listener = listen(address, &how).map_err(failed)?;
            address = listener.local_addr().map_err(system("a socket's address"))?;
            listeners.push(listener);
        }
    }
    Ok(all)
}

/// Watches over loops until all have ended: whether they were hurried.
fn watch(running: &Running, signals: &Signals, tell: &mut dyn FnMut(News<'_>)) -> io::Result<bool> {
    const LOOK_MS: u64 = 1_000;
    let poller = Poller::new()?;
    poller.add(signals, 0, Interest::READ)?;
    poller.add(&*running.waker, 1, Interest::READ)?;
    let (mut events, mut asked, mut was_hurried) = (Events::new(8), None::<Instant>, false);
    while !running.has_ended() {
        poller.wait(&mut events, Some(LOOK_MS))?;
        running.waker.clear()?;
        while let Some(signal) = signals.read()? {
            match (signal, asked) {
                (Signal::HangUp, _) => {}
                (_, None) => {
                    asked = Some(Instant::now());
                    tell(News::Line("ending: answers that were begun are finished"));
                    running.drain();
                }
                (_, Some(_)) => {
                    was_hurried = true;
                    running.hurry();
                }
            }
        }
        let is_late = asked.is_some_and(|at| at.elapsed().as_millis() >= u128::from(DRAIN_MS));
        if is_late && running.stages.get() == Stage::Drains {
            was_hurried = true;
            tell(News::Line("some answers were not finished in time"));
            running.hurry();
        }
        // A loop that ended by an error ends all.
        if running.ended() > 0 && asked.is_none() {
            running.hurry();
        }
    }
    Ok(was_hurried)
}
