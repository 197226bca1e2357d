//! Messages of IPFIX: packed, numbered, and written to a file or sent to a collector.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use larder_io::output::Output;
use larder_serve::log::Log;

use super::{HEADER_BYTES, MESSAGE_BYTES_MAX, Sets, TEMPLATES_EVERY};
use crate::Error;

const VERSION: u16 = 10;
/// Export time and set header of a row.
const ROW_HEADER_BYTES: usize = 4 + 4;

/// Where messages go.
pub trait Target {
    /// Takes a whole message.
    ///
    /// # Errors
    /// It cannot be written, and the run cannot go on.
    fn send(&mut self, message: &[u8]) -> Result<(), Error>;

    /// Passes on all that was taken.
    ///
    /// # Errors
    /// As [`Target::send`].
    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl Target for Output {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        Ok(self.write_all(message)?)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(Output::flush(self)?)
    }
}

impl Target for Vec<u8> {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.extend_from_slice(message);
        Ok(())
    }
}

/// A collector that gets each message as a UDP datagram (RFC 7011, section 10.3). What it does not take is
/// lost, counted and logged: a run does not end because its collector does.
#[derive(Debug)]
pub struct Collector {
    socket: UdpSocket,
    address: SocketAddr,
    sent: u64,
    refused: u64,
    log: Log,
}

impl Collector {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// There is no route to the address, or no socket.
    pub fn connect(address: SocketAddr, log: &Log) -> Result<Collector, Error> {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(address)?;
            Ok(socket)
        });
        let socket = socket.map_err(|error| {
            Error::Options(format!(
                "--ipfix-to {address}: {error}; check the address and the routes"
            ))
        })?;
        Ok(Collector { socket, address, sent: 0, refused: 0, log: log.of("ipfix") })
    }

    /// Logs what was sent and what was refused.
    pub fn finish(self) {
        let Collector { address, sent, refused, log, .. } = self;
        let line = if refused == 0 { log.debug("sent") } else { log.warn("sent, in part") };
        line.text("collector", address).number("messages", sent).number("refused", refused);
    }
}

impl Target for Collector {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        // An error may be that of the message before, which nobody received: then this one was not sent.
        for _ in 0..2 {
            let Err(error) = self.socket.send(message) else {
                self.sent += 1;
                return Ok(());
            };
            self.refused += 1;
            if self.refused == 1 {
                let line = self.log.warn("message refused").text("collector", self.address);
                line.text("error", error)
                    .text("hint", "start the collector, or correct --ipfix-to");
            }
        }
        Ok(())
    }
}

/// The messages of a file or stream. See the module.
#[derive(Debug)]
pub struct Writer<T> {
    to: T,
    /// The message being packed, its header without contents.
    message: Vec<u8>,
    /// Records of that message, and of all before.
    records: u32,
    sequence: u32,
    /// Export time of that message, seconds.
    exported_s: u32,
    /// Messages since the last with templates.
    since_templates: u32,
    own: Sets,
}

impl<T: Target> Writer<T> {
    /// Writes nothing yet.
    pub fn new(to: T) -> Writer<T> {
        Writer {
            to,
            message: vec![0; HEADER_BYTES],
            records: 0,
            sequence: 0,
            exported_s: 0,
            since_templates: TEMPLATES_EVERY,
            own: Sets::default(),
        }
    }

    /// Accepts whole rows.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push_rows(&mut self, mut rows: &[u8]) -> Result<(), Error> {
        while let Some((head, _)) = rows.split_first_chunk::<ROW_HEADER_BYTES>() {
            let bytes = usize::from(u16::from_be_bytes([head[6], head[7]]));
            let (row, rest) = rows.split_at((4 + bytes).min(rows.len()));
            rows = rest;
            if self.records > 0 && self.message.len() + bytes > MESSAGE_BYTES_MAX {
                self.send()?;
            }
            let exported_s = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            self.exported_s = self.exported_s.max(exported_s);
            self.message.extend_from_slice(&row[4..]);
            self.records += 1;
        }
        Ok(())
    }

    /// Writes the records that were accepted: a live log waits for no more.
    ///
    /// # Errors
    /// As [`Writer::push_rows`].
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.records > 0 {
            self.send()?;
        }
        self.to.flush()
    }

    /// Writes what is left. A file without records has templates.
    ///
    /// # Errors
    /// As [`Writer::push_rows`].
    pub fn finish(mut self) -> Result<T, Error> {
        if self.records > 0 || self.sequence == 0 {
            self.send()?;
        }
        Ok(self.to)
    }

    fn send(&mut self) -> Result<(), Error> {
        if self.since_templates >= TEMPLATES_EVERY {
            self.since_templates = 0;
            for (message, records) in self.own.described() {
                self.write(message)?;
                self.sequence = self.sequence.wrapping_add(records);
            }
        }
        self.since_templates += 1;
        if self.records > 0 {
            let message = std::mem::replace(&mut self.message, vec![0; HEADER_BYTES]);
            self.write(message)?;
            self.sequence = self.sequence.wrapping_add(self.records);
            self.records = 0;
        }
        self.exported_s = 0;
        Ok(())
    }

    /// Completes the header of a message, and writes it.
    fn write(&mut self, mut message: Vec<u8>) -> Result<(), Error> {
        let bytes = message.len() as u16;
        message[..2].copy_from_slice(&VERSION.to_be_bytes());
        message[2..4].copy_from_slice(&bytes.to_be_bytes());
        message[4..8].copy_from_slice(&self.exported_s.to_be_bytes());
        message[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        self.to.send(&message)
    }
}
