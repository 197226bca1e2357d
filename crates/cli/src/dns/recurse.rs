//! `larder dns --recurse`: settings to the recursor, `larder_dns_recursor`. Validation of signatures needs the
//! feature `recurse`.

use std::fmt::Display;
use std::sync::Arc;

use larder_dns::backend::Backend;
use larder_dns::zones::{Answers, Forward, Upstream};
use larder_settings::exit::Failure;
use larder_wire::prefix::Prefix;

use crate::settings::dns::Serving;

/// The recursor, and the entry of the root that forwards to it.
type Recursor = (Forward, Arc<dyn Backend>);

/// The recursor that `--dnssec` chooses.
pub fn recursor(settings: &Serving) -> Result<Recursor, Failure> {
    if *settings.upstream != ["system"] {
        return Err(Failure::usage(
            "--recurse and --upstream exclude each other; remove one, or forward single zones with --forward",
        ));
    }
    made(settings)
}

/// A recursor that does not validate, unless `--dnssec` is `validate`.
fn made(settings: &Serving) -> Result<Recursor, Failure> {
    use larder_dns_recursor::{Options, Walk, roots};

    let passes_dnssec = match settings.dnssec {
        "off" => false,
        "pass" => true,
        _ => return validating(settings),
    };
    let mut options = Options {
        passes_dnssec,
        threads: settings.cores,
        case_random: settings.randomize_case,
        origin: super::origin(&settings.source)?,
        udp_bytes_max: settings.udp_size,
        ..Options::default()
    };
    if let Some(file) = &settings.root_hints {
        options.roots = parsed(file, roots::parse)?;
    }
    options.allow_servers = allowed(settings, Prefix::parse)?;
    Ok((forward(settings, false), Arc::new(Walk::new(options))))
}

#[cfg(not(feature = "recurse"))]
fn validating(_: &Serving) -> Result<Recursor, Failure> {
    Err(Failure::usage(
        "--recurse validates by default, and this build cannot; set --dnssec off or --dnssec pass, \
         or build with --features recurse, or name validating servers with --upstream",
    ))
}

/// A recursor that validates.
#[cfg(feature = "recurse")]
fn validating(settings: &Serving) -> Result<Recursor, Failure> {
    use larder_dns_recursor::dnssec::{Options, Recurse, hints};

    let mut options = Options {
        threads: settings.cores,
        case_random: settings.randomize_case,
        udp_bytes_max: settings.udp_size,
        ..Options::default()
    };
    if let Some(file) = &settings.root_hints {
        options.roots = parsed(file, hints::parse_roots)?;
    }
    if let Some(file) = &settings.trust_anchor {
        options.anchors = Arc::new(parsed(file, hints::parse_anchors)?);
    }
    options.allow_servers = allowed(settings, hints::parse_network)?;
    Ok((forward(settings, true), Arc::new(Recurse::new(options))))
}

/// Private networks that have name servers.
fn allowed<T, E: Display>(
    settings: &Serving,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, Failure> {
    let network = |word: &String| {
        parse(word).map_err(|why| Failure::usage(format!("--server-allow {word:?}: {why}")))
    };
    settings.server_allow.iter().map(network).collect()
}

/// The entry of the root: all names are resolved by the one backend.
fn forward(settings: &Serving, is_believed: bool) -> Forward {
    let answers = Answers { number: 0, wait_ms: settings.timeout * 1_000, is_believed };
    Forward { zone: vec![0], upstreams: vec![Upstream::Backend(answers)] }
}

fn parsed<T>(
    file: &std::path::Path,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::file(file.display(), &error, "remove the setting to use the built-in data")
    })?;
    parse(&text).map_err(|why| Failure::usage(format!("{}: {why}", file.display())))
}
