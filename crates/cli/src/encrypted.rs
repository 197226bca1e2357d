//! Encrypted transports of `larder dns` and `larder http`: their settings, and what a build without them says.

use std::sync::Arc;

use larder_dns::backend::Backend;
use larder_dns::side_query::SideServer;
use larder_http::beside::Beside as HttpBeside;
use larder_http::options::OriginAddress;
use larder_settings::exit::Failure;
use larder_settings::layers::Resolved;

/// Settings of which any asks for encrypted transports.
const LISTEN: [&str; 3] = ["listen-tls", "listen-https", "listen-quic"];

/// What is served over encrypted transports, if anything is.
pub fn beside(settings: &Resolved) -> Result<Option<Arc<dyn SideServer>>, Failure> {
    let Some(name) = LISTEN.into_iter().find(|name| !settings.list(name).is_empty()) else {
        return Ok(None);
    };
    make(settings, name).map(Some)
}

/// An upstream that is asked over an encrypted transport; `name` is the setting that has it.
#[cfg(not(feature = "encrypted"))]
pub fn upstream(_: &Resolved, name: &str, word: &str) -> Result<Arc<dyn Backend>, Failure> {
    Err(missing(&format!("--{name} {word}")))
}

/// An upstream that is asked over an encrypted transport; `name` is the setting that has it.
#[cfg(feature = "encrypted")]
pub fn upstream(settings: &Resolved, name: &str, word: &str) -> Result<Arc<dyn Backend>, Failure> {
    use std::net::IpAddr;

    use larder_dns_tls::upstream::{Encrypted, Target};

    let wrong = |error: String| Failure::usage(format!("--{name} {word:?}: {error}"));
    let target = Target::parse(word).map_err(|error| wrong(error.to_string()))?;
    let trust = trust(settings, "upstream-ca");
    let sources = settings.list("source").into_iter().filter_map(|word| word.parse().ok());
    let of_family = |source: &IpAddr| source.is_ipv4() == target.address.is_ipv4();
    let source = sources.into_iter().find(of_family);
    Ok(Arc::new(Encrypted::new(target, &trust, source).map_err(wrong)?))
}

/// What a build without the feature says of a setting that asks for it.
#[cfg(not(feature = "encrypted"))]
fn missing(setting: &str) -> Failure {
    let text = format!("{setting}: not in this build; cargo build --release --features encrypted");
    Failure::usage(text)
}

#[cfg(not(feature = "encrypted"))]
fn make(_: &Resolved, name: &str) -> Result<Arc<dyn SideServer>, Failure> {
    Err(missing(&format!("--{name}")))
}

#[cfg(feature = "encrypted")]
fn make(settings: &Resolved, name: &str) -> Result<Arc<dyn SideServer>, Failure> {
    use larder_dns_tls::{Encrypted, Limits};

    use crate::addresses::addresses_with;

    /// The ports of RFC 7858 and RFC 9250, and of HTTPS.
    const PORT: u16 = 853;
    const HTTPS_PORT: u16 = 443;

    let https_path = settings.word("https-path").unwrap_or_default();
    if !https_path.starts_with('/') || https_path.contains(['?', '#']) {
        return Err(Failure::usage(format!(
            "--https-path {https_path:?}: expected a path, such as /dns-query"
        )));
    }
    let number = |name| settings.number_or_default(name);
    Ok(Arc::new(Encrypted {
        tls: addresses_with(settings, "listen-tls", PORT)?,
        https: addresses_with(settings, "listen-https", HTTPS_PORT)?,
        https_path: https_path.to_owned(),
        quic: addresses_with(settings, "listen-quic", PORT)?,
        certificate: files(settings, name)?,
        limits: Limits {
            connections_max: usize::try_from(number("encrypted-max")).unwrap_or(usize::MAX),
            per_client_max: u32::try_from(number("encrypted-per-client")).unwrap_or(u32::MAX),
            ..Limits::default()
        },
    }))
}

/// The files of the certificate that the setting `name` needs.
#[cfg(feature = "encrypted")]
fn files(settings: &Resolved, name: &str) -> Result<larder_http_encrypted::Files, Failure> {
    let file = |what: &str| {
        let given = settings.word(what).filter(|word| *word != "none");
        given.map(Into::into).ok_or_else(|| {
            Failure::usage(format!("--{name}: no certificate or key; add --{what} FILE, in PEM"))
        })
    };
    Ok(larder_http_encrypted::Files { certificates: file("tls-cert")?, key: file("tls-key")? })
}

/// Whose certificates count, by the setting `name`.
#[cfg(feature = "encrypted")]
fn trust(settings: &Resolved, name: &str) -> larder_http_encrypted::Trust {
    use larder_http_encrypted::Trust;

    match settings.word(name) {
        None | Some("system") => Trust::System,
        Some(path) => Trust::File(path.into()),
    }
}

/// What `larder http` serves over TLS, and whom it asks so, if anything and anybody.
pub fn http(
    settings: &Resolved,
    origins: &[OriginAddress],
) -> Result<Option<Arc<dyn HttpBeside>>, Failure> {
    let listens = !settings.list("listen-tls").is_empty();
    if !listens && !origins.iter().any(|origin| origin.is_secure) {
        return Ok(None);
    }
    make_http(settings, origins, listens).map(Some)
}

#[cfg(not(feature = "encrypted"))]
fn make_http(
    _: &Resolved,
    origins: &[OriginAddress],
    listens: bool,
) -> Result<Arc<dyn HttpBeside>, Failure> {
    let secure = origins.iter().find(|origin| origin.is_secure && !listens);
    let setting = secure.map(|origin| format!("--origin https://{}", origin.name));
    Err(missing(&setting.unwrap_or("--listen-tls".to_owned())))
}

#[cfg(feature = "encrypted")]
fn make_http(
    settings: &Resolved,
    origins: &[OriginAddress],
    listens: bool,
) -> Result<Arc<dyn HttpBeside>, Failure> {
    use std::time::Duration;

    use larder_http_encrypted::{Encrypted, Limits, host_of};

    use crate::addresses::addresses_with;

    const HTTPS_PORT: u16 = 443;

    let number = |name| settings.number_or_default(name);
    let small = |name| u32::try_from(number(name)).unwrap_or(u32::MAX);
    let seconds = |name| Duration::from_secs(number(name));
    let secure: Vec<&OriginAddress> = origins.iter().filter(|it| it.is_secure).collect();
    for origin in &secure {
        let wrong = |error| Failure::usage(format!("--origin https://{}: {error}", origin.name));
        host_of(origin).map_err(wrong)?;
    }
    Ok(Arc::new(Encrypted {
        listen: addresses_with(settings, "listen-tls", HTTPS_PORT)?,
        certificate: listens.then(|| files(settings, "listen-tls")).transpose()?,
        trust: (!secure.is_empty()).then(|| trust(settings, "origin-ca")),
        threads: settings.cores("cores"),
        limits: Limits {
            connections_max: usize::try_from(number("clients-max")).unwrap_or(usize::MAX),
            // 0 is no limit, as it is in the clear.
            per_client_max: Some(small("clients-per-address"))
                .filter(|&it| it > 0)
                .unwrap_or(u32::MAX),
            streams_max: small("http2-streams"),
            head_bytes_max: small("head-max"),
            handshake: seconds("head-timeout"),
            connect: seconds("connect-timeout"),
            idle: seconds("idle-timeout"),
            stall: seconds("client-timeout"),
        },
    }))
}
