//! `larder annotate`: settings to a run, and how the run ends.
//!
//! Everything that can be refused without reading a packet is refused here, before an output is
//! created: no input, an input that cannot be opened, two inputs on one pipe, a log that would
//! overwrite its own capture.

mod inputs;

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use larder_annotate::live::LiveCapture;
use larder_annotate::options::{
    AddressQuery, Endpoint, LookupPer, NameSources, Operation, OutputFormat, Rotation, SortBy,
    Unresolved,
};
use larder_annotate::{Options, Progress, Summary};
use larder_io::input::is_same_file;
use larder_io::over_tcp::Remote;
use larder_io::privileges;
use larder_serve::log::Log;
use larder_serve::reload::{Reloaded, log_outcome};
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::layers::Resolved;
use larder_settings::row::Text;
use larder_wire::Addr;

pub use inputs::{check_inputs, check_readable, inputs};

use crate::addresses::{addresses, not_an_address, parse_address};
use crate::progress::bar;
use crate::reloading::{Again, Reloading};
use crate::settings::{Annotate, Input, Output};
use crate::{live, logs, signals, summary};

/// The port that IANA registered for IPFIX over UDP.
const IPFIX_PORT: u16 = 4_739;

fn log_words(settings: &Annotate) -> logs::Words {
    (settings.operation.log_level, settings.operation.log_format)
}

/// Reads the settings after SIGHUP. A run applies those of its log; a line names the others that
/// changed.
fn reload(reloading: &Reloading, log: &Log) {
    let read = reloading.read().map(|(settings, changes)| {
        logs::follow(log, log_words(&settings.read()));
        reloading.apply(settings);
        Reloaded { changes, parts: Vec::new() }
    });
    log_outcome(log, &read);
}

/// Runs the command.
pub fn annotate(resolved: Resolved, again: Again) -> Outcome {
    let settings: Annotate = resolved.read();
    let mut options = options(&settings)?;
    let log = logs::log("annotate", log_words(&settings));
    options.log = log.clone();
    if let Some(store) = &mut options.store {
        store.log = log.of("store");
    }
    let input = live::input(&settings.input, &settings.capture)?;
    if options.format == OutputFormat::Parquet && !cfg!(feature = "parquet") {
        return Err(Failure::usage(
            "--format parquet: not in this build; cargo build --release --features parquet, \
             or use --format csv",
        ));
    }
    check_inputs(&options, input.is_some())?;
    check_outputs(&options)?;
    let quiet = settings.output.quiet;
    // Log lines and a bar on one terminal would overwrite each other.
    let log_on_terminal = writes_to_pipe(&options) && std::io::stdout().is_terminal();
    let bar_wanted = !quiet && !settings.output.no_progress && !log_on_terminal;
    let progress = Arc::new(Progress::default());
    live::join(options.access)?;
    // Before there is another thread: a thread that exists would keep its capabilities.
    let capture = input.as_ref().map(|input| open(input, &options)).transpose()?;
    let reloading = Reloading::new(resolved, again);
    let reload = {
        let log = log.clone();
        move || reload(&reloading, &log)
    };
    let stopping = (!quiet).then(|| log.clone());
    let signals = signals::stop_on_signals(&progress, stopping)
        .and_then(|()| signals::reopen_on_signals(&progress, reload));
    if let Err(error) = signals {
        return Err(Failure::file("signals", &error, "free some file descriptors or threads"));
    }
    let started = Instant::now();
    let summary = {
        let _printer = logs::print(&log)?;
        let _bar = bar(&progress, bar_wanted);
        let run = match capture {
            Some(capture) => larder_annotate::run_live(&options, capture, &progress),
            None => larder_annotate::run(&options, &progress),
        };
        signals::finish();
        run.map_err(failed)?
    };
    // It is about flows.
    let wants_summary = settings.input.names_at.is_none() || summary.input_damaged;
    if !quiet && wants_summary {
        let _ = write!(std::io::stderr(), "{}", summary::text(&summary, started.elapsed()));
        let has_range = settings.input.from.is_some() || settings.input.to.is_some();
        if has_range && summary.packets == 0 {
            let _ = writeln!(std::io::stderr(), "{}", summary::OUT_OF_RANGE);
        }
    }
    if let Some(why) = summary.failure {
        return Err(Failure::usage(why));
    }
    Ok(match input {
        // A capture ends when it is stopped, and so does a listener.
        Some(_) => exit::DONE,
        None if summary.is_endless => exit::DONE,
        None => exit_code(&summary, settings.output.strict),
    })
}

/// Opens the interfaces, drops the capabilities, and logs the plan.
fn open(input: &live::Input, options: &Options) -> Result<LiveCapture, Failure> {
    let capture = larder_annotate::live::open(input).map_err(failed)?;
    privileges::drop_capabilities().map_err(|error| {
        Failure::file("capabilities", &error, "run as a user with CAP_NET_RAW alone")
    })?;
    let log = options.log.of("capture");
    capture.notes().iter().for_each(|note| drop(log.warn("limited").text("reason", note)));
    live::log_plan(input, options, &log);
    Ok(capture)
}

/// The exit code of a finished run.
pub fn exit_code(summary: &Summary, strict: bool) -> u8 {
    match summary {
        _ if summary.interrupted => exit::INTERRUPTED,
        _ if summary.input_damaged && strict => exit::FAILED,
        _ if summary.input_damaged => exit::DAMAGED,
        _ => exit::DONE,
    }
}

/// Why a run failed; without a message if the reader of its output closed it.
pub fn failed(error: larder_annotate::Error) -> Failure {
    match error {
        larder_annotate::Error::ClosedPipe => Failure::closed_pipe(),
        other => Failure::usage(other.to_string()),
    }
}

/// The collector of `--ipfix-to`.
fn ipfix_to(output: &Output) -> Result<Option<SocketAddr>, Failure> {
    let Some(word) = &output.ipfix_to else { return Ok(None) };
    let refuse = |text: &str| Err(Failure::usage(format!("--ipfix-to {word}: {text}")));
    if output.format != "ipfix" {
        return refuse("only IPFIX messages are sent; add --format ipfix");
    }
    if output.output != Path::new("-") {
        return refuse("the records would be written to -o as well; leave out one of them");
    }
    match parse_address(word, IPFIX_PORT) {
        Some(address) => Ok(Some(address)),
        None => Err(not_an_address("ipfix-to", word)),
    }
}

/// The format that a word of the table names.
pub fn format(word: &str) -> OutputFormat {
    match word {
        "ecs" => OutputFormat::Ecs,
        "zeek" => OutputFormat::Zeek,
        "csv" => OutputFormat::Csv,
        "ipfix" => OutputFormat::Ipfix,
        "parquet" => OutputFormat::Parquet,
        _ => OutputFormat::Text,
    }
}

/// Whether these settings go together. Nothing is started.
pub fn check(settings: &Annotate) -> Result<(), Failure> {
    options(settings).map(drop)
}

/// The options that the settings choose.
pub fn options(settings: &Annotate) -> Result<Options, Failure> {
    let Annotate { input, output, names, limits, rotation, capture, store, operation } = settings;
    let access = live::access(operation)?;
    Ok(Options {
        format: format(output.format),
        output: output.output.clone().into(),
        ipfix_to: ipfix_to(output)?,
        // With a store it names the folder.
        write_packets: endpoint(output.write.as_ref()).filter(|_| store.store.is_none()),
        directory: output.directory.clone(),
        dataset: output.dataset.clone(),
        resume: output.resume,
        stats: output.stats.clone(),
        names: sources(&names.names),
        cores: limits.cores,
        names_budget_bytes: limits.names_budget,
        min_confidence: names.min_confidence,
        flows_max: limits.flows_max,
        reassembly_budget_bytes: limits.reassembly_budget,
        candidates_max: names.candidates,
        seed: limits.seed,
        sort_by: match output.sort {
            "start" => SortBy::Start,
            _ => SortBy::End,
        },
        lookup_per: match names.lookup {
            "packet" => LookupPer::Packet,
            _ => LookupPer::Flow,
        },
        ignore_vlan: names.ignore_vlan,
        unresolved: match output.unresolved {
            "true" => Unresolved::True,
            "all" => Unresolved::All,
            _ => Unresolved::False,
        },
        ports_numeric: output.numeric,
        names_load: names.names_load.clone(),
        names_save: names.names_save.clone(),
        tcp_idle_s: limits.tcp_idle,
        udp_idle_s: limits.udp_idle,
        linger_s: limits.linger,
        rotation: Rotation {
            bytes_max: rotation.rotate_size,
            every_s: rotation.rotate_every,
            compress: rotation.compress,
            budget_bytes: rotation.logs_budget,
        },
        cut_every_s: limits.cut_every,
        active_s: if input.interface.is_empty() { 0 } else { limits.active },
        access,
        store: live::store(settings, access)?,
        serve: live::serve(store, access)?,
        page: live::page(settings, access)?,
        pins: live::pins(capture)?,
        operation: Operation {
            control: crate::addresses::control(operation.ctl.as_ref(), &operation.ctl_mode)?,
            metrics: crate::addresses::metrics(operation.metrics.as_ref())?,
        },
        ..of_inputs(input)?
    })
}

/// What is read, and what of it.
fn of_inputs(input: &Input) -> Result<Options, Failure> {
    let endpoints = |paths: &[PathBuf]| paths.iter().cloned().map(Endpoint::from).collect();
    let (read, filter, names_at) = packets_and_addresses(input)?;
    Ok(Options {
        read,
        filter,
        packets_max: input.count,
        names_read: endpoints(&input.names_read),
        from_ns: input.from,
        to_ns: input.to,
        capture_began_ns: input.capture_began,
        eve: endpoint(input.eve.as_ref()),
        zeek_log: endpoint(input.zeek_log.as_ref()),
        zeek_dns: endpoints(&input.zeek_dns),
        dnstap: endpoint(input.dnstap.as_ref()),
        flows_listen: addresses(&input.flows_listen, IPFIX_PORT)?,
        flows_read: endpoints(&input.flows_read),
        flows_delay_s: input.flows_delay,
        names_at,
        ..Options::default()
    })
}

fn endpoint(path: Option<&PathBuf>) -> Option<Endpoint> {
    path.cloned().map(Endpoint::from)
}

/// The captures, and the words without a flag: a filter, or the addresses of `--names-at`.
fn packets_and_addresses(
    input: &Input,
) -> Result<(Vec<Endpoint>, String, Option<AddressQuery>), Failure> {
    let Some(time_ns) = input.names_at else {
        if input.names_for.is_some() {
            return Err(Failure::usage("--names-for: only with --names-at TIME ADDRESS..."));
        }
        let (read, filter) = live::read(input)?;
        return Ok((read, filter, None));
    };
    if input.pcap_listen.is_some() {
        return Err(Failure::usage(
            "--names-at with --pcap-listen: it reads what is complete; name captures with -r FILE",
        ));
    }
    let read = input.read.iter().cloned().map(Endpoint::from).collect();
    Ok((read, String::new(), Some(address_query(input, time_ns)?)))
}

/// The addresses of `--names-at`.
fn address_query(input: &Input, time_ns: i64) -> Result<AddressQuery, Failure> {
    let address = |flag: &str, word: &Text| {
        word.parse::<IpAddr>().map(Addr::from).map_err(|_| {
            Failure::usage(format!(
                "{flag} {:?}: no IP address; write one, such as 192.0.2.1",
                &**word
            ))
        })
    };
    let addrs: Vec<Addr> =
        input.filter.iter().map(|word| address("--names-at", word)).collect::<Result<_, _>>()?;
    if addrs.is_empty() {
        return Err(Failure::usage("--names-at: no addresses; write them after the time"));
    }
    let client = input.names_for.as_ref().map(|word| address("--names-for", word)).transpose()?;
    Ok(AddressQuery { time_ns, client, addrs })
}

/// The set that a list of the table names.
fn sources(list: &str) -> NameSources {
    NameSources::parse(list).expect("the table takes words that the library knows")
}

/// The log is written to standard output.
fn writes_to_pipe(options: &Options) -> bool {
    options.output == Endpoint::Pipe && options.dataset.is_none() && options.ipfix_to.is_none()
}

/// Refuses outputs that would overwrite an input or each other, or that a terminal cannot show.
pub fn check_outputs(options: &Options) -> Result<(), Failure> {
    let mut outputs = vec![("-o", &options.output)];
    outputs.extend(options.write_packets.iter().map(|output| ("-w", output)));
    check_outputs_over_tcp(options)?;
    let pipes = outputs.iter().filter(|output| *output.1 == Endpoint::Pipe).count();
    if pipes > 1 {
        return Err(Failure::usage(
            "-o and -w both write to standard output; name a file for one of them",
        ));
    }
    if options.rotation.is_wanted()
        && options.output == Endpoint::Pipe
        && options.directory.is_none()
    {
        return Err(Failure::usage(
            "--rotate-size, --rotate-every, --compress and --logs-budget need a log file; add -o FILE",
        ));
    }
    if std::io::stdout().is_terminal() {
        if options.write_packets == Some(Endpoint::Pipe) {
            return Err(Failure::usage("-w -: standard output is a terminal; name a file"));
        }
        let binary = match options.format {
            OutputFormat::Parquet => Some("parquet"),
            OutputFormat::Ipfix => Some("ipfix"),
            _ => None,
        };
        if let Some(format) = binary.filter(|_| writes_to_pipe(options)) {
            return Err(Failure::usage(format!(
                "--format {format}: standard output is a terminal; add -o FILE"
            )));
        }
    }
    let mut files: Vec<(&str, &Path)> = Vec::new();
    for (flag, output) in outputs {
        if let Endpoint::Path(path) = output {
            files.push((flag, path));
        }
    }
    files.extend(options.names_save.iter().map(|path| ("--names-save", path.as_path())));
    files.extend(options.stats.iter().map(|path| ("--stats", path.as_path())));
    if let Some(path) = &options.names_save {
        check_writable_later(path)?;
    }
    for (index, (flag, path)) in files.iter().enumerate() {
        let what = || format!("{flag} {}", path.display().to_string().escape_debug());
        let overwrites_input = inputs(options)
            .into_iter()
            .any(|(_, input)| matches!(input, Endpoint::Path(input) if is_same_file(input, path)));
        if overwrites_input {
            return Err(Failure::usage(format!("{}: this is an input; name another file", what())));
        }
        let before = files[..index]
            .iter()
            .find(|(_, other)| is_same_file(other, path) || (other == path && !path.exists()));
        if let Some((other, _)) = before {
            return Err(Failure::usage(format!(
                "{}: {other} writes to the same file; name another file",
                what()
            )));
        }
    }
    Ok(())
}

/// Refuses to send a log over TCP, and packets to a place that is none.
fn check_outputs_over_tcp(options: &Options) -> Result<(), Failure> {
    if let Endpoint::Tcp(_) = &options.output {
        return Err(Failure::usage(format!(
            "-o {}: only captures are sent over TCP, by -w; write the log to a file, or pipe it into nc",
            options.output
        )));
    }
    if let Some(output @ Endpoint::Tcp(place)) = &options.write_packets {
        Remote::parse(place).map_err(|why| Failure::usage(format!("-w {output}: {why}")))?;
    }
    Ok(())
}

/// Names are saved when all is read: hours may have gone by then, so what is wrong is said now.
fn check_writable_later(path: &Path) -> Result<(), Failure> {
    let what = || format!("--names-save {}", path.display().to_string().escape_debug());
    if path.is_dir() {
        return Err(Failure::usage(format!("{}: is a directory; name a file in it", what())));
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(Failure::usage(format!("{}: no such directory; create it first", what())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{PROGRAM, SOURCE_WORDS};

    fn options_of(flags: &[&str]) -> Result<Options, Failure> {
        let line = ["larder", "annotate"].iter().chain(flags);
        options(&PROGRAM.parse(line).expect("sound flags").settings_with("")?.read())
    }

    /// Every word that help lists for `--names` is one that the annotator knows.
    #[test]
    fn source_words_are_the_annotators() {
        for word in SOURCE_WORDS {
            assert!(NameSources::parse(word).is_ok(), "{word}");
        }
        assert_eq!(sources(&SOURCE_WORDS.join(",")), NameSources::all());
    }

    /// Invariant 3 of `settings`: without flags, the run is told what the library documents as its
    /// default; only the number of threads is the machine's.
    #[test]
    fn defaults_are_the_librarys() {
        let ours = options_of(&[]).expect("sound");
        let theirs = Options { cores: ours.cores, ..Options::default() };
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    /// Every flag arrives in the field it is meant for. The captures are there: words after the first that are no files would
    /// be a filter.
    #[test]
    #[allow(clippy::needless_update)]
    fn flags_arrive() {
        let line = "-r Cargo.toml src/main.rs -r - -o out --format ecs -w pk -d dir --names dns --cores 3 \
            --dataset ds --resume --stats st --names-budget 1MiB --flows-max 1000 --reassembly-budget 2MiB \
            --candidates 2 --seed 9 -c 10 -n --sort start --lookup packet --unresolved --names-save s \
            --names-load l --names-load l2 \
            --eve e --zeek-log z --zeek-dns d1 d2 --dnstap t \
            --flows-read f --flows-listen 127.0.0.1 --flows-delay 7s --tcp-idle 1m --udp-idle 2s --linger 0s \
            --rotate-size 1GiB --rotate-every 1h --compress --logs-budget 2GiB";
        let flags: Vec<&str> = line.split_whitespace().collect();
        let path = |path: &str| Endpoint::Path(path.into());
        let got = options_of(&flags).expect("sound");
        let expected = Options {
            read: vec![path("Cargo.toml"), path("src/main.rs"), Endpoint::Pipe],
            format: OutputFormat::Ecs,
            output: path("out"),
            write_packets: Some(path("pk")),
            directory: Some("dir".into()),
            dataset: Some("ds".into()),
            resume: true,
            stats: Some("st".into()),
            names: NameSources::parse("dns").expect("known"),
            cores: 3,
            names_budget_bytes: 1 << 20,
            flows_max: 1_000,
            reassembly_budget_bytes: 2 << 20,
            candidates_max: 2,
            seed: 9,
            packets_max: Some(10),
            sort_by: SortBy::Start,
            lookup_per: LookupPer::Packet,
            unresolved: Unresolved::True,
            ports_numeric: true,
            names_load: vec!["l".into(), "l2".into()],
            names_save: Some("s".into()),
            eve: Some(path("e")),
            zeek_log: Some(path("z")),
            zeek_dns: vec![path("d1"), path("d2")],
            dnstap: Some(path("t")),
            flows_listen: vec!["127.0.0.1:4739".parse().expect("an address")],
            flows_read: vec![path("f")],
            flows_delay_s: 7,
            tcp_idle_s: 60,
            udp_idle_s: 2,
            linger_s: 0,
            rotation: Rotation {
                bytes_max: 1 << 30,
                every_s: 3600,
                compress: true,
                budget_bytes: 2 << 30,
            },
            ..Options::default()
        };
        assert_eq!(format!("{got:?}"), format!("{expected:?}"));
    }

    /// Interrupted wins over damaged, and --strict makes damage a failure.
    #[test]
    fn exit_codes_follow_the_summary() {
        let mut summary = Summary::default();
        assert_eq!(exit_code(&summary, true), 0);
        summary.input_damaged = true;
        assert_eq!((exit_code(&summary, false), exit_code(&summary, true)), (1, 2));
        summary.interrupted = true;
        assert_eq!(exit_code(&summary, true), 130);
    }

    /// Contradictions are found before anything is created.
    #[test]
    fn contradictions_are_refused() {
        let refused = |flags: &[&str]| {
            let options = options_of(flags).expect("sound");
            check_inputs(&options, false)
                .and_then(|()| check_outputs(&options))
                .unwrap_err()
                .message
        };
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(refused(&[]).contains("-r FILE"));
        assert!(refused(&["--zeek-dns", own]).contains("no input"), "names alone have no flows");
        assert!(refused(&["-r", "-", "--eve", "-"]).contains("-r and --eve both read"));
        assert!(refused(&["-r", own, "-w", "-"]).contains("-o and -w"));
        assert!(refused(&["-r", own, "-o", own]).contains("this is an input"));
        assert!(refused(&["-r", own, "-o", "x", "-w", "x"]).contains("-o writes to the same file"));
        let twice = ["-r", own, "-o", "/dev/null", "-w", "/dev/null"];
        assert!(check_outputs(&options_of(&twice).expect("sound")).is_ok(), "a device takes all");
        assert!(refused(&["-r", own, "--compress"]).contains("add -o FILE"));
        let collector = |flags: &[&str]| {
            let flags = [&["-r", own, "--ipfix-to", "192.0.2.1"], flags].concat();
            options_of(&flags).map(|options| options.ipfix_to).map_err(|failure| failure.message)
        };
        assert!(collector(&[]).unwrap_err().contains("add --format ipfix"));
        let file = ["--format", "ipfix", "-o", "f"];
        assert!(collector(&file).unwrap_err().contains("leave out one"));
        assert_eq!(collector(&["--format", "ipfix"]), Ok("192.0.2.1:4739".parse().ok()));
        assert!(refused(&["-r", own, "--flows-listen", "127.0.0.1"]).contains("of the past"));
        assert!(refused(&["-r", "/"]).contains("is a directory"));
        assert!(refused(&["-r", "no/such"]).contains("check the path"));
    }
}
