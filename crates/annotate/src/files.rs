//! Outputs, directories and saved names of a run.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use larder_io::access::Access;
use larder_io::input::Input;
use larder_io::output::{Output, OutputError};

use crate::Error;
use crate::names::{Names, Recall};
use crate::names_file;
use crate::options::{Endpoint, Options, Summary};

/// Opens captures; waits for the first bytes of pipes, until `stop`.
pub(crate) fn open_inputs(endpoints: &[Endpoint], stop: &AtomicBool) -> Result<Vec<Input>, Error> {
    endpoints
        .iter()
        .map(|endpoint| match endpoint {
            Endpoint::Pipe => Ok(Input::open(Path::new("-"))?),
            Endpoint::Path(path) => Ok(Input::open_until(path, stop)?),
            Endpoint::Bytes(bytes) => Ok(Input::from_static("the sample", bytes)),
        })
        .collect()
}

/// Opens an output; `-` is standard output.
pub fn open_output(endpoint: &Endpoint, access: Access) -> Result<Output, Error> {
    match endpoint {
        Endpoint::Path(path) => Ok(Output::create_for(path, access)?),
        Endpoint::Pipe | Endpoint::Bytes(_) => Ok(Output::create(Path::new("-"))?),
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
