//! Signals by handlers that write to a pair of sockets: for systems without signalfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::flag;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::{SIGNALS, Signal};

/// SIGINT, SIGTERM, SIGHUP and SIGUSR1 as readable events.
///
/// [`Signals::block`] installs handlers in the process. From then on only [`Signals::read`] receives
/// them: Ctrl-C cannot end a process that stops reading.
#[derive(Debug)]
pub struct Signals {
    delivery: Mutex<SignalDelivery<UnixStream, SignalOnly>>,
    /// A copy of the end that is read.
    readable: UnixStream,
    /// The signals have their usual effect again.
    is_over: Arc<AtomicBool>,
}

impl Signals {
    /// Takes the four signals from all threads, and makes them readable.
    pub fn block() -> io::Result<Signals> {
        let (readable, written) = UnixStream::pair()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let numbers = SIGNALS.map(|(number, _)| number);
        let delivery =
            SignalDelivery::with_pipe(readable.try_clone()?, written, SignalOnly, numbers)?;
        for number in numbers {
            flag::register_conditional_default(number, Arc::clone(&is_over))?;
        }
        Ok(Signals { delivery: Mutex::new(delivery), readable, is_over })
    }

    /// The next pending signal, if any. The same signal twice before a read is reported once. Read
    /// until there is none: the descriptor becomes ready for later ones only.
    pub fn read(&self) -> io::Result<Option<Signal>> {
        let mut delivery = self.delivery.lock().unwrap_or_else(PoisonError::into_inner);
        let number = delivery.pending().next();
        let known = number.and_then(|number| SIGNALS.iter().find(|(known, _)| *known == number));
        Ok(known.map(|(_, signal)| *signal))
    }

    /// Gives the signals their usual effect again. Those that were not read are lost.
    pub fn unblock(self) -> io::Result<()> {
        self.is_over.store(true, Ordering::SeqCst);
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner).handle().close();
        Ok(())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
