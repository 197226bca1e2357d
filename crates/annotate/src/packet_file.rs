//! A capture file (pcapng) that a run writes: packets of any link types, in the order of the input.

use std::collections::HashMap;

use larder_io::output::Output;
use larder_wire::capture::{Record, write};

use crate::Error;

/// See the module. Blocks are collected in `blocks` until [`PacketFile::write`].
pub(crate) struct PacketFile {
    out: Output,
    /// Index of the interface for a link type.
    interfaces: HashMap<u16, u32>,
    /// Blocks that are not written yet.
    pub blocks: Vec<u8>,
}

impl PacketFile {
    /// Begins the file.
    pub fn new(mut out: Output) -> Result<PacketFile, Error> {
        let mut blocks = Vec::new();
        write::section(&mut blocks, concat!("larder ", env!("CARGO_PKG_VERSION")));
        out.write_all(&blocks)?;
        blocks.clear();
        Ok(PacketFile { out, interfaces: HashMap::new(), blocks })
    }

    /// The interface of a link type, which is written when it is new.
    fn interface(&mut self, link_type: u16) -> u32 {
        let next = self.interfaces.len() as u32;
        let interface = *self.interfaces.entry(link_type).or_insert(next);
        if interface == next {
            write::interface(&mut self.blocks, link_type, 0);
        }
        interface
    }

    /// Adds a frame of our own.
    pub fn frame(&mut self, link_type: u16, time_ns: i64, frame: &[u8]) {
        let interface = self.interface(link_type);
        write::packet(&mut self.blocks, interface, time_ns, frame, frame.len() as u32);
    }

    /// Adds a packet, with the beginning of its frame, and with its number if it has one.
    pub fn packet(&mut self, record: &Record<'_>, frame: &[u8], number: Option<u64>) {
        let interface = self.interface(record.link_type);
        let (time_ns, length) = (record.ts_ns, record.original_len);
        match number {
            None => write::packet(&mut self.blocks, interface, time_ns, frame, length),
            Some(number) => {
                write::numbered_packet(&mut self.blocks, interface, time_ns, frame, length, number);
            }
        }
    }

    /// Writes the blocks.
    pub fn write(&mut self) -> Result<(), Error> {
        self.out.write_all(&self.blocks)?;
        self.blocks.clear();
        Ok(())
    }

    /// Writes the rest.
    pub fn finish(mut self) -> Result<(), Error> {
        self.write()?;
        Ok(self.out.finish()?)
    }
}
