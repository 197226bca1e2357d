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
//! `--resume` is a `--from` that begins with the last file that is there: the captures may have ended in the middle of
//! its range, and may have more packets now.
//!
//! Cost: that of the log in one file, and for each range a folder, a file, a sync and a rename.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use larder_wire::civil::{Civil, days_since_1970};

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
        if options.format == OutputFormat::Rows {
            return refuse("rows go to a program and to no file; use another format");
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
        path_of(&self.folder, self.options.format, range_ns)
    }
}

/// The file of the range that begins at `range_ns`.
fn path_of(folder: &Path, format: OutputFormat, range_ns: i64) -> PathBuf {
    let time = format!("{:.0}", Civil::from_ns(range_ns));
    let (date, hour) = (&time[..10], &time[11..13]);
    let extension = match format {
        OutputFormat::Text | OutputFormat::Zeek => "log",
        OutputFormat::Ecs => "jsonl",
        OutputFormat::Csv => "csv",
        OutputFormat::Ipfix => "ipfix",
        OutputFormat::Parquet => "parquet",
        OutputFormat::Rows => "rows",
    };
    let folder = folder.join(format!("date={date}/hour={hour}"));
    folder.join(format!("flows.{}.{extension}", time.replace(':', "-")))
}

/// When the range of the last whole file begins, ns; `None` if no file is whole. Names of other forms are none of ours.
fn last_range_ns(folder: &Path, format: OutputFormat) -> io::Result<Option<i64>> {
    let mut last_ns = None;
    for date in entries(folder)? {
        for hour in entries(&date)? {
            for file in entries(&hour)? {
                let range_ns = file.file_name().and_then(|name| range_of_file(name.to_str()?));
                let is_ours = |range_ns: &i64| path_of(folder, format, *range_ns) == file;
                last_ns = last_ns.max(range_ns.filter(is_ours));
            }
        }
    }
    Ok(last_ns)
}

/// What is in a folder; nothing if it is none.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let read = match std::fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        read => read?,
    };
    read.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// When the range of a file begins by the file's name, ns.
fn range_of_file(name: &str) -> Option<i64> {
    let time = name.strip_prefix("flows.")?.split('.').next()?.strip_suffix('Z')?;
    let mut numbers = time.split(['-', 'T']).map(|number| number.parse::<u16>().ok());
    let mut next = || numbers.next().flatten().map(i64::from);
    let days = days_since_1970(next()?, next()?, next()?);
    let seconds = ((days * 24 + next()?) * 60 + next()?) * 60 + next()?;
    seconds.checked_mul(1_000_000_000)
}

/// `--resume`: the same run from the last whole file of the dataset on.
pub(crate) fn resumed(options: &Options) -> Result<Options, Error> {
    let Some(folder) = &options.dataset else {
        let why = "--resume: only with --dataset, whose files say how far a run came";
        return Err(Error::Options(why.to_owned()));
    };
    let failed = |error: io::Error| Error::Output {
        what: folder.display().to_string(),
        why: format!("{error}; --resume must read the dataset"),
    };
    let Some(last_ns) = last_range_ns(folder, options.format).map_err(failed)? else {
        return Ok(options.clone());
    };
    let every_ns = options.cut_every_ns();
    let begins = format!("{:.0}", Civil::from_ns(last_ns));
    if every_ns > 0 && last_ns.rem_euclid(every_ns) != 0 {
        return Err(Error::Options(format!(
            "--resume: the dataset has a file that begins at {begins}, between two cuts; give the --cut-every that it \
             was made with"
        )));
    }
    let from_ns = options.from_ns.max(Some(last_ns));
    options.log.of("dataset").info("resumed").text("from", &begins);
    Ok(Options { from_ns, ..options.clone() })
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
