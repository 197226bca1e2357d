//! Records as bytes: text, ECS, Zeek, CSV, IPFIX, Parquet.
//!
//! A [`Format`] is made once a run. The workers that own the flows render their own records, each into
//! its own buffer, in parallel ([`RecordWriter::record`] takes `&self`). One writer puts the buffers in
//! order between the header and the footer. Rendered records are self-contained: any sequence of whole
//! records is a valid log.
//!
//! The records of IPFIX stand in messages, and Parquet is columnar: their workers render rows, and the ordered
//! writer passes them to [`ipfix::Writer`] or `parquet::Writer` instead of the file. A program that runs larder inside
//! it gets the rows themselves. All the rest is the same.
//!
//! | module | task |
//! |---|---|
//! | [`schema`], [`mod@fields`] | the fields: one table for every structured format |
//! | [`text`] | aligned columns for people |
//! | [`ecs`] | JSON lines, Elastic Common Schema |
//! | [`zeek`] | Zeek's conn.log with added columns |
//! | [`csv`] | the schema, a cell a field |
//! | [`ipfix`] | standard elements, and the other fields of the schema as own ones |
//! | [`rows`] | the schema, a value a field, for what takes them apart |
//! | `parquet` | the schema, a column a field (cargo feature `parquet`) |
//!
//! Invariants
//! 1. Every byte of a line format is printable ASCII, a tab or a line feed: a hostile name cannot reach
//!    a terminal, end a line, or add a column.
//! 2. The same record gives the same bytes on any worker.

pub mod csv;
pub mod ecs;
pub mod fields;
pub mod ipfix;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod rows;
pub mod schema;
pub mod text;
pub mod zeek;

use crate::Error;
use crate::options::OutputFormat;
use crate::record::FlowRecord;

/// Renders records. Buffers are only appended to; reuse them.
///
/// A header or footer may state a time (Zeek's `#open` and `#close`): `now_ns`, ns since 1970 UTC, a
/// packet's own time, so that two logs of one capture are the same bytes.
pub trait RecordWriter: Send + Sync {
    /// Appends the lines before the first record.
    fn header(&self, _now_ns: i64, _out: &mut Vec<u8>) {}

    /// Appends one record.
    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>);

    /// Appends the lines after the last record.
    fn footer(&self, _now_ns: i64, _out: &mut Vec<u8>) {}

    /// True when the header states a time, so that it cannot be written before the first packet.
    fn states_time(&self) -> bool {
        false
    }
}

/// The writer for an output format.
#[non_exhaustive]
pub enum Format {
    /// Rendered records go to the file unchanged.
    Lines(Box<dyn RecordWriter>),
    /// Rendered records are rows for [`ipfix::Writer::push_rows`].
    Ipfix(ipfix::Sets),
    /// Rendered records are rows, and go to a program.
    Rows(rows::Rows),
    /// Rendered records are rows for [`parquet::Writer::push_rows`].
    #[cfg(feature = "parquet")]
    Parquet(rows::Rows),
}

impl Format {
    /// The writer for `output`; `numeric_ports` (`-n`) writes 443 rather than https in `text`.
    ///
    /// # Errors
    /// [`Error::Options`] when this build cannot write the format.
    pub fn new(output: OutputFormat, numeric_ports: bool) -> Result<Format, Error> {
        Ok(match output {
            OutputFormat::Text => Format::Lines(Box::new(text::Text::new(numeric_ports))),
            OutputFormat::Ecs => Format::Lines(Box::new(ecs::Ecs::default())),
            OutputFormat::Zeek => Format::Lines(Box::new(zeek::Zeek::default())),
            OutputFormat::Csv => Format::Lines(Box::new(csv::Csv)),
            OutputFormat::Ipfix => Format::Ipfix(ipfix::Sets::default()),
            OutputFormat::Rows => Format::Rows(rows::Rows),
            #[cfg(feature = "parquet")]
            OutputFormat::Parquet => Format::Parquet(rows::Rows),
            #[cfg(not(feature = "parquet"))]
            OutputFormat::Parquet => {
                return Err(Error::Options(
                    "this build cannot write Parquet: build it with `--features parquet`, or take \
                     another --format (csv has the same fields)"
                        .to_owned(),
                ));
            }
        })
    }

    /// The part that renders records.
    pub fn writer(&self) -> &dyn RecordWriter {
        match self {
            Format::Lines(writer) => writer.as_ref(),
            Format::Ipfix(sets) => sets,
            Format::Rows(rows) => rows,
            #[cfg(feature = "parquet")]
            Format::Parquet(rows) => rows,
        }
    }
}
