//! Records as bytes: text, ECS, Zeek, CSV, Parquet.
//!
//! A [`Format`] is made once a run. The workers that own the flows render their own records, each
//! into its own buffer, in parallel ([`RecordWriter::record`] takes `&self`); one writer puts the
//! buffers in order between the header and the footer. Rendered records are self-contained: any
//! cut at record borders, in any order, is a sound log.
//!
//! Parquet is columnar, so what its workers render are rows, and the ordered writer hands these to
//! `parquet::Writer` rather than to the file; all the rest is the same.
//!
//! | module | duty |
//! |---|---|
//! | [`schema`] | the fields: one table for every structured format |
//! | [`text`] | aligned columns for eyes |
//! | [`ecs`] | JSON lines, Elastic Common Schema |
//! | [`zeek`] | Zeek's conn.log, ours appended |
//! | [`csv`] | the schema, a cell a field |
//! | `parquet` | the schema, a column a field (cargo feature `parquet`) |
//!
//! Invariants
//! 1. Every octet of a line format is printable ASCII, a tab or a line feed: a hostile name cannot
//!    reach a terminal, end a line, or add a column.
//! 2. The same record gives the same bytes, whoever renders it.

pub mod csv;
pub mod ecs;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod schema;
pub mod text;
pub mod zeek;

use crate::Error;
use crate::options::OutputFormat;
use crate::record::FlowRecord;

/// Renders records. Buffers are only appended to; reuse them.
pub trait RecordWriter: Send + Sync {
    /// Appends what stands before the first record.
    fn header(&mut self, out: &mut Vec<u8>);
    /// Appends one record.
    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>);
    /// Appends what stands after the last record.
    fn footer(&mut self, out: &mut Vec<u8>);
    /// Sets the time (ns since 1970 UTC) that the next header or footer states, where the format
    /// states one (Zeek's `#open` and `#close`). It is a time of packets, so that a log of the same
    /// capture is the same bytes.
    fn set_log_time(&mut self, _ns: i64) {}
    /// True when the header states a time, so that it can be written only once a packet is known.
    fn states_time(&self) -> bool {
        false
    }
}

/// The writer for an output format.
#[non_exhaustive]
pub enum Format {
    /// What is rendered goes to the file as it is.
    Lines(Box<dyn RecordWriter>),
    /// What is rendered are rows for [`parquet::Writer::push_rows`].
    #[cfg(feature = "parquet")]
    Parquet(parquet::Rows),
}

impl Format {
    /// The writer for `output`; `numeric_ports` (`-n`) writes 443 rather than https in `text`.
    ///
    /// # Errors
    /// [`Error::Options`] when this build cannot write the format.
    pub fn new(output: OutputFormat, numeric_ports: bool) -> Result<Format, Error> {
        Ok(match output {
            OutputFormat::Text => Format::Lines(Box::new(text::Text::new(numeric_ports))),
            OutputFormat::Ecs => Format::Lines(Box::new(ecs::Ecs::new())),
            OutputFormat::Zeek => Format::Lines(Box::new(zeek::Zeek::new())),
            OutputFormat::Csv => Format::Lines(Box::new(csv::Csv::new())),
            #[cfg(feature = "parquet")]
            OutputFormat::Parquet => Format::Parquet(parquet::Rows::new()),
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

    /// What renders records.
    pub fn writer(&self) -> &dyn RecordWriter {
        match self {
            Format::Lines(writer) => writer.as_ref(),
            #[cfg(feature = "parquet")]
            Format::Parquet(rows) => rows,
        }
    }

    /// The same, for the header and the footer.
    pub fn writer_mut(&mut self) -> &mut dyn RecordWriter {
        match self {
            Format::Lines(writer) => writer.as_mut(),
            #[cfg(feature = "parquet")]
            Format::Parquet(rows) => rows,
        }
    }
}
