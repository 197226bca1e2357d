//! What `larder annotate` reads: which inputs go together, and whether each can be opened.

use std::fs;
use std::io::IsTerminal;
use std::path::Path;

use larder_annotate::Options;
use larder_annotate::options::Endpoint;
use larder_io::over_tcp::Remote;
use larder_settings::exit::Failure;

/// Every input of the run: what the flag is called, and where it is.
pub fn inputs(options: &Options) -> Vec<(&'static str, &Endpoint)> {
    let mut inputs: Vec<(&str, &Endpoint)> = Vec::new();
    inputs.extend(options.read.iter().map(|input| ("-r", input)));
    inputs.extend(options.names_read.iter().map(|input| ("--names-read", input)));
    inputs.extend(options.zeek_dns.iter().map(|input| ("--zeek-dns", input)));
    inputs.extend(options.eve.iter().map(|input| ("--eve", input)));
    inputs.extend(options.zeek_log.iter().map(|input| ("--zeek-log", input)));
    inputs.extend(options.flows_read.iter().map(|input| ("--flows-read", input)));
    inputs.extend(options.dnstap.iter().map(|input| ("--dnstap", input)));
    inputs
}

/// Refuses inputs that are missing, can't be read, or don't go together.
pub fn check_inputs(options: &Options, is_live: bool) -> Result<(), Failure> {
    let has_log = options.eve.is_some() || options.zeek_log.is_some();
    if is_live && has_log {
        return Err(Failure::usage(
            "-i with --eve or --zeek-log: a log needs a run of its own; run it without -i and with --names-load",
        ));
    }
    let listens = !options.flows_listen.is_empty();
    if listens && (has_log || !options.read.is_empty() || !options.flows_read.is_empty()) {
        return Err(Failure::usage(
            "--flows-listen with -r, --eve, --zeek-log or --flows-read: these are of the past; name the sources of \
             names with -i, --zeek-dns, --dnstap or --names-load",
        ));
    }
    let has_flows = listens || !options.flows_read.is_empty();
    if !options.flows_read.is_empty() && (is_live || has_log) {
        return Err(Failure::usage(
            "--flows-read with -i, --eve or --zeek-log: one run does one of them; run larder twice",
        ));
    }
    check_names_read(options)?;
    check_times(options, is_live)?;
    let has_names =
        !options.zeek_dns.is_empty() || options.dnstap.is_some() || !options.names_load.is_empty();
    if options.names_at.is_some() && (is_live || has_log || has_flows) {
        return Err(Failure::usage(
            "--names-at with -i, --eve, --zeek-log or --flows-read: one run does one of them; run larder twice",
        ));
    }
    if options.names_at.is_some() && options.read.is_empty() && !has_names {
        return Err(Failure::usage(
            "--names-at: no source of names; add -r FILE, --zeek-dns FILE, --dnstap FILE or --names-load FILE",
        ));
    }
    if options.read.is_empty() && !has_log && !is_live && !has_flows && options.names_at.is_none() {
        return Err(Failure::usage(if std::io::stdin().is_terminal() {
            "no input: name a capture with -r FILE, or an interface with -i IFACE (try larder demo first)"
        } else {
            "no input: name a capture with -r FILE, or an interface with -i IFACE; standard input is read only \
             with -r -"
        }));
    }
    let inputs = inputs(options);
    let pipes: Vec<&str> =
        inputs.iter().filter(|input| *input.1 == Endpoint::Pipe).map(|input| input.0).collect();
    if pipes.len() > 1 {
        return Err(Failure::usage(format!(
            "{} both read standard input; name files for all but one",
            pipes.join(" and ")
        )));
    }
    if !pipes.is_empty() && std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "{} -: standard input is a terminal; pipe a capture into it: tcpdump -U -w - | larder annotate -r -",
            pipes[0]
        )));
    }
    check_over_tcp(options, &inputs)?;
    for (flag, input) in inputs {
        if let Endpoint::Path(path) = input {
            // A dnstap socket is ours to make.
            if flag == "--dnstap" && !path.exists() {
                continue;
            }
            check_readable(flag, path)?;
        }
    }
    options.names_load.iter().try_for_each(|path| check_readable("--names-load", path))
}

/// What captures over TCP go with.
fn check_over_tcp(options: &Options, inputs: &[(&'static str, &Endpoint)]) -> Result<(), Failure> {
    for (flag, input) in inputs {
        let Endpoint::Tcp(place) = input else { continue };
        if !matches!(*flag, "-r" | "--names-read" | "--flows-read") {
            return Err(Failure::usage(format!(
                "{flag} {input}: only captures are read over TCP; pipe it: nc HOST PORT | larder annotate {flag} -"
            )));
        }
        Remote::parse(place).map_err(|why| Failure::usage(format!("{flag} {input}: {why}")))?;
    }
    let has_log = options.eve.is_some() || options.zeek_log.is_some();
    let is_other = has_log || !options.flows_read.is_empty();
    if options.listens() && (is_other || !options.names_read.is_empty() || options.resume) {
        return Err(Failure::usage(
            "--pcap-listen with --eve, --zeek-log, --names-read, --flows-read or --resume: these read \
             what is complete; write the packets to a file with -w, and read it with -r",
        ));
    }
    Ok(())
}

/// What `--names-read` goes with.
fn check_names_read(options: &Options) -> Result<(), Failure> {
    if options.names_read.is_empty() {
        return Ok(());
    }
    let has_log = options.eve.is_some() || options.zeek_log.is_some();
    if options.read.is_empty() || has_log {
        return Err(Failure::usage(
            "--names-read: only with the flows of -r FILE; for others first run -r with --names-save, then \
             --names-load",
        ));
    }
    if options.names_at.is_some() || !options.flows_read.is_empty() {
        return Err(Failure::usage(
            "--names-read with --names-at or --flows-read: these read -r for names only; name the capture with -r",
        ));
    }
    if options.packets_max.is_some() {
        return Err(Failure::usage(
            "--names-read with -c: it is unclear which packets count; cut the capture of -r first",
        ));
    }
    Ok(())
}

/// What `--from`, `--to` and `--capture-began` go with.
fn check_times(options: &Options, is_live: bool) -> Result<(), Failure> {
    let of_packets = !options.read.is_empty()
        && options.names_at.is_none()
        && options.flows_read.is_empty()
        && options.eve.is_none()
        && options.zeek_log.is_none();
    let has_begin = options.from_ns.is_some() || options.resume;
    if (options.from_ns.is_some() || options.to_ns.is_some()) && !of_packets {
        return Err(Failure::usage(
            "--from and --to: only with the flows of -r FILE; select the lines of a log with another program",
        ));
    }
    if options.capture_began_ns.is_some() && !of_packets && !is_live {
        return Err(Failure::usage("--capture-began: only with the flows of -r FILE or -i IFACE"));
    }
    if let (Some(from), Some(to)) = (options.from_ns, options.to_ns)
        && from >= to
    {
        return Err(Failure::usage("--from and --to: no time is between them; exchange them"));
    }
    check_cuts(options, of_packets || is_live)?;
    if options.dataset.is_some() && !of_packets {
        return Err(Failure::usage(
            "--dataset: only with the flows of -r FILE; rotate other logs with --rotate-every",
        ));
    }
    if options.resume && options.dataset.is_none() {
        return Err(Failure::usage(
            "--resume: only with --dataset DIR, whose files say how far a run came; add it, or leave --resume out",
        ));
    }
    if has_begin && options.packets_max.is_some() {
        let flag = if options.resume { "--resume" } else { "--from" };
        return Err(Failure::usage(format!(
            "{flag} with -c: it is unclear which packets count; end the range with --to instead",
        )));
    }
    Ok(())
}

/// What `--cut-every` goes with.
fn check_cuts(options: &Options, is_of_packets: bool) -> Result<(), Failure> {
    const MINUTE_S: u32 = 60;
    let every_s = options.cut_every_s;
    if every_s == 0 {
        return Ok(());
    }
    if !is_of_packets {
        return Err(Failure::usage("--cut-every: only with the flows of -r FILE or -i IFACE"));
    }
    if !every_s.is_multiple_of(MINUTE_S) {
        return Err(Failure::usage(
            "--cut-every: cuts are at whole minutes; give a multiple of 1m",
        ));
    }
    let every_ns = i64::from(every_s) * 1_000_000_000;
    for (flag, time_ns) in [("--from", options.from_ns), ("--to", options.to_ns)] {
        if time_ns.is_some_and(|time_ns| time_ns.rem_euclid(every_ns) != 0) {
            return Err(Failure::usage(format!(
                "{flag} with --cut-every: it is between two cuts; give the time of a cut, or leave --cut-every out"
            )));
        }
    }
    if (options.from_ns.is_some() || options.resume) && options.write_packets.is_some() {
        let (flag, other) = match options.resume {
            true => ("--resume", "-w"),
            false => ("--from", "--cut-every"),
        };
        return Err(Failure::usage(format!(
            "-w with --cut-every and {flag}: names of flows that began earlier would be missing; leave {other} out",
        )));
    }
    Ok(())
}

/// Opens regular files only: opening a named pipe would wait for its writer, or eat its bytes.
pub fn check_readable(flag: &str, path: &Path) -> Result<(), Failure> {
    let what = format!("{flag} {}", path.display().to_string().escape_debug());
    let metadata = fs::metadata(path)
        .map_err(|error| Failure::file(&what, &error, "check the path, or name another file"))?;
    if metadata.is_dir() {
        let next = match flag {
            "-r" | "--names-read" | "--zeek-dns" | "--flows-read" => {
                let folder = path.display().to_string();
                format!("name the files in it: {flag} {}/*", folder.escape_debug())
            }
            _ => "name a file in it".to_owned(),
        };
        return Err(Failure::usage(format!("{what}: is a directory; {next}")));
    }
    if metadata.is_file() {
        fs::File::open(path).map_err(|error| {
            Failure::file(&what, &error, "correct its permissions, or run larder as another user")
        })?;
    }
    Ok(())
}
