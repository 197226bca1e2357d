//! `-w DIR --store`: sends the packets of each batch, and the names of their flows, to the packet
//! store.
//!
//! The rings of an interface give blocks of pcapng, which go to the store unchanged. Records of
//! files are written as such blocks first: the store has one form.
//!
//! Invariant: a packet has the same number as in the log, also if the store drops it.
//!
//! Cost: a look at the header of each packet of a live batch; nothing of it is copied here.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use larder_store::serve::{self, Server};
use larder_store::{Batch, FlowEvent, Interface, Options, Store};
use larder_wire::capture::write;

use crate::Error;
use crate::pipeline::Work;
use crate::worker::Output as Made;

/// How long packets of files wait for a disk that makes no progress.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends batches to the store.
pub struct StoreSink {
    store: Store,
    /// Batches hold blocks of the store's own interfaces.
    is_live: bool,
    /// Number in the store of the interface for a link type of a file.
    interfaces: HashMap<u16, u32>,
    blocks: Vec<u8>,
    offsets: Vec<u32>,
    events: Vec<FlowEvent>,
}

/// The link types that files have.
const LINK_TYPES: [u16; 8] = [1, 0, 12, 101, 108, 113, 228, 276];

impl StoreSink {
    /// A store that takes batches of `interfaces`; none: of files.
    pub fn open(options: &Options, interfaces: &[Interface]) -> Result<StoreSink, Error> {
        let is_live = !interfaces.is_empty();
        let of_files = || {
            let interface = |&link_type| Interface {
                name: format!("link type {link_type}"),
                link_type,
                snap_bytes: 0,
            };
            LINK_TYPES.iter().map(interface).collect()
        };
        let interfaces = if is_live { interfaces.to_vec() } else { of_files() };
        let directory = options.directory.display().to_string();
        let failed = |error| Error::Options(format!("-w {directory}: {error}"));
        // A run over files ends when its work is done; the end of a capture is not delayed.
        let options = Options { finishes_work: !is_live, ..options.clone() };
        let store = Store::open(options, &interfaces).map_err(failed)?;
        let numbers = interfaces.iter().map(|interface| interface.link_type).zip(0..);
        Ok(StoreSink {
            store,
            is_live,
            interfaces: numbers.collect(),
            blocks: Vec::new(),
            offsets: Vec::new(),
            events: Vec::new(),
        })
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Serves the stored packets over HTTP.
    pub fn serve(&self, options: &serve::Options) -> Result<Server, Error> {
        let failed = |error: io::Error| Error::Options(format!("--serve or --pcap-serve: {error}"));
        Server::start(options, Arc::clone(self.store.catalog())).map_err(failed)
    }

    /// Stores one batch.
    pub fn batch(&mut self, work: &Work, outputs: &mut [Made]) -> Result<(), Error> {
        let StoreSink { blocks, offsets, events, .. } = self;
        blocks.clear();
        offsets.clear();
        events.clear();
        outputs.iter_mut().for_each(|output| events.append(&mut output.flow_events));
        let mut lent: &[u8] = &[];
        if let Some(batch) = &work.batch {
            let bytes: &[u8] = &batch.bytes;
            let (start, end) = (work.decoded.start, work.decoded.end.min(bytes.len()));
            for (offset, record) in work.packets() {
                if self.is_live {
                    offsets.push((offset - start) as u32);
                } else {
                    offsets.push(blocks.len() as u32);
                    let interface = self.interfaces.get(&record.link_type).copied().unwrap_or(0);
                    let original_len = record.original_len;
                    write::packet(blocks, interface, record.ts_ns, record.frame, original_len);
                }
            }
            lent = if self.is_live { bytes.get(start..end).unwrap_or_default() } else { blocks };
        }
        let batch = Batch { blocks: lent, offsets, first_packet: work.packets_before + 1, events };
        if !self.is_live {
            // Packets of files wait for the disk. If it makes no progress, they are dropped like
            // packets of a network.
            self.store.wait_for_room(lent.len() as u64, PATIENCE);
        }
        self.store.append(&batch).map_err(|error| Error::Output {
            what: "the packet store".to_owned(),
            why: error.to_string(),
        })
    }

    /// Closes the store.
    pub fn finish(self) -> Result<(), Error> {
        self.store.finish().map_err(|error| Error::Output {
            what: "the packet store".to_owned(),
            why: error.to_string(),
        })
    }
}
