//! `larder dns --shadow`: settings to a comparison with a running resolver.
//!
//! Upstreams are those of `--upstream`. If that is `system`, they are the servers of resolv.conf without the
//! resolver itself; without others it is the resolver. The copy of its traffic then has larder's own
//! queries, too. larder distinguishes them by an address that no client uses: one of the loopback network,
//! or those of `--source`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_dns::backend::Backend;
use larder_dns::server::Options;
use larder_dns::shadow::{From, Trial, shadow};
use larder_dns::zones::{Forward, Upstream};
use larder_serve::log::Log;
use larder_settings::exit::{DAMAGED, DONE, Failure, Outcome};
use larder_settings::signals::call_on_signals;
use larder_settings::terminal::print;

use super::{RESOLV_CONF, named_upstreams, system_upstreams};
use crate::logs;
use crate::settings::dns::{Serving, Shadow};

/// The address from which larder queries a resolver on the loopback: "LDR" in ASCII.
const OWN: Ipv4Addr = Ipv4Addr::new(127, 76, 68, 82);

/// The interval of progress lines.
const EVERY: Duration = Duration::from_secs(10);

/// The upstreams of names that no --forward covers.
pub fn upstreams(
    serving: &Serving,
    resolvers: &[SocketAddr],
    backends: &mut Vec<Arc<dyn Backend>>,
) -> Result<Option<Forward>, Failure> {
    let upstreams: Vec<Upstream> = if *serving.upstream == ["system"] {
        // Without the file there is only the resolver.
        let others = system_upstreams(Path::new(RESOLV_CONF), resolvers).unwrap_or_default();
        let itself = || resolvers.iter().copied().filter(|it| !it.ip().is_unspecified());
        let found = if others.is_empty() { itself().collect() } else { others };
        found.into_iter().map(Upstream::from).collect()
    } else {
        named_upstreams(serving, backends)?
    };
    if upstreams.is_empty() && !serving.forward.iter().any(|it| it.starts_with(".=")) {
        let text = "no upstream; name a server with --upstream ADDR";
        return Err(Failure::usage(text));
    }
    Ok((!upstreams.is_empty()).then(|| Forward { zone: vec![0], upstreams }))
}

/// Runs the comparison and prints its report.
pub fn run(
    settings: &Shadow,
    mut options: Options,
    resolvers: Vec<SocketAddr>,
    log: &Log,
) -> Outcome {
    let own = own_addresses(&mut options, &resolvers)?;
    let trial = Trial {
        resolvers,
        from: from(&settings.shadow_from),
        own,
        speed: settings.shadow_speed,
        warm_up: Duration::from_secs(settings.shadow_warmup),
        hit_us: settings.shadow_hit_us,
        every: EVERY,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let (stop_requested, of_signals) = (Arc::clone(&stop), log.clone());
    call_on_signals(true, "", move || {
        of_signals.info("stopping").text("hint", logs::AGAIN);
        stop_requested.store(true, Ordering::Relaxed);
    })
    .map_err(|error| Failure::file("signals", &error, "try again"))?;
    let words: Vec<String> = trial.resolvers.iter().map(SocketAddr::to_string).collect();
    let _printer = logs::print(log)?;
    let line = log.info("comparison started").text("resolver", words.join(","));
    drop(line.text("from", &trial.from));
    let report =
        shadow(&options, &trial, &stop, log).map_err(|error| Failure::usage(error.to_string()))?;
    if settings.json {
        print(&format!("{}\n", report.json()))?;
    } else {
        print(&report.text())?;
    }
    Ok(if report.copy.damaged + report.copy.cut > 0 { DAMAGED } else { DONE })
}

/// The source of the copy.
fn from(word: &str) -> From {
    match (word.strip_prefix("unix:"), word.strip_prefix("dnstap:")) {
        (Some(socket), _) => From::Socket(socket.into()),
        (_, Some(file)) => From::Dnstap(file.into()),
        _ => From::File(word.into()),
    }
}

/// Addresses from which only larder sends queries; required if it queries the resolver itself.
fn own_addresses(options: &mut Options, resolvers: &[SocketAddr]) -> Result<Vec<IpAddr>, Failure> {
    let is_resolver = |upstream: &SocketAddr| {
        resolvers.iter().any(|resolver| {
            let is_any = resolver.ip().is_unspecified();
            resolver.port() == upstream.port() && (is_any || resolver.ip() == upstream.ip())
        })
    };
    let all = options.forwards.iter().flat_map(|forward| &forward.upstreams);
    let address = |upstream: &Upstream| match upstream {
        Upstream::Server(address) => Some(*address),
        Upstream::Backend(_) => None,
    };
    let upstreams: Vec<SocketAddr> = all.filter_map(address).collect();
    for upstream in upstreams.into_iter().filter(is_resolver) {
        if options.origin.address_for(upstream).is_some() {
            continue;
        }
        match upstream.ip() {
            IpAddr::V4(v4) if v4.is_loopback() => options.origin.addresses.push(OWN.into()),
            _ => {
                return Err(Failure::usage(format!(
                    "--shadow {upstream}: larder would query this resolver itself, and its queries could not be \
                     told from those of clients; name other servers with --upstream, or with --source an \
                     address of this machine that no client uses"
                )));
            }
        }
    }
    Ok(options.origin.addresses.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word without a prefix is a file, whatever its name.
    #[test]
    fn copies_are_named() {
        assert_eq!(from("unix:/run/tap"), From::Socket("/run/tap".into()));
        assert_eq!(from("dnstap:-"), From::Dnstap("-".into()));
        assert_eq!(from("-"), From::File("-".into()));
        assert_eq!(from("unix"), From::File("unix".into()));
    }
}
