//! Flows that were found in a packet store, as records of the log.
//!
//! They count the packets that were found, and have the names that the store has for them. What only
//! all packets of a flow tell is missing: TCP state, history, bytes of payload, the server's name as
//! it was sent.

use larder_store::Choice;
use larder_store::found::{Row, Sent};
use larder_wire::{Addr, Name};

use crate::Error;
use crate::format::Format;
use crate::log::Log;
use crate::options::Options;
use crate::record::{End, EndReason, FlowRecord, Naming};

/// Writes flows to the output of `options`, in its format and in their order. Packets without a flow
/// have no record.
///
/// # Errors
/// Those of the output, and a format that this build lacks.
pub fn write(rows: &[Row], options: &Options) -> Result<(), Error> {
    let (mut log, format) =
        (Log::open(options)?, Format::new(options.format, options.ports_numeric)?);
    let first_ns = rows.iter().map(|row| row.tally.first_ns).min();
    let last_ns = rows.iter().map(|row| row.tally.last_ns).max();
    log.start()?;
    log.begin(first_ns.unwrap_or(0))?;
    let mut rendered = Vec::new();
    for (number, row) in (1..).zip(rows) {
        let Some(record) = record_of(number, row) else { continue };
        rendered.clear();
        format.writer().record(&record, &mut rendered);
        log.take(&rendered, record.end_ns)?;
    }
    log.finish(last_ns.unwrap_or(0))
}

fn record_of(number: u64, row: &Row) -> Option<FlowRecord> {
    let key = row.key?;
    let [source, destination] = row.ends()?;
    let [of_destination, of_source] = &row.chosen;
    let mut record = FlowRecord {
        first_packet: number,
        end_packet: number,
        start_ns: row.tally.first_ns,
        end_ns: row.tally.last_ns,
        protocol: key.protocol,
        scope: key.scope,
        source: end_of(source, of_source.as_ref()),
        destination: end_of(destination, of_destination.as_ref()),
        end_reason: EndReason::InputEnd,
        ..FlowRecord::blank()
    };
    let is_other = |name: &&Name| row.chosen.iter().flatten().all(|(of, _)| of != *name);
    record.destination.candidates.extend(row.names.iter().filter(is_other).cloned());
    Some(record)
}

fn end_of((addr, port, sent): (Addr, u16, Sent), chosen: Option<&(Name, Choice)>) -> End {
    let naming = chosen.map(|(name, choice)| Naming {
        name: name.clone(),
        source: choice.source,
        age_ms: 0,
        flags: choice.flags,
        confidence: choice.confidence,
        conflict_grade: None,
    });
    End {
        port,
        packets: sent.packets,
        ip_bytes: sent.ip_bytes,
        candidates: chosen.map(|(name, _)| name.clone()).into_iter().collect(),
        naming,
        ..End::of(addr)
    }
}
