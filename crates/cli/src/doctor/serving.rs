//! Checks for `larder dns` and `larder http`: ports, and files that the settings name.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use larder_serve::page_server::Listen;
use larder_settings::exit::Failure;
use larder_settings::row::{List, Text};

use super::Finding;
use crate::addresses::addresses;
use crate::page::listen;
use crate::settings::{Http, dns};

/// Bytes of a receive buffer that larder dns asks for.
const SOCKET_BUFFER_BYTES: u64 = 4 << 20;

/// Checks for `larder dns`.
pub fn dns(settings: &dns::Dns) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for address in addresses(&settings.serving.listen, 53)? {
        let bound = UdpSocket::bind(address).map(drop);
        findings.push(of_port("dns", address, "UDP", "listen", bound));
        findings.push(of_listener("dns", address, "listen"));
    }
    let operation = &settings.operation;
    let others = [("ui", &operation.ui), ("metrics", &operation.metrics)];
    findings.extend(of_others("dns", others));
    let max = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    if let Ok(max) = max.trim().parse::<u64>() {
        findings.push(of_buffers(max));
    }
    findings.extend(of_files(
        "dns",
        &[&settings.serving.tls_cert, &settings.serving.tls_key, &settings.serving.root_hints],
    ));
    Ok(findings)
}

/// Checks for `larder http`.
pub fn http(settings: &Http) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let mut all = addresses(&settings.listen, 80)?;
    let secure = |list: &List| match list.iter().next().map(String::as_str) {
        None | Some("none") => Ok(Vec::new()),
        Some(_) => addresses(list, 443),
    };
    all.extend(secure(&settings.listen_tls)?);
    for address in all {
        findings.push(of_listener("http", address, "listen"));
    }
    let others = [("ui", &settings.ui), ("metrics", &settings.metrics)];
    findings.extend(of_others("http", others));
    findings.extend(of_files("http", &[&settings.tls_cert, &settings.tls_key]));
    Ok(findings)
}

/// The addresses of the small servers. One that is none is reported with the other settings.
pub fn of_others<'a>(
    program: &'a str,
    others: impl IntoIterator<Item = (&'a str, &'a Option<Text>)> + 'a,
) -> impl Iterator<Item = Finding> + 'a {
    let named = others.into_iter().filter_map(|(flag, word)| Some((flag, word.as_ref()?)));
    named.filter_map(move |(flag, word)| match listen(flag, word) {
        Ok(Listen::Tcp(address)) => Some(of_listener(program, address, flag)),
        _ => None,
    })
}

fn of_listener(program: &str, address: SocketAddr, flag: &str) -> Finding {
    of_port(program, address, "TCP", flag, TcpListener::bind(address).map(drop))
}

fn of_port(
    program: &str,
    address: SocketAddr,
    transport: &str,
    flag: &str,
    bound: io::Result<()>,
) -> Finding {
    let about = format!("{program} {transport} {address}");
    let Err(error) = bound else { return Finding::fine(&about, "free") };
    let next = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("end what listens there (ss -lp 'sport = :{}'), or change --{flag}", address.port())
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("it is no address of this machine: correct --{flag}, or add it to an interface")
        }
        io::ErrorKind::PermissionDenied => "give the program the right to low ports: \
             setcap cap_net_bind_service+ep $(command -v larder), or AmbientCapabilities in its unit"
            .to_owned(),
        _ => format!("change --{flag}"),
    };
    Finding::failed(&about, format!("{error}; {next}"))
}

fn of_buffers(max: u64) -> Finding {
    if max >= SOCKET_BUFFER_BYTES {
        return Finding::fine("dns buffers", format!("net.core.rmem_max is {max}"));
    }
    Finding::limited(
        "dns buffers",
        format!(
            "net.core.rmem_max is {max}: queries of a burst are dropped sooner; \
             sysctl net.core.rmem_max={SOCKET_BUFFER_BYTES}"
        ),
    )
}

/// Files that the settings name can be read.
fn of_files(program: &str, files: &[&Option<std::path::PathBuf>]) -> Vec<Finding> {
    let of_file = |path: &Path| {
        let about = format!("{program} {}", path.display().to_string().escape_debug());
        let opened = File::open(path).and_then(|file| file.metadata());
        match opened {
            Ok(metadata) if metadata.is_dir() => {
                Finding::failed(&about, "is a directory; name a file in it")
            }
            Ok(_) => Finding::fine(&about, "readable"),
            Err(error) => {
                Finding::failed(&about, format!("{error}; correct the path or its permissions"))
            }
        }
    };
    files.iter().filter_map(|path| path.as_deref()).map(of_file).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// Small buffers are a limit, no failure.
    #[test]
    fn buffers() {
        assert_eq!(of_buffers(212_992).verdict, Verdict::Limited);
        assert_eq!(of_buffers(4 << 20).verdict, Verdict::Fine);
    }
}
