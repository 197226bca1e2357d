//! `larder dns --recurse`: settings to the recursor, `larder_dns_recursor`; with validation in builds with the feature `recurse`.

use std::fmt::Display;
use std::sync::Arc;

use larder_dns::backend::Backend;
use larder_dns::zones::{Answers, Forward, Upstream};
use larder_settings::exit::Failure;
use larder_settings::layers::Resolved;
use larder_wire::prefix::Prefix;

/// Who is asked for the root, and for all below it that is not forwarded.
type Recursor = (Forward, Arc<dyn Backend>);

/// The recursor that is asked for.
pub fn recursor(settings: &Resolved) -> Result<Recursor, Failure> {
    if settings.list("upstream") != ["system"] {
        return Err(Failure::usage(
            "--recurse and --upstream exclude each other; remove one, or forward single zones with --forward",
        ));
    }
    made(settings)
}

/// Who asks name servers without validating what they say.
fn made(settings: &Resolved) -> Result<Recursor, Failure> {
    use larder_dns_recursor::{Options, Walk, roots};

    let passes_dnssec = match settings.choice("dnssec") {
        "off" => false,
        "pass" => true,
        _ => return validating(settings),
    };
    let mut options = Options {
        passes_dnssec,
        threads: settings.cores("cores"),
        case_random: settings.switch("randomize-case"),
        origin: super::origin(settings)?,
        ..Options::default()
    };
    if let Some(file) = file(settings, "root-hints") {
        options.roots = parsed(file, roots::parse)?;
    }
    options.udp_bytes_max = udp_bytes_max(settings, options.udp_bytes_max);
    options.allow_servers = allowed(settings, Prefix::parse)?;
    Ok((forward(settings, false), Arc::new(Walk::new(options))))
}

#[cfg(not(feature = "recurse"))]
fn validating(_: &Resolved) -> Result<Recursor, Failure> {
    Err(Failure::usage(
        "--recurse validates by default, and this build cannot; set --dnssec off or --dnssec pass, \
         or build with --features recurse, or name validating servers with --upstream",
    ))
}

/// Who asks name servers and validates what they say: a library.
#[cfg(feature = "recurse")]
fn validating(settings: &Resolved) -> Result<Recursor, Failure> {
    use larder_dns_recursor::dnssec::{Options, Recurse, hints};

    let mut options = Options {
        threads: settings.cores("cores"),
        case_random: settings.switch("randomize-case"),
        ..Options::default()
    };
    if let Some(file) = file(settings, "root-hints") {
        options.roots = parsed(file, hints::parse_roots)?;
    }
    if let Some(file) = file(settings, "trust-anchor") {
        options.anchors = Arc::new(parsed(file, hints::parse_anchors)?);
    }
    options.udp_bytes_max = udp_bytes_max(settings, options.udp_bytes_max);
    options.allow_servers = allowed(settings, hints::parse_network)?;
    Ok((forward(settings, true), Arc::new(Recurse::new(options))))
}

fn udp_bytes_max(settings: &Resolved, default: u16) -> u16 {
    u16::try_from(settings.number_or_default("udp-size")).unwrap_or(default)
}

/// Networks whose name servers may be asked.
fn allowed<T, E: Display>(
    settings: &Resolved,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, Failure> {
    let network = |word: &&str| {
        parse(word).map_err(|why| Failure::usage(format!("--server-allow {word:?}: {why}")))
    };
    settings.list("server-allow").iter().map(network).collect()
}

/// All names go to the one backend.
fn forward(settings: &Resolved, is_believed: bool) -> Forward {
    let answers = Answers {
        number: 0,
        wait_ms: u32::try_from(settings.number_or_default("timeout") * 1_000).unwrap_or(u32::MAX),
        is_believed,
    };
    Forward { zone: vec![0], upstreams: vec![Upstream::Backend(answers)] }
}

/// The file of a setting, where it is not what is built in.
fn file<'a>(settings: &'a Resolved, name: &str) -> Option<&'a std::path::Path> {
    settings.word(name).filter(|word| *word != "built-in").map(std::path::Path::new)
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
