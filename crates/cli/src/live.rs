//! Settings of live capture and of the packet store, to options of the libraries.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use larder_annotate::Options;
pub use larder_annotate::live::Input;
use larder_annotate::options::{Endpoint, Page};
use larder_io::access::Access;
use larder_io::frame_filter::FrameFilter;
use larder_io::live::LiveOptions;
use larder_serve::log::Log;
use larder_settings::exit::Failure;
use larder_settings::value::Space;
use larder_store::serve;
use larder_store::{Hook, PinOptions, Privacy, Query, Reserve};

use crate::page::{self, token};
use crate::queries;
use crate::settings::{Annotate, Capture, Input as Inputs, Operation, Store};

/// What `-i` asks for; `None` without it.
pub fn input(inputs: &Inputs, capture: &Capture) -> Result<Option<Input>, Failure> {
    if inputs.interface.is_empty() {
        return Ok(None);
    }
    if inputs.pcap_listen.is_some() {
        return Err(Failure::usage(
            "-i and --pcap-listen: one run captures or receives captures; remove one of them",
        ));
    }
    if !inputs.read.is_empty() {
        return Err(Failure::usage(
            "-i and -r: one run captures or reads files, not both; remove one of them",
        ));
    }
    Ok(Some(Input {
        capture: LiveOptions {
            interfaces: inputs.interface.to_vec(),
            rings: capture.rings,
            ring_bytes: capture.ring_size,
            batch_ms: capture.batch_ms,
            snap_bytes: capture.snaplen,
            is_promiscuous: !capture.no_promiscuous,
            hardware_time: capture.hardware_time,
            xdp: capture.xdp,
            ..LiveOptions::default()
        },
        filter: apart(inputs),
    }))
}

/// The captures that `-r` names, and the filter for their packets. The filter follows them (`-r FILE...
/// FILTER`) or is apart. Of the words after `-r`, it begins with the first one that is no file.
pub fn read(inputs: &Inputs) -> Result<(Vec<Endpoint>, String), Failure> {
    let mut files: Vec<Endpoint> = inputs.read.iter().cloned().map(Endpoint::from).collect();
    let apart = apart(inputs);
    if !inputs.interface.is_empty() {
        // The filter is that of the interfaces.
        return Ok((files, String::new()));
    }
    if let Some(word) = &inputs.pcap_listen {
        if !files.is_empty() {
            return Err(Failure::usage(
                "-r and --pcap-listen: one run reads captures or receives them; remove one of them",
            ));
        }
        files.push(Endpoint::Listen(listen_address("--pcap-listen", word)?));
    }
    if files.is_empty() && !apart.is_empty() {
        let text = format!(
            "{apart:?}: the filter has no input; name a capture with -r FILE, or an interface with -i IFACE"
        );
        return Err(Failure::usage(text));
    }
    let first = files.iter().skip(1).position(is_no_file).map_or(files.len(), |at| at + 1);
    let words: Vec<String> = files.split_off(first).iter().map(word_of).collect();
    let behind = words.join(" ");
    let filter = match (apart.is_empty(), behind.is_empty()) {
        (false, false) => {
            return Err(Failure::usage(format!(
                "{behind:?} and {apart:?}: two filters; write one, after the files of -r or at the end"
            )));
        }
        (_, false) => behind,
        (_, true) => apart,
    };
    match FrameFilter::new(&filter) {
        Ok(_) => Ok((files, filter)),
        Err(error) => Err(Failure::usage(match words.first() {
            // The error of the filter helps only if its first word is one of the language.
            Some(word) if error.at_bytes == 0 => format!(
                "-r {word:?}: no such file, and no filter begins there; check the path, or write -r FILE FILTER"
            ),
            Some(word) => format!(
                "-r {word:?}: no such file, and no filter begins there ({error}); check the path, or write -r FILE FILTER"
            ),
            None => format!("the filter {filter:?}: {error}"),
        })),
    }
}

/// The filter of words that follow no flag.
fn apart(inputs: &Inputs) -> String {
    let words: Vec<&str> = inputs.filter.iter().map(|word| &**word).collect();
    words.join(" ")
}

/// True for a word that names no file. A path that cannot be read counts as a file.
fn is_no_file(endpoint: &Endpoint) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    match endpoint {
        Endpoint::Path(path) => fs::symlink_metadata(path)
            .is_err_and(|error| matches!(error.kind(), InvalidFilename | NotADirectory | NotFound)),
        _ => false,
    }
}

fn word_of(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Path(path) => path.to_string_lossy().into_owned(),
        other => other.to_string(),
    }
}

/// What `--store` asks for; `None` without it.
pub fn store(
    settings: &Annotate,
    access: Access,
) -> Result<Option<larder_store::Options>, Failure> {
    let store = &settings.store;
    let Some(budget_bytes) = store.store else { return Ok(None) };
    let directory = match settings.output.write.clone().map(Endpoint::from) {
        Some(Endpoint::Path(path)) => path,
        _ => {
            let text = "--store: no directory for the packets; add -w DIR";
            return Err(Failure::usage(text));
        }
    };
    if directory.exists() && !directory.is_dir() {
        return Err(Failure::usage(format!(
            "-w {}: not a directory; with --store, -w names the directory of the packets",
            directory.display()
        )));
    }
    Ok(Some(larder_store::Options {
        segment_bytes: store.segment,
        segment_ms: store.segment_time.saturating_mul(1_000),
        memory_bytes: store.store_memory,
        sync: store.store_sync,
        compress: store.store_compress,
        hook: hook(store)?,
        reserve: match store.store_free {
            Space::Bytes(bytes) => Reserve::Bytes(bytes),
            Space::Percent(percent) => Reserve::Percent(percent),
        },
        age: (store.store_age > 0).then(|| Duration::from_secs(store.store_age)),
        pins: pinned(store)?,
        access,
        privacy: Privacy {
            snap_bytes: store.store_snaplen,
            headers_only: store.store_headers,
            keep_dns: store.store_dns,
            sample: store.store_sample,
            sample_seed: settings.limits.seed,
            pseudonym_key: store.store_pseudonyms.as_deref().map(key).transpose()?,
        },
        ..larder_store::Options::new(directory, budget_bytes)
    }))
}

/// Packets that outlive their segment.
fn pinned(store: &Store) -> Result<Option<PinOptions>, Failure> {
    let Some(text) = &store.store_pin else { return Ok(None) };
    let query =
        Query::read(text, 0).map_err(|error| queries::wrong("--store-pin", text, &error))?;
    if query.has_times() {
        return Err(Failure::usage(
            "--store-pin: a time in the query; packets are pinned when their segment is deleted, \
             so remove after and before",
        ));
    }
    let packets_of_flow = match store.store_pin_packets {
        0 => u32::MAX,
        packets => packets,
    };
    Ok(Some(PinOptions { query, budget_bytes: store.store_pin_size, packets_of_flow }))
}

/// The program of `--segment-hook`. A mistyped path is found at the start.
fn hook(store: &Store) -> Result<Option<Hook>, Failure> {
    let Some(program) = &store.segment_hook else { return Ok(None) };
    let is_path = program.components().count() > 1;
    if is_path && !program.is_file() {
        return Err(Failure::usage(format!(
            "--segment-hook {}: no such program; expected a path, or a name in PATH",
            program.display()
        )));
    }
    let limit = Duration::from_secs(store.segment_hook_time);
    Ok(Some(Hook { limit, ..Hook::new(program) }))
}

/// Address, token and host names of `--serve`.
pub fn serve(store: &Store, access: Access) -> Result<Option<serve::Options>, Failure> {
    let push = pcap_serve(store)?;
    let Some(word) = &store.serve else {
        return Ok(push.map(|push| serve::Options::pushing(Some(push))));
    };
    if store.store.is_none() {
        return Err(Failure::usage("--serve: no packet store; add -w DIR --store BYTES"));
    }
    Ok(Some(serve::Options { push, ..server("serve", word, store, access)? }))
}

/// Address, token, host names and history of `--ui`.
pub fn page(settings: &Annotate, access: Access) -> Result<Option<Page>, Failure> {
    let Annotate { store, input, .. } = settings;
    let Some(word) = &store.ui else { return Ok(None) };
    if input.interface.is_empty() && input.read.is_empty() || input.names_at.is_some() {
        return Err(Failure::usage(
            "--ui: the page shows packets of an interface or of captures; add -i IFACE or -r FILE",
        ));
    }
    let is_of_flows = !input.flows_listen.is_empty()
        || !input.flows_read.is_empty()
        || input.eve.is_some()
        || input.zeek_log.is_some();
    if is_of_flows {
        return Err(Failure::usage(
            "--ui: the page does not show logs of other programs, nor flows of routers; remove --ui",
        ));
    }
    let serve = server("ui", word, store, access)?;
    if let Some(listen) = &serve.listen {
        page::check_token(listen, serve.token.is_some(), "serve-token")?;
    }
    Ok(Some(Page { serve, history: store.ui_history.clone() }))
}

/// The server of the setting `name`, whose value is `word`.
fn server(
    name: &str,
    word: &str,
    store: &Store,
    access: Access,
) -> Result<serve::Options, Failure> {
    let listen = page::listen(name, word)?;
    page::check_hosts(&store.serve_hosts)?;
    let hosts = store.serve_hosts.to_vec();
    let token =
        store.serve_token.as_deref().map(|path| token("--serve-token", path)).transpose()?;
    Ok(serve::Options { hosts, token, access, ..serve::Options::new(listen) })
}

/// The address of `--pcap-serve`.
fn pcap_serve(store: &Store) -> Result<Option<SocketAddr>, Failure> {
    let Some(word) = &store.pcap_serve else { return Ok(None) };
    if store.store.is_none() {
        return Err(Failure::usage("--pcap-serve: no packet store; add -w DIR --store BYTES"));
    }
    listen_address("--pcap-serve", word).map(Some)
}

/// The address of a flag at which larder listens.
pub fn listen_address(flag: &str, word: &str) -> Result<SocketAddr, Failure> {
    word.parse().map_err(|_| {
        Failure::usage(format!(
            "{flag} {word:?}: expected ADDR:PORT, such as 127.0.0.1:57012 or [::1]:57012"
        ))
    })
}

/// The group that may read the files.
pub fn access(operation: &Operation) -> Result<Access, Failure> {
    let Some(word) = &operation.group else { return Ok(Access::PRIVATE) };
    let group = larder_io::access::group_id(word)
        .map_err(|error| Failure::usage(format!("--group {word}: {error}")))?;
    Ok(Access::shared(group))
}

/// Makes the process a member of the group of its files, as long as it has the right to.
pub fn join(access: Access) -> Result<(), Failure> {
    let Some(group) = access.group() else { return Ok(()) };
    larder_io::privileges::join_group(group).map_err(|error| {
        let next = "run as root or as a member of the group, or remove --group";
        Failure::file(format!("--group {group}"), &error, next)
    })
}

/// Cores for the workers.
pub fn pins(capture: &Capture) -> Result<Vec<usize>, Failure> {
    let numbers = capture.pin.iter().map(|word| {
        let expected =
            || Failure::usage(format!("--pin {word:?}: expected core numbers, such as 2,3"));
        word.parse().map_err(|_| expected())
    });
    numbers.collect()
}

/// Logs rings, workers and the store.
pub fn log_plan(input: &Input, options: &Options, log: &Log) {
    let capture = &input.capture;
    let pins: Vec<String> = options.pins.iter().map(usize::to_string).collect();
    let directory = options.store.as_ref().map(|store| store.directory.display());
    log.info("started")
        .text("interface", capture.interfaces.join(","))
        .number("rings", capture.rings * capture.interfaces.len())
        .number("ring_bytes", capture.ring_bytes)
        .number("workers", options.cores)
        .maybe("cores", (!pins.is_empty()).then(|| pins.join(",")))
        .maybe("store", directory);
}

/// Reads the key of pseudonyms.
fn key(path: &Path) -> Result<[u8; 32], Failure> {
    let what = format!("--store-pseudonyms {}", path.display());
    let next = "create a key with: head -c 32 /dev/urandom";
    let bytes = fs::read(path).map_err(|error| Failure::file(&what, &error, next))?;
    <[u8; 32]>::try_from(bytes.as_slice())
        .map_err(|_| Failure::usage(format!("{what}: {} bytes instead of 32; {next}", bytes.len())))
}
