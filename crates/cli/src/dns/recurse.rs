//! `larder dns --recurse`: settings to a recursor of `larder_dns_recurse`, in builds with the feature `recurse`.

use std::sync::Arc;

use larder_dns::answerer::Answerer;
use larder_dns::zones::Forward;

use crate::exit::Failure;
use crate::layers::Resolved;

/// Who is asked for the root, and for all below it that is not forwarded.
type Recursor = (Forward, Arc<dyn Answerer>);

/// The recursor that is asked for.
pub fn recursor(settings: &Resolved) -> Result<Recursor, Failure> {
    if settings.list("upstream") != ["system"] {
        return Err(Failure::usage(
            "--recurse asks name servers itself, and --upstream names others to ask: leave one of them out, \
             or forward single zones with --forward",
        ));
    }
    made(settings)
}

#[cfg(not(feature = "recurse"))]
fn made(_: &Resolved) -> Result<Recursor, Failure> {
    Err(Failure::usage(
        "--recurse: not in this build; cargo build --release --features recurse, \
         or name servers that recurse with --upstream",
    ))
}

#[cfg(feature = "recurse")]
fn made(settings: &Resolved) -> Result<Recursor, Failure> {
    use larder_dns::zones::{Answers, Upstream};
    use larder_dns_recurse::{Dnssec, Options, Recurse, hints};

    let mut options = Options {
        dnssec: match settings.choice("dnssec") {
            "off" => Dnssec::Off,
            "pass" => Dnssec::Pass,
            _ => Dnssec::Validate,
        },
        threads: crate::annotate::cores(settings.number_or_default("cores")),
        case_random: settings.switch("randomize-case"),
        ..Options::default()
    };
    if let Some(file) = file(settings, "root-hints") {
        options.roots = parsed(file, hints::parse_roots)?;
    }
    if let Some(file) = file(settings, "trust-anchor") {
        options.anchors = Arc::new(parsed(file, hints::parse_anchors)?);
    }
    options.udp_bytes_max =
        u16::try_from(settings.number_or_default("udp-size")).unwrap_or(options.udp_bytes_max);
    for word in settings.list("server-allow") {
        let network = hints::parse_network(word)
            .map_err(|why| Failure::usage(format!("--server-allow {word:?}: {why}")))?;
        options.allow_servers.push(network);
    }
    let answers = Answers {
        number: 0,
        wait_ms: u32::try_from(settings.number_or_default("timeout") * 1_000).unwrap_or(u32::MAX),
        is_believed: options.dnssec == Dnssec::Validate,
    };
    let forward = Forward { zone: vec![0], upstreams: vec![Upstream::Answerer(answers)] };
    Ok((forward, Arc::new(Recurse::new(options))))
}

/// The file of a setting, where it is not what is built in.
#[cfg(feature = "recurse")]
fn file<'a>(settings: &'a Resolved, name: &str) -> Option<&'a std::path::Path> {
    settings.word(name).filter(|word| *word != "built-in").map(std::path::Path::new)
}

#[cfg(feature = "recurse")]
fn parsed<T>(
    file: &std::path::Path,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::file(file.display(), &error, "leave the setting out for what is built in")
    })?;
    parse(&text).map_err(|why| Failure::usage(format!("{}: {why}", file.display())))
}
