//! Encrypted transports of `larder dns` and `larder http`: their settings, and the error of a build without
//! them.

#[cfg(feature = "encrypted")]
use std::path::PathBuf;
use std::sync::Arc;

use larder_dns::backend::Backend;
use larder_dns::side_query::SideServer;
use larder_http::options::OriginAddress;
use larder_http::tls_bridge::TlsBridge;
use larder_settings::exit::Failure;
use larder_settings::row::List;

use crate::settings::Http;
use crate::settings::dns::Serving;

/// The server of encrypted transports, if there is a setting for it.
pub fn beside(serving: &Serving) -> Result<Option<Arc<dyn SideServer>>, Failure> {
    let lists = [&serving.listen_tls, &serving.listen_https, &serving.listen_quic];
    let Some(list) = lists.into_iter().find(|list| !list.is_empty()) else { return Ok(None) };
    make(serving, list).map(Some)
}

/// An upstream over an encrypted transport; `name` is the setting that has it.
#[cfg(not(feature = "encrypted"))]
pub fn upstream(_: &Serving, name: &str, word: &str) -> Result<Arc<dyn Backend>, Failure> {
    Err(missing(&format!("--{name} {word}")))
}

/// An upstream over an encrypted transport; `name` is the setting that has it.
#[cfg(feature = "encrypted")]
pub fn upstream(serving: &Serving, name: &str, word: &str) -> Result<Arc<dyn Backend>, Failure> {
    use std::net::IpAddr;

    use larder_dns_tls::upstream::{Encrypted, Target};

    let wrong = |error: String| Failure::usage(format!("--{name} {word:?}: {error}"));
    let target = Target::parse(word).map_err(|error| wrong(error.to_string()))?;
    let trust = trust(serving.upstream_ca.as_ref());
    let sources = serving.source.iter().filter_map(|word| word.parse().ok());
    let of_family = |source: &IpAddr| source.is_ipv4() == target.address.is_ipv4();
    let source = sources.into_iter().find(of_family);
    Ok(Arc::new(Encrypted::new(target, &trust, source).map_err(wrong)?))
}

/// The error of a build without the feature.
#[cfg(not(feature = "encrypted"))]
fn missing(setting: &str) -> Failure {
    let text = format!("{setting}: not in this build; cargo build --release --features encrypted");
    Failure::usage(text)
}

#[cfg(not(feature = "encrypted"))]
fn make(_: &Serving, list: &List) -> Result<Arc<dyn SideServer>, Failure> {
    Err(missing(&format!("--{}", list.name())))
}

#[cfg(feature = "encrypted")]
fn make(serving: &Serving, list: &List) -> Result<Arc<dyn SideServer>, Failure> {
    use larder_dns_tls::{Encrypted, Limits};

    use crate::addresses::addresses;

    /// The ports of RFC 7858 and RFC 9250, and of HTTPS.
    const PORT: u16 = 853;
    const HTTPS_PORT: u16 = 443;

    let https_path = &serving.https_path;
    if !https_path.starts_with('/') || https_path.contains(['?', '#']) {
        return Err(Failure::usage(format!(
            "--https-path {https_path:?}: expected a path, such as /dns-query"
        )));
    }
    Ok(Arc::new(Encrypted {
        tls: addresses(&serving.listen_tls, PORT)?,
        https: addresses(&serving.listen_https, HTTPS_PORT)?,
        https_path: https_path.to_string(),
        quic: addresses(&serving.listen_quic, PORT)?,
        certificate: files(list, serving.tls_cert.as_ref(), serving.tls_key.as_ref())?,
        limits: Limits {
            connections_max: serving.encrypted_max,
            per_client_max: serving.encrypted_per_client,
            ..Limits::default()
        },
    }))
}

/// The files of the certificate that the setting `listen` needs.
#[cfg(feature = "encrypted")]
fn files(
    listen: &List,
    certificates: Option<&PathBuf>,
    key: Option<&PathBuf>,
) -> Result<larder_http_tls::Files, Failure> {
    let file = |what: &str, given: Option<&PathBuf>| {
        given.cloned().ok_or_else(|| {
            let name = listen.name();
            Failure::usage(format!("--{name}: no certificate or key; add --{what} FILE, in PEM"))
        })
    };
    let (certificates, key) = (file("tls-cert", certificates)?, file("tls-key", key)?);
    Ok(larder_http_tls::Files { certificates, key })
}

/// The authorities to trust: those of a file, or of the system.
#[cfg(feature = "encrypted")]
fn trust(file: Option<&PathBuf>) -> larder_http_tls::Trust {
    use larder_http_tls::Trust;

    file.cloned().map_or(Trust::System, Trust::File)
}

/// TLS of `larder http`, if it listens for it or has an origin that needs it.
pub fn http(
    settings: &Http,
    origins: &[OriginAddress],
) -> Result<Option<Arc<dyn TlsBridge>>, Failure> {
    let listens = !settings.listen_tls.is_empty();
    if !listens && !origins.iter().any(|origin| origin.is_secure) {
        return Ok(None);
    }
    make_http(settings, origins, listens).map(Some)
}

#[cfg(not(feature = "encrypted"))]
fn make_http(
    _: &Http,
    origins: &[OriginAddress],
    listens: bool,
) -> Result<Arc<dyn TlsBridge>, Failure> {
    let secure = origins.iter().find(|origin| origin.is_secure && !listens);
    let setting = secure.map(|origin| format!("--origin https://{}", origin.name));
    Err(missing(&setting.unwrap_or("--listen-tls".to_owned())))
}

#[cfg(feature = "encrypted")]
fn make_http(
    settings: &Http,
    origins: &[OriginAddress],
    listens: bool,
) -> Result<Arc<dyn TlsBridge>, Failure> {
    use std::time::Duration;

    use larder_http_tls::{Encrypted, Limits, host_of};

    use crate::addresses::addresses;

    const HTTPS_PORT: u16 = 443;

    let secure: Vec<&OriginAddress> = origins.iter().filter(|it| it.is_secure).collect();
    for origin in &secure {
        let wrong = |error| Failure::usage(format!("--origin https://{}: {error}", origin.name));
        host_of(origin).map_err(wrong)?;
    }
    Ok(Arc::new(Encrypted {
        listen: addresses(&settings.listen_tls, HTTPS_PORT)?,
        certificate: listens
            .then(|| {
                files(&settings.listen_tls, settings.tls_cert.as_ref(), settings.tls_key.as_ref())
            })
            .transpose()?,
        trust: (!secure.is_empty()).then(|| trust(settings.origin_ca.as_ref())),
        threads: settings.cores,
        limits: Limits {
            connections_max: settings.clients_max,
            // 0 is no limit, as it is in the clear.
            per_client_max: match settings.clients_per_address {
                0 => u32::MAX,
                count => count,
            },
            streams_max: settings.http2_streams,
            head_bytes_max: settings.head_max,
            handshake: Duration::from_secs(settings.head_timeout),
            connect: Duration::from_secs(settings.connect_timeout),
            idle: Duration::from_secs(settings.idle_timeout),
            stall: Duration::from_secs(settings.client_timeout),
        },
    }))
}
