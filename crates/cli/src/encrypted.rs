//! Encrypted transports of `larder dns`: their settings, and what a build without them says.

use std::sync::Arc;

use larder_dns::answerer::Answerer;
use larder_dns::bridge::Beside;

use crate::exit::Failure;
use crate::layers::Resolved;

/// Settings of which any asks for encrypted transports.
const LISTEN: [&str; 3] = ["listen-tls", "listen-https", "listen-quic"];

/// What is served over encrypted transports, if anything is.
pub fn beside(settings: &Resolved) -> Result<Option<Arc<dyn Beside>>, Failure> {
    let Some(name) = LISTEN.into_iter().find(|name| !settings.list(name).is_empty()) else {
        return Ok(None);
    };
    make(settings, name).map(Some)
}

/// An upstream that is asked over an encrypted transport; `name` is the setting that has it.
#[cfg(not(feature = "encrypted"))]
pub fn upstream(_: &Resolved, name: &str, word: &str) -> Result<Arc<dyn Answerer>, Failure> {
    Err(Failure::usage(format!(
        "--{name} {word}: not in this build; cargo build --release --features encrypted"
    )))
}

/// An upstream that is asked over an encrypted transport; `name` is the setting that has it.
#[cfg(feature = "encrypted")]
pub fn upstream(settings: &Resolved, name: &str, word: &str) -> Result<Arc<dyn Answerer>, Failure> {
    use std::net::IpAddr;

    use larder_dns_encrypted::upstream::{Encrypted, Target, Trust};

    let wrong = |error: String| Failure::usage(format!("--{name} {word:?}: {error}"));
    let target = Target::parse(word).map_err(|error| wrong(error.to_string()))?;
    let trust = match settings.word("upstream-ca") {
        None | Some("system") => Trust::System,
        Some(path) => Trust::File(path.into()),
    };
    let sources = settings.list("source").into_iter().filter_map(|word| word.parse().ok());
    let of_family = |source: &IpAddr| source.is_ipv4() == target.address.is_ipv4();
    let source = sources.into_iter().find(of_family);
    Ok(Arc::new(Encrypted::new(target, &trust, source).map_err(wrong)?))
}

#[cfg(not(feature = "encrypted"))]
fn make(_: &Resolved, name: &str) -> Result<Arc<dyn Beside>, Failure> {
    Err(Failure::usage(format!(
        "--{name}: not in this build; cargo build --release --features encrypted"
    )))
}

#[cfg(feature = "encrypted")]
fn make(settings: &Resolved, name: &str) -> Result<Arc<dyn Beside>, Failure> {
    use larder_dns_encrypted::{Encrypted, Files, Limits};

    use crate::dns::addresses_with;

    /// The ports of RFC 7858 and RFC 9250, and of HTTPS.
    const PORT: u16 = 853;
    const HTTPS_PORT: u16 = 443;

    let file = |what: &str| {
        let given = settings.word(what).filter(|word| *word != "none");
        given.map(Into::into).ok_or_else(|| {
            Failure::usage(format!("--{name} needs a certificate: give --{what} FILE, in PEM"))
        })
    };
    let https_path = settings.word("https-path").unwrap_or_default();
    if !https_path.starts_with('/') || https_path.contains(['?', '#']) {
        return Err(Failure::usage(format!(
            "--https-path {https_path:?}: expected a path, as /dns-query"
        )));
    }
    let number = |name| settings.number_or_default(name);
    Ok(Arc::new(Encrypted {
        tls: addresses_with(settings, "listen-tls", PORT)?,
        https: addresses_with(settings, "listen-https", HTTPS_PORT)?,
        https_path: https_path.to_owned(),
        quic: addresses_with(settings, "listen-quic", PORT)?,
        certificate: Files { certificates: file("tls-cert")?, key: file("tls-key")? },
        limits: Limits {
            connections_max: usize::try_from(number("encrypted-max")).unwrap_or(usize::MAX),
            per_client_max: u32::try_from(number("encrypted-per-client")).unwrap_or(u32::MAX),
            ..Limits::default()
        },
    }))
}
