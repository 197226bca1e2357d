//! Outputs, directories and saved names of a run.

use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use larder_io::access::Access;
use larder_io::input::Input;
use larder_io::output::{Output, OutputError};
use larder_io::over_tcp::{Remote, SenderEvent, Senders};
use larder_serve::log::Log;

use crate::Error;
use crate::names::{Names, Recall};
use crate::names_file;
use crate::options::{Endpoint, Options, Summary};

/// Opens captures; waits for the first bytes of pipes, until `stop`.
pub(crate) fn open_inputs(
    endpoints: &[Endpoint],
    log: &Log,
    stop: &AtomicBool,
) -> Result<Vec<Input>, Error> {
    endpoints
        .iter()
        .map(|endpoint| match endpoint {
            Endpoint::Pipe => Ok(Input::open(Path::new("-"))?),
            Endpoint::Path(path) => Ok(Input::open_until(path, stop)?),
            Endpoint::Bytes(bytes) => Ok(Input::from_static("the sample", bytes)),
            Endpoint::Tcp(place) => Ok(Input::connect_until(&remote(place)?, stop)?),
            Endpoint::Listen(address) => {
                Ok(Input::from_senders(listen(*address, log.of("capture"))?))
            }
        })
        .collect()
}

fn remote(place: &str) -> Result<Remote, Error> {
    let what = || Endpoint::Tcp(place.to_owned()).to_string();
    Remote::parse(place).map_err(|why| Error::Input { what: what(), why })
}

/// Listens for senders of captures, and logs their connections.
fn listen(address: SocketAddr, log: Log) -> Result<Senders, Error> {
    let of_senders = log.clone();
    let report = move |sender: SocketAddr, event| match event {
        SenderEvent::Connected => drop(of_senders.info("connected").text("sender", sender)),
        SenderEvent::Ended => drop(of_senders.info("ended").text("sender", sender)),
        SenderEvent::Refused(why) => {
            drop(of_senders.warn("refused").text("sender", sender).text("reason", why));
        }
    };
    let senders = Senders::listen(address, Box::new(report));
    let senders = senders.map_err(|error| Error::Input {
        what: format!("--pcap-listen {address}"),
        why: error.to_string(),
    })?;
    log.info("listening").text("address", senders.address());
    Ok(senders)
}

/// Opens an output; `-` is standard output.
pub fn open_output(endpoint: &Endpoint, access: Access) -> Result<Output, Error> {
    match endpoint {
        Endpoint::Path(path) => Ok(Output::create_for(path, access)?),
        Endpoint::Tcp(place) => Ok(Output::connect(&remote(place)?)?),
        Endpoint::Pipe | Endpoint::Bytes(_) | Endpoint::Listen(_) => {
            Ok(Output::create(Path::new("-"))?)
        }
    }
}

pub(crate) fn make_directory(path: &Path, flag: &str, access: Access) -> Result<(), Error> {
    access.make_folder(path).map_err(|error| Error::Output {
        what: path.display().to_string(),
        why: format!("{error}; {flag} wants a folder that can be written to"),
    })
}

/// Names for sources that state no networks: those of `--names-load`, and no readers.
pub(crate) fn names_without_networks(options: &Options, budget_bytes: u64) -> Result<Names, Error> {
    let Options { seed, candidates_max, rules, .. } = *options;
    let (mut names, _) = Names::new(budget_bytes, 0, seed, candidates_max, rules)?;
    load_names(&mut names, options, true, &mut || ())?;
    Ok(names)
}

/// Loads the files of `--names-load`. The names of one are as they were saved, those of several are joined.
pub(crate) fn load_names(
    names: &mut Names,
    options: &Options,
    ignores_vlan: bool,
    make_way: &mut dyn FnMut(),
) -> Result<(), Error> {
    let paths = &options.names_load;
    let recall = if paths.len() > 1 { Recall::Joined } else { Recall::AsSaved };
    for path in paths {
        let what = || path.display().to_string();
        let file = std::fs::File::open(path).map_err(|error| Error::Input {
            what: what(),
            why: format!("{error}; make the file with --names-save"),
        })?;
        let input = &mut BufReader::new(file);
        names_file::load(names, input, ignores_vlan, recall, make_way)
            .map_err(|why| Error::Input { what: what(), why })?;
    }
    if recall == Recall::Joined {
        names.settle(make_way)?;
    }
    Ok(())
}

/// The path of a file in the directory of `-d`, if there is one.
pub(crate) fn in_directory(options: &Options, name: &str) -> Option<PathBuf> {
    options.directory.as_ref().map(|directory| directory.join(name))
}

/// Writes the names to the file of `--names-save` and to `names.log`, and counts them in `summary`.
pub(crate) fn save_all_names(
    names: &Names,
    options: &Options,
    summary: &mut Summary,
) -> Result<(), Error> {
    let paths = [options.names_save.clone(), in_directory(options, "names.log")];
    for path in paths.into_iter().flatten() {
        save_names(names, &path, options.access)?;
    }
    (summary.names_known, summary.names_evicted) = names.counts();
    summary.names_refused = names.refused();
    Ok(())
}

/// Writes the counters to `stats.json` in the directory of `-d`, and to the file of `--stats`.
pub(crate) fn save_stats(summary: &Summary, options: &Options) -> Result<(), Error> {
    let paths = [in_directory(options, "stats.json"), options.stats.clone()];
    for path in paths.into_iter().flatten() {
        let mut out = Output::create_for(&path, options.access)?;
        out.write_all(summary.to_json().as_bytes())?;
        out.finish()?;
    }
    Ok(())
}

/// Writes next to the file and then renames, so that a reader never sees half of it. A link is followed
/// first. A device or a pipe is written where it is, since renaming would put a file in its place.
fn save_names(names: &Names, path: &Path, access: Access) -> Result<(), Error> {
    let failed =
        |error: std::io::Error| Error::from(OutputError::new(&path.display().to_string(), error));
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let replace = std::fs::metadata(&target).map_or(true, |metadata| metadata.is_file());
    let mut written = target.clone().into_os_string();
    if replace {
        written.push(".part");
    }
    let written = PathBuf::from(written);
    let mut out = Output::create_for(&written, access)?;
    names_file::save(names, &mut out).map_err(failed)?;
    out.finish()?;
    if replace {
        std::fs::rename(&written, &target).map_err(failed)?;
    }
    Ok(())
}
