//! The names that addresses had at a moment (`--names-at`): what a flow to them that began then is
//! called. For those who have a log with addresses, and the DNS traffic or the DNS logs of that time.
//!
//! ```text
//! packets, logs, saved names -> knowledge, up to the moment -> a line for each address
//! ```
//!
//! Formats: `text`, and the fields of the record about the destination in `ecs` and `csv`. No flow
//! states a name here, so no name is learned from one, and the confidence is that before any trial
//! (`confidence`).
//!
//! Cost: that of learning, up to the batch with the moment; later packets are not read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_wire::Addr;

use crate::files::save_all_names;
use crate::format::fields::FIELDS;
use crate::format::schema::{self, Field, Value};
use crate::format::{Format, RecordWriter, csv, ecs, text};
use crate::knowledge::Knowledge;
use crate::lines::{Frame, LineLog};
use crate::names::give_name;
use crate::options::{AddressQuery, Options, OutputFormat, Summary, Unresolved};
use crate::record::{End, FlowRecord};
use crate::{Error, Progress, evidence};

/// Writes the names of the addresses (until `progress.stop`).
///
/// # Errors
/// A format that is not for addresses, inputs and outputs that cannot be opened or written.
pub fn run(
    options: &Options,
    query: &AddressQuery,
    progress: &Arc<Progress>,
) -> Result<Summary, Error> {
    if options.write_packets.is_some()
        || options.store.is_some()
        || options.packets_max.is_some()
        || options.unresolved != Unresolved::False
        || options.directory.is_some()
    {
        let text = "--names-at with -w, -d, --store, -c or --unresolved: these are about packets and \
                    flows; leave them out";
        return Err(Error::Options(text.to_owned()));
    }
    let &AddressQuery { time_ns, client, ref addrs } = query;
    let writer = || AddressWriter::new(options.format);
    let mut log = LineLog::open(
        &options.output,
        options,
        true,
        Frame::of(Format::Lines(Box::new(writer()?))),
    )?;
    let mut knowledge = Knowledge::open(options, progress)?;
    // Logs do not state when they began.
    knowledge.first_ns.get_or_insert(i64::MIN);
    knowledge.until(time_ns, progress)?;
    let mut summary = Summary::default();
    if progress.stop.load(Ordering::Relaxed) {
        // Names that were not read yet would be missing.
        return Ok(Summary { interrupted: true, ..summary });
    }
    let (writer, mut line) = (writer()?, Vec::new());
    log.start()?;
    log.begin(time_ns)?;
    let client = client.unwrap_or(Addr::UNSPECIFIED);
    for &addr in addrs {
        let mut record = FlowRecord { start_ns: time_ns, ..FlowRecord::blank() };
        record.destination = End::of(addr);
        let end = &mut record.destination;
        give_name(end, knowledge.ends(client, addr, time_ns).destination, time_ns);
        if end.naming.is_none() {
            end.unnamed_reason = Some(knowledge.why_unnamed(client, addr, time_ns, false));
        }
        evidence::leave_out([&mut record.source, end], options.min_confidence);
        line.clear();
        writer.record(&record, &mut line);
        log.write(&line, time_ns)?;
    }
    log.finish(time_ns)?;
    let names = knowledge.finish(&mut summary)?;
    save_all_names(&names, options, &mut summary)?;
    summary.input_damaged = !summary.damaged.is_empty();
    Ok(summary)
}

/// Writes a record's destination, and its start as the moment.
struct AddressWriter {
    format: OutputFormat,
    fields: Vec<&'static Field>,
}

impl AddressWriter {
    fn new(format: OutputFormat) -> Result<AddressWriter, Error> {
        if !matches!(format, OutputFormat::Text | OutputFormat::Ecs | OutputFormat::Csv) {
            let text = "--names-at: this format is for flows only; use --format text, ecs or csv";
            return Err(Error::Options(text.to_owned()));
        }
        let is_wanted = |name: &str| match name.strip_prefix("destination.") {
            Some(part) => matches!(part, "ip" | "domain" | "registered_domain"),
            None => name == "@timestamp" || name.starts_with("larder.destination."),
        };
        let fields = FIELDS.iter().filter(|field| is_wanted(field.name)).collect();
        Ok(AddressWriter { format, fields })
    }
}

impl RecordWriter for AddressWriter {
    fn header(&self, _now_ns: i64, out: &mut Vec<u8>) {
        if self.format == OutputFormat::Csv {
            csv::write_names(self.fields.iter().copied(), out);
        }
    }

    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        let end = &record.destination;
        match self.format {
            OutputFormat::Ecs => {
                let mut open = b'{';
                for field in &self.fields {
                    let value = (field.get)(record);
                    if !matches!(value, Value::Absent) {
                        out.push(open);
                        open = b',';
                        out.extend_from_slice(format!("\"{}\":", field.name).as_bytes());
                        ecs::write_json(value, out);
                    }
                }
                out.extend_from_slice(b"}\n");
            }
            OutputFormat::Csv => csv::write_cells(self.fields.iter().copied(), record, out),
            _ => {
                schema::write_plain(Value::Ip(end.addr), out);
                out.push(b' ');
                text::write_end_naming(end, out);
                for name in end
                    .candidates
                    .iter()
                    .filter(|name| end.naming.as_ref().is_none_or(|naming| naming.name != **name))
                {
                    out.extend_from_slice(b" or ");
                    schema::write_name(name, out);
                }
                out.push(b'\n');
            }
        }
    }
}
