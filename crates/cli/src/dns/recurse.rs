//! `larder dns --recurse`: settings to the recursor, `larder_dns_recursor`. Validation of signatures needs the
//! feature `recurse`.

use std::sync::Arc;

use larder_dns::backend::Backend;
use larder_dns::zones::{Answers, Forward, Upstream};
use larder_dns_recursor::{Options, Recursor, roots};
use larder_settings::exit::Failure;
use larder_wire::prefix::Prefix;

use crate::settings::dns::Serving;

/// The recursor, and the entry of the root that forwards to it.
type RootForward = (Forward, Arc<dyn Backend>);

/// The recursor that `--dnssec` chooses.
pub fn recursor(settings: &Serving) -> Result<RootForward, Failure> {
    if *settings.upstream != ["system"] {
        return Err(Failure::usage(
            "--recurse and --upstream exclude each other; remove one, or forward single zones with --forward",
        ));
    }
    made(settings)
}

/// A recursor that does with signatures what `--dnssec` says.
fn made(settings: &Serving) -> Result<RootForward, Failure> {
    let mut options = Options {
        threads: settings.cores,
        case_random: settings.randomize_case,
        source: super::origin(&settings.source)?,
        udp_bytes_max: settings.udp_size,
        ..Options::default()
    };
    match settings.dnssec {
        "off" => {}
        "pass" => options.passes_dnssec = true,
        _ => validate(settings, &mut options)?,
    }
    if let Some(file) = &settings.root_hints {
        options.roots = parsed(file, roots::parse)?;
    }
    let network = |word: &String| {
        Prefix::parse(word).map_err(|why| Failure::usage(format!("--server-allow {word:?}: {why}")))
    };
    options.allow_servers = settings.server_allow.iter().map(network).collect::<Result<_, _>>()?;
    let is_believed = options.validates();
    Ok((forward(settings, is_believed), Arc::new(Recursor::new(options))))
}

#[cfg(not(feature = "recurse"))]
fn validate(_: &Serving, _: &mut Options) -> Result<(), Failure> {
    Err(Failure::usage(
        "--recurse validates by default, and this build cannot; set --dnssec off or --dnssec pass, \
         or build with --features recurse, or name validating servers with --upstream",
    ))
}

/// Makes the recursor validate.
#[cfg(feature = "recurse")]
fn validate(settings: &Serving, options: &mut Options) -> Result<(), Failure> {
    use larder_dns_recursor::dnssec::anchors::Anchors;

    options.anchors = Some(match &settings.trust_anchor {
        Some(file) => parsed(file, Anchors::parse)?,
        None => Anchors::built_in(),
    });
    Ok(())
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
