//! Programs that connect to our Unix socket and write into it, as servers do with dnstap.
//!
//! ```text
//! Socket::bind -> accept(): the next sender                            to read one to its end
//!              -> hear(): a thread that accepts, a thread per sender   to continue meanwhile
//! ```
//!
//! A sender may be silent for long, so every wait checks after [`PATIENCE`] whether the run is
//! over, by a function of the caller. The socket's path is deleted with the socket. A path that is
//! left from a run that was killed is replaced; one that a program listens on is not.
//!
//! Bounds: [`SENDERS_MAX`] senders at a time; further ones are disconnected and reported.

use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Most senders that are connected at one time.
pub const SENDERS_MAX: usize = 16;

/// How often a wait looks whether it is over.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// Returns whether the run is over. Several threads call it.
pub type IsOver = Arc<dyn Fn() -> bool + Send + Sync>;

/// A listening socket; its path is deleted with it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens at a path. The error states what to do next.
    pub fn bind(path: PathBuf) -> Result<Socket, String> {
        // If no program accepts connections, the socket is left over from a run that was killed.
        if UnixStream::connect(&path).is_ok() {
            return Err("another program listens here; name another socket".to_owned());
        }
        let is_socket = |path: &Path| {
            std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        };
        if is_socket(&path) {
            std::fs::remove_file(&path)
                .map_err(|error| format!("{error}; remove the old socket"))?;
        }
        let listener = UnixListener::bind(&path)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| format!("{error}; name a socket in a folder of yours"))?;
        Ok(Socket { listener, path })
    }

    /// The path as text, for messages.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The next sender; `None` when the run is over.
    pub fn accept(&self, is_over: &IsOver) -> Option<Patient> {
        while !is_over() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Ok(patient) = Patient::new(stream, is_over) {
                        return Some(patient);
                    }
                }
                // There is no sender, or none can be accepted now (for example, no free
                // descriptors).
                Err(_) => thread::sleep(PATIENCE / 4),
            }
        }
        None
    }

    /// Starts a thread for each sender that runs `receive` until the run is over. `refuse` is called
    /// for each sender over the limit. The returned thread deletes the socket's path at its end;
    /// the senders' threads end when `receive` does.
    pub fn receive(
        self,
        is_over: IsOver,
        receive: impl Fn(Patient) + Send + Sync + 'static,
        refuse: impl Fn() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (receive, senders) = (Arc::new(receive), Arc::new(AtomicUsize::new(0)));
        let accept = move || {
            while let Some(stream) = self.accept(&is_over) {
                // Relaxed: a count and nothing else.
                if senders.fetch_add(1, Ordering::Relaxed) >= SENDERS_MAX {
                    senders.fetch_sub(1, Ordering::Relaxed);
                    refuse();
                    continue;
                }
                let (receive, own) = (Arc::clone(&receive), Arc::clone(&senders));
                let started = thread::Builder::new().spawn(move || {
                    receive(stream);
                    own.fetch_sub(1, Ordering::Relaxed);
                });
                if started.is_err() {
                    senders.fetch_sub(1, Ordering::Relaxed);
                    refuse();
                }
            }
        };
        thread::Builder::new().name("larder-senders".to_owned()).spawn(accept)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A connection that may be silent for long; once it is over, a read gives the end.
pub struct Patient {
    stream: UnixStream,
    is_over: IsOver,
}

impl Patient {
    fn new(stream: UnixStream, is_over: &IsOver) -> io::Result<Patient> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Patient { stream, is_over: Arc::clone(is_over) })
    }
}

impl Read for Patient {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if (self.is_over)() {
                        return Ok(0);
                    }
                }
                result => return result,
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;

    /// Several senders are read at a time, one over the limit is disconnected, and the path is
    /// deleted at the end.
    #[test]
    fn senders_are_received() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap");
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let is_over: IsOver = Arc::new(move || flag.load(Ordering::Relaxed));
        let (said, received) = channel();
        let refused = said.clone();
        let socket = Socket::bind(path.clone()).unwrap();
        let receive = move |mut sender: Patient| {
            let mut byte = [0];
            while sender.read(&mut byte).is_ok_and(|count| count > 0) {
                said.send(byte[0]).unwrap();
            }
        };
        let acceptor =
            socket.receive(is_over, receive, move || refused.send(b'!').unwrap()).unwrap();
        assert!(Socket::bind(path.clone()).unwrap_err().contains("another program"));
        // That attempt was a sender too; others can be accepted only after its thread has ended.
        let mut senders = Vec::new();
        while senders.len() < SENDERS_MAX {
            let mut sender = UnixStream::connect(&path).unwrap();
            // A refused sender may be closed by now.
            let _ = sender.write_all(b"x");
            if received.recv().unwrap() == b'x' {
                senders.push(sender);
            }
        }
        let _one_too_many = UnixStream::connect(&path).unwrap();
        assert_eq!(received.recv().unwrap(), b'!');
        over.store(true, Ordering::Relaxed);
        acceptor.join().unwrap();
        assert!(!path.exists());
        // No wait for the silent senders: the last thread drops its end of the channel.
        assert!(received.recv().is_err());
    }

    /// A socket without a listener is replaced; a file is not.
    #[test]
    fn leftovers_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Socket::bind(path.clone()).unwrap());
        assert!(!path.exists());
        std::fs::write(&path, b"mine").unwrap();
        assert!(Socket::bind(path.clone()).unwrap_err().contains("in a folder of yours"));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
