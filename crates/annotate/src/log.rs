//! The log of flows: one file, files that follow each other, a dataset, a collector, or another program's channel.

mod channel;
mod dataset;

use larder_io::output::Output;

use crate::files::open_output;
use crate::format::{Format, ipfix};
use crate::lines::{Frame, LineLog};
use crate::options::Options;
use crate::pipeline::Work;
use crate::worker::Place;
use crate::{Error, Progress};

use channel::RowSender;
use dataset::Dataset;
pub(crate) use dataset::resumed;

/// The destination of rendered records.
pub enum Log {
    /// Written as they are.
    #[allow(private_interfaces)]
    Lines(LineLog),
    /// A file for each time between two cuts.
    #[allow(private_interfaces)]
    Dataset(Box<Dataset>),
    /// Packed into messages.
    Ipfix(Box<ipfix::Writer<Output>>),
    /// The same, sent to a collector.
    Collector(Box<ipfix::Writer<ipfix::Collector>>),
    /// Sent as rows to the program that larder runs in.
    #[allow(private_interfaces)]
    Rows(RowSender),
    /// Split into columns.
    #[cfg(feature = "parquet")]
    Parquet(Box<crate::format::parquet::Writer<Output>>),
}

impl Log {
    /// The log of the run; nothing is written yet.
    pub fn open(options: &Options) -> Result<Log, Error> {
        if let Some(folder) = &options.dataset {
            return Ok(Log::Dataset(Box::new(Dataset::open(folder.clone(), options)?)));
        }
        let open = || open_output(&options.output, options.access);
        match Format::new(options.format, options.ports_numeric)? {
            Format::Ipfix(_) => {
                refuse_rotation(options, "an IPFIX file is one stream of numbered messages")?;
                if let Some(address) = options.ipfix_to {
                    let collector = ipfix::Collector::connect(address, &options.log)?;
                    return Ok(Log::Collector(Box::new(ipfix::Writer::new(collector))));
                }
                Ok(Log::Ipfix(Box::new(ipfix::Writer::new(open()?))))
            }
            Format::Rows(_) => {
                let missing = || Error::Options("rows go to a channel; set rows_to".to_owned());
                Ok(Log::Rows(RowSender::new(options.rows_to.clone().ok_or_else(missing)?)))
            }
            #[cfg(feature = "parquet")]
            Format::Parquet(_) => {
                refuse_rotation(options, "a Parquet file is whole at its end only")?;
                let out = open()?;
                let writer = crate::format::parquet::Writer::new(out)?;
                Ok(Log::Parquet(Box::new(writer)))
            }
            format => {
                let frame = Frame::of(format);
                Ok(Log::Lines(LineLog::open(&options.output, options, true, frame)?))
            }
        }
    }

    pub(crate) fn take(&mut self, rendered: &[u8], now_ns: i64) -> Result<(), Error> {
        match self {
            Log::Lines(log) => log.write(rendered, now_ns),
            Log::Dataset(dataset) => dataset.take(rendered),
            Log::Ipfix(writer) => writer.push_rows(rendered),
            Log::Collector(writer) => writer.push_rows(rendered),
            Log::Rows(rows) => rows.take(rendered),
            #[cfg(feature = "parquet")]
            Log::Parquet(writer) => writer.push_rows(rendered),
        }
    }

    /// A header that states no time.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        match self {
            Log::Lines(log) => log.start(),
            _ => Ok(()),
        }
    }

    /// A header that states when the input began.
    pub(crate) fn begin(&mut self, first_ns: i64) -> Result<(), Error> {
        match self {
            Log::Lines(log) => log.begin(first_ns),
            _ => Ok(()),
        }
    }

    /// Begins a batch.
    pub(crate) fn begin_batch(&mut self, work: &Work) {
        if let Log::Dataset(dataset) = self {
            dataset.begin_batch(work);
        }
    }

    /// Comes to the record at `place`, which is taken next.
    pub(crate) fn come_to(&mut self, place: &Place) -> Result<(), Error> {
        match self {
            Log::Dataset(dataset) => dataset.come_to(place),
            _ => Ok(()),
        }
    }

    /// Ends a batch: a live log waits for no more records.
    pub(crate) fn end_batch(
        &mut self,
        is_live: bool,
        end_ns: i64,
        progress: &Progress,
    ) -> Result<(), Error> {
        match self {
            Log::Lines(log) => log.end_batch(is_live, end_ns, progress),
            Log::Dataset(dataset) => dataset.end_batch(),
            Log::Rows(rows) if is_live => rows.flush(),
            Log::Ipfix(writer) if is_live => writer.flush(),
            Log::Collector(writer) if is_live => writer.flush(),
            _ => Ok(()),
        }
    }

    /// Opens the log again. A stream of numbered messages has no other file, and a Parquet file cannot be opened
    /// again.
    pub(crate) fn reopen(&mut self, now_ns: i64) -> Result<(), Error> {
        match self {
            Log::Lines(log) => log.reopen(now_ns),
            _ => Ok(()),
        }
    }

    /// The run ends before its input does.
    pub(crate) fn interrupt(&mut self) {
        if let Log::Dataset(dataset) = self {
            dataset.interrupt();
        }
    }

    pub(crate) fn finish(self, now_ns: i64) -> Result<(), Error> {
        match self {
            Log::Lines(log) => log.finish(now_ns),
            Log::Dataset(dataset) => dataset.finish(),
            Log::Ipfix(writer) => Ok(writer.finish()?.finish()?),
            Log::Collector(writer) => {
                writer.finish()?.finish();
                Ok(())
            }
            Log::Rows(mut rows) => rows.flush(),
            #[cfg(feature = "parquet")]
            Log::Parquet(writer) => Ok(writer.finish()?.finish()?),
        }
    }
}

/// A log in one file only, and why.
fn refuse_rotation(options: &Options, why: &str) -> Result<(), Error> {
    match options.rotation.is_wanted() {
        true => Err(Error::Options(format!("{why}, and can't be rotated; use --format csv"))),
        false => Ok(()),
    }
}
