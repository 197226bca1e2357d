//! Whether the reader of standard output has closed it: `larder find --follow -w -` would otherwise see that
//! only with the next packet, which may never come.

use std::io;

use larder_io::epoll::{Events, Interest, Poller};

/// Watches standard output.
pub struct Reader {
    /// `None`: packets are written elsewhere, or to a file, which has no reader.
    poller: Option<Poller>,
    events: Events,
}

impl Reader {
    /// `is_pipe`: packets are written to standard output.
    pub fn new(is_pipe: bool) -> Reader {
        let watch = || {
            let poller = Poller::new().ok()?;
            // The end of a reader is reported without an interest.
            poller.add(&io::stdout(), 0, Interest::NONE).ok()?;
            Some(poller)
        };
        Reader { poller: is_pipe.then(watch).flatten(), events: Events::new(1) }
    }

    /// True once there is no reader any more.
    pub fn has_gone(&mut self) -> bool {
        let Some(poller) = &self.poller else { return false };
        poller.wait(&mut self.events, Some(0)).is_ok() && self.events.iter().next().is_some()
    }
}
