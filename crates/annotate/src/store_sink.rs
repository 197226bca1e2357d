//! `-w DIR --store`: the packets of each batch, and what their flows are called, on their way to the packet store.
//!
//! What the rings of an interface gave is a run of blocks already, and goes to the store as it is. Records of files are
//! written as such blocks first: the store knows one form.
//!
//! Invariant: a packet has the number that the log gives it, also where the store drops it.
//!
//! Cost: a look at the head of each packet of a live batch; nothing of it is copied here.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use larder_store::serve::{self, Server};
use larder_store::{Batch, FlowEvent, Interface, Options, Store};
use larder_wire::capture::write;

use crate::pipeline::Work;
use crate::worker::Output as Made;
use crate::{Error, Progress};

/// How long packets of files wait for a disk that does nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Feeds the store.
pub struct StoreSink {
    store: Store,
    progress: Arc<Progress>,
    /// Batches hold blocks of the store's own interfaces.
    is_live: bool,
    /// Number in the store of an interface of a file: its link type, for all that matters.
    interfaces: HashMap<u16, u32>,
    blocks: Vec<u8>,
    offsets: Vec<u32>,
    events: Vec<FlowEvent>,
}

/// The link types that files have.
const LINK_TYPES: [u16; 8] = [1, 0, 12, 101, 108, 113, 228, 276];

impl StoreSink {
    /// A store that takes batches of `interfaces`; none: of files.
    pub fn open(
        options: &Options,
        interfaces: &[Interface],
        progress: &Arc<Progress>,
    ) -> Result<StoreSink, Error> {
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
        let failed = |error| Error::Options(format!("-w {}: {error}", options.directory.display()));
        let store = Store::open(options.clone(), &interfaces).map_err(failed)?;
        let numbers = interfaces.iter().map(|interface| interface.link_type).zip(0..);
        let store_sink = StoreSink {
            store,
            progress: Arc::clone(progress),
            is_live,
            interfaces: numbers.collect(),
            blocks: Vec::new(),
            offsets: Vec::new(),
            events: Vec::new(),
        };
        store_sink.tell();
        Ok(store_sink)
    }

    /// Says what the store has to say: what was found at the start, and when the disk refuses packets.
    fn tell(&self) {
        self.store.counts().news().into_iter().for_each(|line| self.progress.say(line));
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Serves what is kept over HTTP.
    pub fn serve(&self, options: &serve::Options) -> Result<Server, Error> {
        let failed = |error: io::Error| Error::Options(format!("--serve: {error}"));
        Server::start(options, Arc::clone(self.store.catalog())).map_err(failed)
    }

    /// Keeps one batch.
    pub fn batch(&mut self, work: &Work, outputs: &mut [Made]) -> Result<(), Error> {
        let StoreSink { blocks, offsets, events, .. } = self;
        blocks.clear();
        offsets.clear();
        events.clear();
        outputs.iter_mut().for_each(|output| events.append(&mut output.flow_events));
        let mut lent: &[u8] = &[];
        if let Some(batch) = &work.batch
            && let Some(reader) = &work.decoded.reader_before
        {
            let bytes: &[u8] = &batch.bytes;
            let (start, end) = (work.decoded.start, work.decoded.end.min(bytes.len()));
            let records = reader.clone().records(bytes, start..batch.limit, batch.at_end);
            let sound = records.filter_map(|(offset, record)| Some((offset, record.ok()?)));
            for (offset, record) in sound.take(work.decoded.packets as usize) {
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
            // What comes of files waits for the disk; a disk that stands costs what it costs a network.
            self.store.wait_for_room(lent.len() as u64, PATIENCE);
        }
        let taken = self.store.append(&batch).map_err(|error| Error::Output {
            what: "the packet store".to_owned(),
            why: error.to_string(),
        });
        self.tell();
        taken
    }

    /// Closes the store.
    pub fn finish(self) -> Result<(), Error> {
        self.store.finish().map_err(|error| Error::Output {
            what: "the packet store".to_owned(),
            why: error.to_string(),
        })
    }
}
