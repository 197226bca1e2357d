//! Reads several captures as one, in order of time.
//!
//! [`Merge`] is a pcapng stream made in memory: an interface for each link type where it first
//! appears, then the packets of all inputs, the earliest next packet first. Packets with equal
//! times follow the order of the inputs; inside one input the order of the file is kept, also where
//! its clock steps back. So code that reads one capture reads many.
//!
//! Inputs may be for names only, and so may the records before a time. Then there is an interface for
//! each link type and [`Purpose`].
//!
//! Damage is counted here, where the file and the offset in it are known. A [`Selection`] is
//! applied here, so that a reader of the stream sees what a filter in the kernel would have passed.
//!
//! Bounds: a mapped file costs 16 MiB of pages; a stream costs a window of its decoder and a buffer
//! of `LOOKAHEAD_BYTES` at most (usually 256 KiB and a record). Of several compressed files, some are
//! decompressed ahead of their turn (`ahead`), 64 MiB each.

mod captures;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use larder_wire::capture::{Capture, HEADER_BYTES, Step, write};
use larder_wire::note::{self, Note};

pub(crate) use self::captures::Captures;
use crate::ahead;
use crate::damage::{self, SourceDamage, SourceDamageKind};
use crate::decode;
use crate::input::{Content, Input, InputError};
use crate::mapped::{Mapped, RELEASE_BYTES};
use crate::reading::{Counted, Reading};
use crate::selection::{Purpose, Selection};

/// Bytes read from a stream at once.
const READ_BYTES: usize = 256 << 10;

/// Bytes of the merged stream made at once.
const OUT_BYTES: usize = 256 << 10;

/// The inputs, and the next record of each.
pub struct Merge {
    heads: Vec<Head>,
    /// Inputs that have a record, by its time, then by their number.
    order: BinaryHeap<Reverse<(i64, usize)>>,
    interfaces: Interfaces,
    out: Vec<u8>,
    /// Bytes of `out` that were read.
    out_start: usize,
    damage: Arc<Mutex<Vec<SourceDamage>>>,
    reading: Arc<Reading>,
    selection: Selection,
    /// An input arrives as it happens: each record is returned at once.
    is_live: bool,
    /// The input whose record was given last, which has not been stepped to its next one.
    given: Option<usize>,
    /// The capture of `larder extract` that has begun and not ended.
    reduced: Option<usize>,
    /// Compressed inputs that no thread decompresses, those first whose first record is earliest.
    packed: VecDeque<usize>,
    /// How many more can be decompressed at once.
    threads_left: usize,
    /// Why there is no more.
    failure: Option<InputError>,
}

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merge").field("inputs", &self.heads.len()).finish_non_exhaustive()
    }
}

/// One input, at its next record.
struct Head {
    name: String,
    bytes: HeadBytes,
    /// Offset of the first of `bytes` in the input.
    base: u64,
    capture: Capture,
    /// Offset in `bytes` at which the reader continues.
    offset: usize,
    next: Option<Next>,
    purpose: Purpose,
    /// The last record that was read is the end note of `larder extract`.
    is_at_end: bool,
    /// It was reported that it overlaps with others.
    overlaps: bool,
}

enum HeadBytes {
    Mapped {
        mapped: Arc<Mapped>,
        released: usize,
    },
    Stream {
        reader: Box<dyn Read + Send>,
        buffer: Vec<u8>,
        ended: bool,
        live: bool,
        unpacking: Unpacking,
    },
}

/// Who decompresses an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unpacking {
    /// It is not compressed.
    Plain,
    /// The merging thread, when it needs more.
    Here,
    /// A thread of its own.
    Ahead,
}

/// The next record of an input.
struct Next {
    ts_ns: i64,
    link_type: u16,
    original_len: u32,
    frame: Range<usize>,
}

impl Merge {
    /// Reads every header and first record. Damage found later is reported to `damage`, and what is read to `reading`.
    /// The stream has the records of `inputs` and of `for_names` that `selection` takes.
    pub fn open(
        inputs: Vec<Input>,
        for_names: Vec<Input>,
        selection: Selection,
        (damage, reading): (Arc<Mutex<Vec<SourceDamage>>>, Arc<Reading>),
    ) -> Result<Merge, InputError> {
        let mut out = Vec::with_capacity(OUT_BYTES);
        write::section(&mut out, "larder");
        let mut merge = Merge {
            heads: Vec::new(),
            order: BinaryHeap::new(),
            interfaces: Interfaces {
                link_types: Vec::new(),
                has_purposes: !for_names.is_empty() || selection.from_ns.is_some(),
            },
            out,
            out_start: 0,
            damage,
            reading,
            selection,
            is_live: inputs.iter().any(Input::is_live),
            given: None,
            reduced: None,
            packed: VecDeque::new(),
            threads_left: ahead::files_at_once(),
            failure: None,
        };
        // Of records with the same time, those that teach names come first.
        let for_names = for_names.into_iter().map(|input| (input, Purpose::Names));
        let all = for_names.chain(inputs.into_iter().map(|input| (input, Purpose::All)));
        let mut refused = Vec::new();
        for (input, purpose) in all {
            let head = match Head::open(input, &merge.damage, &merge.reading) {
                Ok(head) => Head { purpose, ..head },
                Err(error) => {
                    refused.push(error);
                    continue;
                }
            };
            let number = merge.heads.len();
            merge.heads.push(head);
            merge.advance(number)?;
            let head = &mut merge.heads[number];
            if purpose == Purpose::Names && head.is_at_note() {
                let goes_on = merge.selection.continues;
                head.purpose = if goes_on { Purpose::Before } else { Purpose::ReducedNames };
            }
        }
        // Of thousands of files, all that must be left out are named at once.
        match refused.len() {
            0 => {}
            1 => return Err(refused.remove(0)),
            _ => return Err(InputError::Several(refused)),
        }
        // One input alone has the thread of the whole stream.
        if merge.heads.len() > 1 {
            let order = merge.order.clone().into_sorted_vec();
            let numbers = order.into_iter().rev().map(|Reverse((_, number))| number);
            merge.packed = numbers.filter(|&number| merge.heads[number].is_packed()).collect();
            merge.unpack_more();
        }
        Ok(merge)
    }

    /// Has threads decompress the inputs that come next.
    fn unpack_more(&mut self) {
        while self.threads_left > 0
            && let Some(number) = self.packed.pop_front()
        {
            self.threads_left -= usize::from(self.heads[number].unpack_ahead());
        }
    }

    /// Finds the next record of one input that is wanted.
    fn advance(&mut self, number: usize) -> Result<(), InputError> {
        let head = &mut self.heads[number];
        loop {
            head.advance(&self.damage, &self.reading);
            let Some(next) = &head.next else { break };
            if !self.selection.is_in_time(next.ts_ns) {
                head.next = None;
                continue;
            }
            let is_counted = !self.selection.is_early(next.ts_ns);
            let filter = self.selection.filter.as_mut().filter(|_| head.purpose == Purpose::All);
            let Some(filter) = filter else { break };
            let frame = &head.bytes()[next.frame.clone()];
            match filter.takes(next.link_type, frame, next.original_len, is_counted) {
                Ok(true) => break,
                Ok(false) => head.next = None,
                Err(why) => return Err(InputError::Filter { name: head.name.clone(), why }),
            }
        }
        match &head.next {
            Some(next) => self.order.push(Reverse((next.ts_ns, number))),
            None => {
                if head.purpose.is_reduced() && !head.is_at_end {
                    head.report(&self.damage, head.offset, SourceDamageKind::ReducedCut);
                }
                let had_thread = head.close(&self.damage, &self.reading);
                self.reduced.take_if(|open| *open == number);
                self.threads_left += usize::from(had_thread);
                self.unpack_more();
            }
        }
        Ok(())
    }

    /// Reports a capture of what comes before that has not ended when another input has a record: once.
    fn check_overlap(&mut self, number: usize) {
        if let Some(open) = self.reduced.take_if(|open| *open != number) {
            let head = &mut self.heads[open];
            if !std::mem::replace(&mut head.overlaps, true) {
                head.report(&self.damage, head.offset, SourceDamageKind::ReducedOverlap);
            }
        }
        let head = &self.heads[number];
        if head.purpose == Purpose::Before {
            self.reduced = (!head.is_at_end).then_some(number);
        }
    }

    /// Writes records until there is enough, or no more.
    fn refill(&mut self) -> Result<(), InputError> {
        self.out.drain(..self.out_start);
        self.out_start = 0;
        let enough = if self.is_live { 1 } else { OUT_BYTES };
        while self.out.len() < enough {
            // Not before the record was given: the next one of a pipe may be long in coming.
            if let Some(number) = self.given.take() {
                self.advance(number)?;
            }
            let Some(Reverse((ts_ns, number))) = self.order.pop() else { break };
            self.check_overlap(number);
            let head = &mut self.heads[number];
            if let Some(next) = head.next.take() {
                let purpose = match head.purpose {
                    Purpose::All if self.selection.is_early(ts_ns) => Purpose::Names,
                    purpose => purpose,
                };
                let interface = self.interfaces.of(next.link_type, purpose, &mut self.out);
                let frame = &head.bytes()[next.frame];
                write::packet(&mut self.out, interface, ts_ns, frame, next.original_len);
            }
            self.given = Some(number);
        }
        Ok(())
    }
}

/// The interfaces written so far.
struct Interfaces {
    /// The link type of each, or of each [`Purpose::COUNT`].
    link_types: Vec<u16>,
    /// There is one for each link type and purpose.
    has_purposes: bool,
}

impl Interfaces {
    /// The interface of a link type, which is written when it is new. At most 4 * 65536 exist.
    fn of(&mut self, link_type: u16, purpose: Purpose, out: &mut Vec<u8>) -> u32 {
        let each = if self.has_purposes { Purpose::COUNT } else { 1 };
        let known = self.link_types.iter().position(|known| *known == link_type);
        let number = known.unwrap_or_else(|| {
            self.link_types.push(link_type);
            (0..each).for_each(|_| write::interface(out, link_type, 0));
            self.link_types.len() - 1
        });
        (number * each + purpose as usize) as u32
    }
}

impl Read for Merge {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.out_start == self.out.len() && self.failure.is_none() {
            // The records before the failure are delivered first.
            self.failure = self.refill().err();
        }
        if self.out_start == self.out.len()
            && let Some(failure) = &self.failure
        {
            return Err(io::Error::other(failure.to_string()));
        }
        let count = buffer.len().min(self.out.len() - self.out_start);
        buffer[..count].copy_from_slice(&self.out[self.out_start..self.out_start + count]);
        self.out_start += count;
        Ok(count)
    }
}

impl Head {
    fn open(
        input: Input,
        damage: &Arc<Mutex<Vec<SourceDamage>>>,
        reading: &Arc<Reading>,
    ) -> Result<Head, InputError> {
        let Input { name, content } = input;
        let mut bytes = match content {
            Content::Mapped(mapped) => HeadBytes::Mapped { mapped, released: 0 },
            Content::Senders(senders) => {
                let captures = Captures::of(*senders, Arc::clone(damage), Arc::clone(reading));
                HeadBytes::of(Box::new(captures), true, Unpacking::Plain)
            }
            Content::Memory(inner) => {
                let counted = Counted { inner, reading: Arc::clone(reading) };
                HeadBytes::of(Box::new(counted), false, Unpacking::Plain)
            }
            Content::Stream { file: inner, live } => {
                match decode::decoder(Counted { inner, reading: Arc::clone(reading) }) {
                    Ok((reader, None)) => HeadBytes::of(reader, live, Unpacking::Plain),
                    Ok((reader, Some(_))) => HeadBytes::of(reader, live, Unpacking::Here),
                    Err(error) => {
                        return Err(InputError::Unreadable { name, why: error.to_string() });
                    }
                }
            }
        };
        let mut failure = None;
        while bytes.get().len() < HEADER_BYTES && !bytes.ended() {
            failure = bytes.read_more();
        }
        match (Capture::open(bytes.get()), failure) {
            (Ok((capture, offset)), failure) => {
                let head = Head {
                    name,
                    bytes,
                    base: 0,
                    capture,
                    offset,
                    next: None,
                    purpose: Purpose::All,
                    is_at_end: false,
                    overlaps: false,
                };
                if let Some(why) = failure {
                    head.report(damage, head.bytes().len(), SourceDamageKind::Stream(why));
                }
                Ok(head)
            }
            (Err(_), Some(why)) => Err(InputError::Unreadable { name, why }),
            (Err(source), None) => Err(InputError::NotCapture { name, source }),
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get()
    }

    /// Steps to the next record.
    fn advance(&mut self, damage: &Mutex<Vec<SourceDamage>>, reading: &Reading) {
        if let HeadBytes::Mapped { mapped, released } = &mut self.bytes
            && self.offset - *released >= RELEASE_BYTES
        {
            reading.add_bytes(self.offset - *released);
            mapped.release(*released..self.offset);
            *released = self.offset;
        }
        loop {
            let at_end = self.bytes.ended();
            match self.capture.next(self.bytes.get(), self.offset, at_end) {
                Step::Record(record) => {
                    let start = record.frame_offset;
                    self.is_at_end = record.link_type == note::LINK_TYPE
                        && matches!(Note::read(record.frame), Some(Note::End(_)));
                    self.next = Some(Next {
                        ts_ns: record.ts_ns,
                        link_type: record.link_type,
                        original_len: record.original_len,
                        frame: start..start + record.frame.len(),
                    });
                    self.offset = record.next_offset;
                    return;
                }
                Step::Meta { next_offset } => self.offset = next_offset,
                Step::Damaged { kind, next_offset } => {
                    self.report(damage, self.offset, SourceDamageKind::Capture(kind));
                    self.offset = next_offset;
                }
                Step::NeedMore => self.read_more(damage),
                Step::End => return,
            }
        }
    }

    /// True if the next record is a note of `larder extract`.
    fn is_at_note(&self) -> bool {
        self.next.as_ref().is_some_and(|next| {
            let frame = &self.bytes()[next.frame.clone()];
            next.link_type == note::LINK_TYPE && Note::read(frame).is_some()
        })
    }

    /// Drops the bytes that were read, and reads more.
    fn read_more(&mut self, damage: &Mutex<Vec<SourceDamage>>) {
        if let HeadBytes::Stream { buffer, .. } = &mut self.bytes {
            buffer.drain(..self.offset);
            self.base += self.offset as u64;
            self.offset = 0;
        }
        if let Some(why) = self.bytes.read_more() {
            self.report(damage, self.bytes().len(), SourceDamageKind::Stream(why));
        }
    }

    /// True for a compressed file that no thread decompresses, and of which there is more.
    fn is_packed(&self) -> bool {
        matches!(
            self.bytes,
            HeadBytes::Stream { ended: false, live: false, unpacking: Unpacking::Here, .. }
        )
    }

    /// Has a thread decompress the input, if nothing has yet. True if one does now.
    fn unpack_ahead(&mut self) -> bool {
        let is_packed = self.is_packed();
        if let HeadBytes::Stream { reader, unpacking, .. } = &mut self.bytes
            && is_packed
        {
            *reader = ahead::start(std::mem::replace(reader, Box::new(io::empty())));
            *unpacking = Unpacking::Ahead;
        }
        is_packed
    }

    /// The input has ended: gives its memory back. True if a thread decompressed it.
    fn close(&mut self, damage: &Mutex<Vec<SourceDamage>>, reading: &Reading) -> bool {
        let had_thread =
            matches!(self.bytes, HeadBytes::Stream { unpacking: Unpacking::Ahead, .. });
        if let HeadBytes::Mapped { mapped, released } = &self.bytes {
            reading.add_bytes(mapped.bytes().len() - released);
            if let Some(offset) = mapped.torn_at() {
                self.report(damage, offset, SourceDamageKind::Torn);
            }
        }
        reading.add_file();
        let reader: Box<dyn Read + Send> = Box::new(io::empty());
        let (buffer, unpacking) = (Vec::new(), Unpacking::Plain);
        self.bytes = HeadBytes::Stream { reader, buffer, ended: true, live: false, unpacking };
        self.offset = 0;
        had_thread
    }

    fn report(&self, damage: &Mutex<Vec<SourceDamage>>, at: usize, kind: SourceDamageKind) {
        let offset = self.base + at as u64;
        damage::add(damage, &self.name, offset, kind);
    }
}

impl HeadBytes {
    /// A stream at its start.
    fn of(reader: Box<dyn Read + Send>, live: bool, unpacking: Unpacking) -> HeadBytes {
        HeadBytes::Stream { reader, buffer: Vec::new(), ended: false, live, unpacking }
    }

    fn get(&self) -> &[u8] {
        match self {
            HeadBytes::Mapped { mapped, .. } => mapped.bytes(),
            HeadBytes::Stream { buffer, .. } => buffer,
        }
    }

    fn ended(&self) -> bool {
        match self {
            HeadBytes::Mapped { .. } => true,
            HeadBytes::Stream { ended, .. } => *ended,
        }
    }

    /// Reads up to [`READ_BYTES`] more, or to the end; from a live stream, the available bytes. An
    /// error ends the input and states the reason.
    fn read_more(&mut self) -> Option<String> {
        let HeadBytes::Stream { reader, buffer, ended, live, .. } = self else { return None };
        let most = if *live { read_some(reader, buffer) } else { read_all(reader, buffer) };
        match most {
            Ok(has_more) => {
                *ended = !has_more;
                None
            }
            Err(error) => {
                *ended = true;
                Some(error.to_string())
            }
        }
    }
}

/// Reads [`READ_BYTES`], or to the end: then there is no more.
fn read_all(reader: &mut dyn Read, buffer: &mut Vec<u8>) -> io::Result<bool> {
    reader.take(READ_BYTES as u64).read_to_end(buffer).map(|count| count == READ_BYTES)
}

/// Reads the available bytes, and waits for the first ones.
fn read_some(reader: &mut dyn Read, buffer: &mut Vec<u8>) -> io::Result<bool> {
    let start = buffer.len();
    buffer.resize(start + READ_BYTES, 0);
    let count = loop {
        match reader.read(&mut buffer[start..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result,
        }
    };
    buffer.truncate(start + count.as_ref().map_or(0, |count| *count));
    count.map(|count| count > 0)
}
