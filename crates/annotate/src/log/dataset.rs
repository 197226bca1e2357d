//! `--dataset`: the log as a folder of files, one for each time between two cuts.
//!
//! ```text
//! DIR/date=2026-11-23/hour=10/flows.2026-11-23T10-00-00Z.parquet
//! ```
//!
//! The folders are Hive's, whose names programs read as columns: a query about an hour opens no other file. A file has
//! the records of its range, in the order of the log, and is the same bytes whichever run writes it: one over a whole
//! archive, or one over a part of it that begins and ends with cuts. A range without records has no file.
//!
//! A file is written under its name with a dot before it and `.part` behind it, which no reader takes for a file of the
//! dataset, and gets its name when it is whole. Under that name there is never a part of a file, also after a crash. A
//! range that is written again replaces its file.
//!
//! Cost: that of the log in one file, and for each range a folder, a file, a sync and a rename.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use larder_wire::civil::Civil;

use super::Log;
use crate::Error;
use crate::files::make_directory;
use crate::options::{Endpoint, Options, OutputFormat, SortBy};
use crate::pipeline::Work;
use crate::worker::Place;

/// See the module.
pub struct Dataset {
    folder: PathBuf,
    /// Those of the run, without the dataset.
    options: Options,
    every_ns: i64,
    /// When the input began, ns.
    first_ns: i64,
    /// The range that the packets' clock is in: when it begins, ns; `None` before the clock has a time.
    range_ns: Option<i64>,
    /// The cuts of the batch that the log has not come to: the packet before which each is, and the range that it
    /// begins, ns. The latest comes first.
    cuts: Vec<(u64, i64)>,
    file: Option<File>,
    is_interrupted: bool,
}

/// The file of the current range.
struct File {
    log: Box<Log>,
    path: PathBuf,
}

impl Dataset {
    /// Creates the folder.
    pub fn open(folder: PathBuf, options: &Options) -> Result<Dataset, Error> {
        let refuse = |why: &str| Err(Error::Options(format!("--dataset: {why}")));
        if options.cut_every_s == 0 {
            return refuse("its files end at cuts; add --cut-every 1h");
        }
        if options.output != Endpoint::Pipe || options.ipfix_to.is_some() {
            return refuse("it takes the place of -o and --ipfix-to; leave them out");
        }
        if options.format == OutputFormat::Ipfix {
            return refuse(
                "an IPFIX file is one stream of numbered messages; use another --format",
            );
        }
        if options.sort_by == SortBy::Start {
            return refuse("records are in the order of their ends; leave --sort out");
        }
        if options.rotation.is_wanted() {
            return refuse("it has a file for each time between two cuts; leave log rotation out");
        }
        make_directory(&folder, "--dataset", options.access)?;
        let every_ns = options.cut_every_ns();
        let options = Options { dataset: None, ..options.clone() };
        Ok(Dataset {
            folder,
            options,
            every_ns,
            first_ns: 0,
            range_ns: None,
            cuts: Vec::new(),
            file: None,
            is_interrupted: false,
        })
    }

    /// Notes the cuts of a batch.
    pub fn begin_batch(&mut self, work: &Work) {
        self.first_ns = work.capture_start_ns;
        let ticks = &work.decoded.ticks;
        if let (None, Some(first)) = (self.range_ns, ticks.first()) {
            self.range_ns = Some(self.range_of(first.time_ns));
        }
        let cuts = ticks.iter().rev().filter(|tick| tick.is_cut);
        let cuts = cuts.map(|tick| (work.packets_before + u64::from(tick.packet), tick.time_ns));
        self.cuts = cuts.map(|(packet, time_ns)| (packet, self.range_of(time_ns))).collect();
    }

    /// Comes to the record at `place`. Ranges that end before it are closed.
    pub fn come_to(&mut self, place: &Place) -> Result<(), Error> {
        let is_behind = |cut: &mut (u64, i64)| {
            cut.0 < place.end_packet || (cut.0 == place.end_packet && place.is_by_packet)
        };
        while let Some((_, range_ns)) = self.cuts.pop_if(is_behind) {
            self.begin(range_ns)?;
        }
        Ok(())
    }

    /// Ends a batch: closes the ranges that end in it.
    pub fn end_batch(&mut self) -> Result<(), Error> {
        while let Some((_, range_ns)) = self.cuts.pop() {
            self.begin(range_ns)?;
        }
        Ok(())
    }

    /// Takes rendered records of the current range.
    pub fn take(&mut self, rendered: &[u8]) -> Result<(), Error> {
        let range_ns = self.range_ns.unwrap_or_else(|| self.range_of(self.first_ns));
        let mut file = match self.file.take() {
            Some(file) => file,
            None => File::create(self.path_of(range_ns), range_ns, &self.options)?,
        };
        let taken = file.log.take(rendered, range_ns);
        self.file = Some(file);
        taken
    }

    /// The current range will not be whole: its file keeps its hidden name.
    pub fn interrupt(&mut self) {
        self.is_interrupted = true;
    }

    /// Ends the last range.
    pub fn finish(mut self) -> Result<(), Error> {
        self.close(self.range_ns.unwrap_or_default())
    }

    fn begin(&mut self, range_ns: i64) -> Result<(), Error> {
        let ended_ns = self.range_ns.replace(range_ns).unwrap_or(range_ns);
        self.close(ended_ns)
    }

    fn close(&mut self, range_ns: i64) -> Result<(), Error> {
        let Some(File { log, path }) = self.file.take() else { return Ok(()) };
        log.finish(range_ns)?;
        if self.is_interrupted {
            return Ok(());
        }
        let written = hidden(&path);
        let rename = || {
            // Else a power failure may leave an empty file under the name of a whole one.
            std::fs::File::open(&written)?.sync_all()?;
            std::fs::rename(&written, &path)
        };
        rename().map_err(|error| Error::Output {
            what: path.display().to_string(),
            why: format!("{error}; make room, or name another folder with --dataset"),
        })
    }

    fn range_of(&self, time_ns: i64) -> i64 {
        time_ns.div_euclid(self.every_ns).saturating_mul(self.every_ns)
    }

    fn path_of(&self, range_ns: i64) -> PathBuf {
        let time = format!("{:.0}", Civil::from_ns(range_ns));
        let (date, hour) = (&time[..10], &time[11..13]);
        let extension = match self.options.format {
            OutputFormat::Text | OutputFormat::Zeek => "log",
            OutputFormat::Ecs => "jsonl",
            OutputFormat::Csv => "csv",
            OutputFormat::Ipfix => "ipfix",
            OutputFormat::Parquet => "parquet",
        };
        let folder = self.folder.join(format!("date={date}/hour={hour}"));
        folder.join(format!("flows.{}.{extension}", time.replace(':', "-")))
    }
}

impl File {
    fn create(path: PathBuf, range_ns: i64, options: &Options) -> Result<File, Error> {
        if let Some(folder) = path.parent() {
            make_directory(folder, "--dataset", options.access)?;
        }
        let output = Endpoint::Path(hidden(&path));
        let mut log = Log::open(&Options { output, ..options.clone() })?;
        log.begin(range_ns)?;
        Ok(File { log: Box::new(log), path })
    }
}

/// The name of a file until it is whole: Spark skips those with a dot, others take those that end in `.parquet`.
fn hidden(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".part");
    path.with_file_name(name)
}
