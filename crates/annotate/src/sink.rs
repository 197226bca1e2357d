//! The ordered end of the pipeline: log, packets with names, answers.
//!
//! Each batch arrives once, in order, with what every worker made of it. Records of the workers are
//! merged by (packet that ended the flow, first packet), which no two flows share, so the log does
//! not depend on who rendered what.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use larder_wire::capture::{Step, write};
use larder_wire::{Addr, Name};

use crate::Error;
use crate::edge::AnswerLine;
use crate::format::RecordWriter;
use crate::names_file::escaped;
use crate::pipeline::{Sink, Work};
use crate::record::FlowRecord;
use crate::sort::Sorter;
use crate::worker::{Ended, Output};

/// A byte sink with a name for error texts.
pub struct Out {
    inner: Box<dyn Write + Send>,
    what: String,
}

impl Out {
    /// Standard output.
    pub fn stdout() -> Out {
        // A record is written in pieces of a batch; the line buffer of `Stdout` would cut them.
        let inner = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout());
        Out { inner: Box::new(inner), what: "standard output".to_owned() }
    }

    /// A new file.
    pub fn create(path: &Path) -> Result<Out, Error> {
        let what = path.display().to_string();
        let file = std::fs::File::create(path).map_err(|error| write_error(&what, &error))?;
        Ok(Out { inner: Box::new(std::io::BufWriter::with_capacity(1 << 18, file)), what })
    }

    /// Writes all of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.inner.write_all(bytes).map_err(|error| write_error(&self.what, &error))
    }

    /// Hands everything to the system.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.inner.flush().map_err(|error| write_error(&self.what, &error))
    }

    /// The writer itself, for columnar formats.
    pub fn into_inner(self) -> Box<dyn Write + Send> {
        self.inner
    }
}

/// What a failed write means for the user.
pub fn write_error(what: &str, error: &std::io::Error) -> Error {
    use std::io::ErrorKind;
    let advice = match error.kind() {
        ErrorKind::BrokenPipe => return Error::ClosedPipe,
        ErrorKind::StorageFull => "the disk is full; make room, or write elsewhere with -o",
        ErrorKind::PermissionDenied => "no permission to write there; choose another place",
        ErrorKind::NotFound => "the folder does not exist; make it first",
        ErrorKind::IsADirectory => "that is a folder; name a file in it",
        ErrorKind::QuotaExceeded => "the disk quota is used up; make room, or write elsewhere",
        _ => "writing failed; what was written before is complete up to the last whole record",
    };
    Error::Output { what: what.to_owned(), why: format!("{error}; {advice}") }
}

/// Where finished records go.
pub enum Log {
    /// Lines, in order of ending.
    Lines(Out),
    /// Lines, by first packet.
    Sorted(Out, Box<Sorter>),
    /// Columns.
    #[cfg(feature = "parquet")]
    Parquet(Box<crate::format::parquet::Writer<Box<dyn Write + Send>>>),
}

/// See the module.
pub struct Writer {
    log: Log,
    packets: Option<Packets>,
    answers: Option<Out>,
    scratch: Vec<u8>,
}

impl Writer {
    /// A writer; the log's header is written by the caller.
    pub fn new(log: Log, packets: Option<Out>, answers: Option<Out>) -> Result<Writer, Error> {
        let packets = packets.map(Packets::new).transpose()?;
        let mut writer = Writer { log, packets, answers, scratch: Vec::new() };
        if let Some(out) = &mut writer.answers {
            out.write(ANSWERS_HEADER.as_bytes())?;
        }
        Ok(writer)
    }

    /// Writes what is left, and `format`'s last lines.
    pub fn finish(mut self, format: Option<&mut dyn RecordWriter>) -> Result<(), Error> {
        let mut footer = Vec::new();
        if let Some(format) = format {
            format.footer(&mut footer);
        }
        match self.log {
            Log::Lines(mut out) => {
                out.write(&footer)?;
                out.flush()?;
            }
            Log::Sorted(mut out, sorter) => {
                sorter.finish(|bytes| out.write(bytes))?;
                out.write(&footer)?;
                out.flush()?;
            }
            #[cfg(feature = "parquet")]
            Log::Parquet(writer) => {
                writer.finish().map_err(|error| write_error("the Parquet file", &error))?;
            }
        }
        if let Some(packets) = &mut self.packets {
            packets.out.flush()?;
        }
        if let Some(out) = &mut self.answers {
            out.flush()?;
        }
        Ok(())
    }
}

impl Sink for Writer {
    fn batch(&mut self, work: &Work, outputs: &mut [Output]) -> Result<(), Error> {
        if let Some(packets) = &mut self.packets {
            packets.batch(work, outputs)?;
        }
        if let Some(out) = &mut self.answers {
            self.scratch.clear();
            for answer in &work.answers {
                write_answer(answer, &mut self.scratch);
            }
            out.write(&self.scratch)?;
        }
        merge(outputs, |output, ended| {
            let text = || &output.bytes[ended.start as usize..ended.end as usize];
            match &mut self.log {
                Log::Lines(out) => out.write(text()),
                Log::Sorted(_, sorter) => sorter.push(ended.first_packet, text()),
                #[cfg(feature = "parquet")]
                Log::Parquet(writer) => {
                    let record: &FlowRecord = &output.records[ended.start as usize];
                    writer
                        .push(record)
                        .map_err(|error| write_error("the Parquet file", &error))
                }
            }
        })
    }
}

/// Hands out the workers' records in the order of the log.
fn merge(
    outputs: &[Output],
    mut take: impl FnMut(&Output, &Ended) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = vec![0; outputs.len()];
    loop {
        let next = outputs
            .iter()
            .enumerate()
            .filter_map(|(who, output)| output.ended.get(at[who]).map(|ended| (ended, who)))
            .min_by_key(|(ended, _)| (ended.end_packet, ended.first_packet));
        let Some((ended, who)) = next else { return Ok(()) };
        at[who] += 1;
        take(&outputs[who], ended)?;
    }
}

const ANSWERS_HEADER: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n\
    #unset_field\t-\n#path\tlarder_dns\n\
    #fields\tts\tpacket\tclient\tserver\tsource\tquery\taliases\tanswers\tTTLs\tsolicited\n\
    #types\ttime\tcount\taddr\taddr\tstring\tstring\tvector[string]\tvector[addr]\tvector[interval]\tbool\n";

fn write_answer(answer: &AnswerLine, out: &mut Vec<u8>) {
    fn list<T>(items: &[T], out: &mut Vec<u8>, mut write: impl FnMut(&T, &mut Vec<u8>)) {
        if items.is_empty() {
            out.extend_from_slice(b"(empty)");
        }
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write(item, out);
        }
    }
    let (s, ns) = (answer.time_ns.div_euclid(1_000_000_000), answer.time_ns.rem_euclid(1_000_000_000));
    let client = if answer.client == Addr::UNSPECIFIED {
        "-".to_owned()
    } else {
        answer.client.to_string()
    };
    let head = format!(
        "{s}.{ns:09}\t{}\t{client}\t{}\t{}\t",
        answer.packet,
        answer.server,
        answer.teacher.as_str()
    );
    out.extend_from_slice(head.as_bytes());
    if answer.asked.is_root() {
        out.push(b'-');
    } else {
        escaped(answer.asked.as_bytes(), out);
    }
    out.push(b'\t');
    list(&answer.aliases, out, |name, out| escaped(name.as_bytes(), out));
    out.push(b'\t');
    list(&answer.addresses, out, |(addr, _), out| out.extend_from_slice(addr.to_string().as_bytes()));
    out.push(b'\t');
    list(&answer.addresses, out, |(_, ttl_s), out| {
        out.extend_from_slice(format!("{ttl_s}.000000").as_bytes());
    });
    out.extend_from_slice(if answer.solicited { b"\tT\n" } else { b"\tF\n" });
}

/// Most addresses whose last written names are remembered; past it they are written again.
const WRITTEN_MAX: usize = 1 << 20;

/// `-w`: the packets again, each flow's names just before its first packet, when they changed.
struct Packets {
    out: Out,
    /// Index of the interface that stands for a link type.
    interfaces: HashMap<u16, u32>,
    written: HashMap<Addr, Vec<Name>>,
    scratch: Vec<u8>,
}

impl Packets {
    fn new(mut out: Out) -> Result<Packets, Error> {
        let mut scratch = Vec::new();
        write::section(&mut scratch, concat!("larder ", env!("CARGO_PKG_VERSION")));
        out.write(&scratch)?;
        Ok(Packets { out, interfaces: HashMap::new(), written: HashMap::new(), scratch })
    }

    fn batch(&mut self, work: &Work, outputs: &[Output]) -> Result<(), Error> {
        let Some(batch) = &work.batch else { return Ok(()) };
        let mut resolved: Vec<_> = outputs.iter().flat_map(|output| &output.resolved).collect();
        resolved.sort_by_key(|resolved| resolved.packet);
        let mut resolved = resolved.into_iter().peekable();
        let (bytes, limit) = (batch.bytes(), batch.limit());
        let mut capture = batch.capture().clone();
        let mut offset = work.decoded.start;
        let mut number = 0;
        self.scratch.clear();
        while offset < limit && number < work.decoded.packets {
            match capture.next(bytes, offset, batch.is_last()) {
                Step::Record(record) => {
                    number += 1;
                    let packet = work.packets_before + u64::from(number);
                    while let Some(names) = resolved.next_if(|names| names.packet <= packet) {
                        let known = self.written.get(&names.addr);
                        if known.is_some_and(|known| *known == names.names) {
                            continue;
                        }
                        if self.written.len() >= WRITTEN_MAX {
                            self.written.clear();
                        }
                        self.written.insert(names.addr, names.names.clone());
                        let mut block = write::Names::begin(&mut self.scratch);
                        block.record(names.addr, names.names.iter().map(printable));
                        block.end();
                    }
                    let next = self.interfaces.len() as u32;
                    let interface = *self.interfaces.entry(record.link_type).or_insert(next);
                    if interface == next {
                        write::interface(&mut self.scratch, record.link_type, 0);
                    }
                    write::packet(
                        &mut self.scratch,
                        interface,
                        record.ts_ns,
                        record.frame,
                        record.original_len,
                    );
                    offset = record.next_offset;
                }
                Step::Meta { next_offset } | Step::Damaged { next_offset, .. } => {
                    offset = next_offset;
                }
                Step::NeedMore | Step::End => break,
            }
        }
        self.out.write(&self.scratch)
    }
}

/// A name as a block may hold it: UTF-8 without control octets (hostile ones are escaped).
fn printable(name: &Name) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.as_bytes().len());
    Name::write_escaped(name.as_bytes(), &mut text);
    text
}
