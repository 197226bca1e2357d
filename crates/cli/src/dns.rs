//! `larder dns`: settings to a server of `larder_dns`, and how it ends.

mod shadow;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_dns::backend::Backend;
use larder_dns::core::{NxdomainCut, Settings};
use larder_dns::dnstap::Target;
use larder_dns::metrics::Counts;
use larder_dns::pending::Limits;
use larder_dns::policy::{BlockAnswer, PolicyOptions, Reason};
use larder_dns::presentation::name_to_wire;
use larder_dns::reload::{Fresh, Source};
use larder_dns::server::{News, Options, serve};
use larder_dns::supervisor::Operation;
use larder_dns::upstream_udp::QuerySource;
use larder_dns::zones::{Answers, Forward, Upstream};
use larder_dns::{client_tcp, cookie, limit, query_log, upstream_tcp, xdp};
use larder_io::random;
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::layers::Resolved;
use larder_settings::terminal::eprint_quietly;

use crate::addresses::{addresses_with, control, metrics, not_an_address, parse_address};
use crate::encrypted;
use crate::reloading::{Again, Reloading};
use crate::signals;

/// The port of DNS.
const PORT: u16 = 53;

/// How long an upstream over an encrypted transport is waited for before another is asked, milliseconds: a connection
/// may have to be made first.
const ENCRYPTED_WAIT_MS: u64 = 2_500;

const RESOLV_CONF: &str = "/etc/resolv.conf";

mod recurse;

/// Runs the command.
pub fn dns(settings: Resolved, again: Again) -> Outcome {
    let resolvers = shadow::resolvers(&settings)?;
    let options = options(&settings, &resolvers)?;
    if !resolvers.is_empty() {
        return shadow::run(&settings, options, resolvers);
    }
    let source = source(settings, options.policy.clone(), again);
    let mut tell = |news: News<'_>| match news {
        News::Started { addresses, metrics, policy } => {
            let at: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
            let plural = if options.cores == 1 { "" } else { "s" };
            let at = at.join(", ");
            let cores = options.cores;
            eprint_quietly(&format!("larder dns: answering at {at} with {cores} core{plural}"));
            eprint_quietly(&format!("larder dns: policy: {policy}"));
            if let Some(metrics) = metrics {
                eprint_quietly(&format!("larder dns: metrics at http://{metrics}/metrics"));
            }
        }
        News::Line(line) => eprint_quietly(&format!("larder dns: {line}")),
    };
    signals::hold()
        .map_err(|error| Failure::file("signals", &error, "free some file descriptors"))?;
    let served = serve(&options, Some(source), &mut tell)
        .map_err(|error| Failure::usage(error.to_string()))?;
    eprint_quietly(&format!("larder dns: {}", summary(&served.counts)));
    Ok(if served.was_hurried { exit::INTERRUPTED } else { exit::DONE })
}

/// Reads settings anew, and says in which they differ from those in force: those of the policy change.
fn source(start: Resolved, policy_at_start: PolicyOptions, again: Again) -> Source {
    let reloading = Arc::new(Reloading::new(start, again));
    Arc::new(move || {
        let (settings, changes) = reloading.read()?;
        // Zones are forwarded as at the start.
        let policy = PolicyOptions { exempt: policy_at_start.exempt.clone(), ..policy(&settings) };
        let reloading = reloading.clone();
        let applied = Box::new(move || reloading.apply(settings));
        Ok(Fresh { policy, changes, applied })
    })
}

/// How servers are asked.
fn origin(settings: &Resolved) -> Result<QuerySource, Failure> {
    let mut origin = QuerySource::default();
    for word in settings.list("source") {
        let address: IpAddr = word.parse().map_err(|_| {
            Failure::usage(format!("--source {word:?}: expected an IP address, such as 192.0.2.1"))
        })?;
        origin.addresses.push(address);
    }
    Ok(origin)
}

/// What is served; `shadowed` are the addresses of a resolver beside which it is tried, and then nobody is.
fn options(settings: &Resolved, shadowed: &[SocketAddr]) -> Result<Options, Failure> {
    let listen = addresses(settings, "listen")?;
    let is_cache_only = settings.switch("cache-only");
    let (mut forwards, mut backends) = (Vec::new(), Vec::new());
    if !is_cache_only {
        if settings.switch("recurse") {
            let (forward, backend) = recurse::recursor(settings)?;
            forwards.push(forward);
            backends.push(backend);
        } else {
            forwards.extend(match shadowed {
                [] => upstreams(settings, &listen, &mut backends)?,
                resolvers => shadow::upstreams(settings, resolvers, &mut backends)?,
            });
        }
        for entry in settings.list("forward") {
            add_forward(settings, entry, &mut forwards, &mut backends)?;
        }
    }
    let number = |name| settings.number_or_default(name);
    let number32 = |name| u32::try_from(number(name)).unwrap_or(u32::MAX);
    let mut core = Settings {
        udp_bytes_max: u16::try_from(number("udp-size")).unwrap_or(u16::MAX),
        cache_only: is_cache_only,
        stale_s: number32("stale"),
        prefetch_percent: number32("prefetch"),
        question_ms_max: number32("timeout").saturating_mul(1_000),
        attempts_max: number("attempts") as usize,
        limits: Limits {
            questions_max: number32("questions-max"),
            waiters_max: number32("waiters-max"),
            ..Limits::default()
        },
        hedges: settings.switch("hedge"),
        case_random: settings.switch("randomize-case"),
        cookie_secret: cookie_secret(settings)?,
        rate: limit::Limits {
            per_s: number32("rate-limit"),
            slip: number32("rate-limit-slip"),
            ..limit::Limits::default()
        },
        nxdomain_cut: match settings.choice("nxdomain-cut") {
            "always" => NxdomainCut::Always,
            "never" => NxdomainCut::Never,
            _ => NxdomainCut::Validated,
        },
        ..Settings::default()
    };
    core.rules.ttl_min_s = number32("ttl-min");
    core.rules.ttl_max_s = number32("ttl-max");
    core.rules.negative_ttl_max_s = number32("negative-ttl-max");
    core.rules.failure_ttl_s = number32("failure-ttl");
    core.rules.believes_ad = settings.switch("trust-ad");
    core.rules.is_minimal = settings.switch("minimal");
    let xdp = xdp::Options {
        interfaces: settings.list("xdp").into_iter().map(str::to_owned).collect(),
        falls_back: settings.switch("xdp-fallback"),
    };
    Ok(Options {
        listen,
        xdp,
        forwards,
        backends,
        reuse_port: settings.switch("reuse-port"),
        cores: settings.cores("cores"),
        cache_bytes: number("cache"),
        settings: core,
        policy: policy(settings),
        origin: origin(settings)?,
        client_tcp_limits: client_tcp::Limits {
            streams_max: number("streams-max") as usize,
            per_client_max: number32("streams-per-client"),
            ..client_tcp::Limits::default()
        },
        upstream_tcp_limits: upstream_tcp::Limits::default(),
        beside: encrypted::beside(settings)?,
        operation: operation(settings)?,
    })
}

/// How it is operated.
fn operation(settings: &Resolved) -> Result<Operation, Failure> {
    let word = |name| settings.word(name).filter(|word| *word != "none");
    let path = |name| word(name).map(PathBuf::from);
    Ok(Operation {
        control: control(settings)?,
        metrics: metrics(settings)?,
        snapshot: path("snapshot"),
        snapshot_every_s: settings.number_or_default("snapshot-every"),
        dnstap: word("dnstap").map(|word| match word.strip_prefix("unix:") {
            Some(socket) => Target::Socket(socket.into()),
            None => Target::File(word.into()),
        }),
        query_log: path("query-log").map(|path| query_log(settings, path)).transpose()?,
    })
}

/// What is logged of answers.
fn query_log(settings: &Resolved, path: PathBuf) -> Result<query_log::Options, Failure> {
    let number = |name| settings.number_or_default(name);
    let number32 = |name| u32::try_from(number(name)).unwrap_or(u32::MAX);
    let prefix = match settings.word("query-log-prefix").filter(|word| *word != "none") {
        None => None,
        Some(word) => Some(parse_prefix(word).ok_or_else(|| {
            Failure::usage(format!(
                "--query-log-prefix {word:?}: expected bits, such as 24 or 24/48"
            ))
        })?),
    };
    Ok(query_log::Options {
        path,
        format: match settings.choice("query-log-format") {
            "json" => query_log::Format::Json,
            _ => query_log::Format::Text,
        },
        sample: number32("query-log-sample"),
        prefix,
        bytes_max: number("query-log-size"),
        files_max: number32("query-log-keep"),
    })
}

/// Bits of IPv4 addresses, and of IPv6 where they are not those of a home's network.
fn parse_prefix(word: &str) -> Option<query_log::Prefix> {
    let (v4, v6) = word.split_once('/').unwrap_or((word, "56"));
    let bits = |text: &str, most| text.parse().ok().filter(|bits: &u8| *bits <= most);
    Some(query_log::Prefix { v4: bits(v4, 32)?, v6: bits(v6, 128)? })
}

/// Who may ask, and what is answered from here.
fn policy(settings: &Resolved) -> PolicyOptions {
    let list = |name| settings.list(name).into_iter().map(str::to_owned).collect();
    let text = |name| settings.word(name).filter(|text| *text != "none").map(str::to_owned);
    // A zone that is forwarded has its names from there, be they of special use.
    let zones = settings.list("forward").into_iter().filter_map(|entry| entry.split_once('='));
    let zones = zones.map(|(zone, _)| zone).filter(|zone| !matches!(*zone, "" | "."));
    PolicyOptions {
        access: list("access"),
        views: list("view"),
        hosts: list("hosts"),
        local: list("local-data"),
        blocklists: list("blocklist"),
        block_answer: match settings.choice("block-answer") {
            "zero" => BlockAnswer::Zero,
            "refused" => BlockAnswer::Refused,
            _ => BlockAnswer::NxDomain,
        },
        block_reason: match settings.choice("block-reason") {
            "filtered" => Reason::Client,
            _ => Reason::Operator,
        },
        allowlists: list("allowlist"),
        rpz: list("rpz"),
        exempt: zones.map(str::to_owned).collect(),
        version: text("version-text"),
        id: text("id-text"),
    }
}

/// The secret of cookies, if clients are given any.
fn cookie_secret(settings: &Resolved) -> Result<Option<[u8; cookie::SECRET_BYTES]>, Failure> {
    if !settings.switch("cookies") {
        return Ok(None);
    }
    let mut secret = [0; cookie::SECRET_BYTES];
    match settings.word("cookie-secret") {
        None | Some("random") => random::fill(&mut secret).map_err(|error| {
            let next = "give --cookie-secret, or --cookies=false";
            Failure::file("random numbers", &error, next)
        })?,
        Some(text) => {
            let wrong =
                || Failure::usage("--cookie-secret: expected 32 hexadecimal digits, or 'random'");
            if text.len() != 2 * secret.len() || !text.is_ascii() {
                return Err(wrong());
            }
            for (at, octet) in secret.iter_mut().enumerate() {
                let digits = &text[2 * at..2 * at + 2];
                *octet = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
            }
        }
    }
    Ok(Some(secret))
}

/// Addresses of a list, with DNS's port where they have none.
fn addresses(settings: &Resolved, name: &str) -> Result<Vec<SocketAddr>, Failure> {
    addresses_with(settings, name, PORT)
}

/// Whom to ask for what no zone of its own has.
fn upstreams(
    settings: &Resolved,
    listen: &[SocketAddr],
    backends: &mut Vec<Arc<dyn Backend>>,
) -> Result<Option<Forward>, Failure> {
    let words = settings.list("upstream");
    let upstreams: Vec<Upstream> = if words == ["system"] {
        let found = system_upstreams(Path::new(RESOLV_CONF), listen)?;
        if found.is_empty() {
            return Err(Failure::usage(format!(
                "{RESOLV_CONF}: no server other than this one; name an upstream with --upstream ADDR"
            )));
        }
        found.into_iter().map(Upstream::from).collect()
    } else {
        let each = |word| upstream(settings, "upstream", word, backends);
        words.into_iter().map(each).collect::<Result<_, _>>()?
    };
    let is_own = |upstream: &SocketAddr| listen.contains(upstream);
    for upstream in &upstreams {
        if let Upstream::Server(own) = upstream
            && is_own(own)
        {
            return Err(Failure::usage(format!(
                "--upstream {own}: the address of this server, to which it would forward its own queries; \
                 name another"
            )));
        }
    }
    Ok((!upstreams.is_empty()).then(|| Forward { zone: vec![0], upstreams }))
}

/// Whom a word of a list says to ask: an address, or a URL of an encrypted transport.
fn upstream(
    settings: &Resolved,
    name: &str,
    word: &str,
    backends: &mut Vec<Arc<dyn Backend>>,
) -> Result<Upstream, Failure> {
    if !word.contains("://") {
        let address = parse_address(word, PORT).ok_or_else(|| not_an_address(name, word))?;
        return Ok(address.into());
    }
    backends.push(encrypted::upstream(settings, name, word)?);
    let timeout_ms = settings.number_or_default("timeout").saturating_mul(1_000);
    Ok(Upstream::Backend(Answers {
        number: backends.len() - 1,
        wait_ms: timeout_ms.min(ENCRYPTED_WAIT_MS) as u32,
        is_believed: false,
    }))
}

/// The nameservers of a resolv.conf, but for ourselves.
fn system_upstreams(path: &Path, listen: &[SocketAddr]) -> Result<Vec<SocketAddr>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::file(path.display(), &error, "name an upstream with --upstream ADDR")
    })?;
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let is_server = words.next() == Some("nameserver");
        words.next().filter(|_| is_server).and_then(|word| parse_address(word, PORT))
    };
    Ok(text.lines().filter_map(address).filter(|found| !listen.contains(found)).collect())
}

/// `ZONE=ADDR[:PORT]` or `ZONE=URL`, into the zone's entry.
fn add_forward(
    settings: &Resolved,
    entry: &str,
    forwards: &mut Vec<Forward>,
    backends: &mut Vec<Arc<dyn Backend>>,
) -> Result<(), Failure> {
    let split = entry.split_once('=');
    let Some((zone, address)) = split else {
        return Err(Failure::usage(format!(
            "--forward {entry:?}: expected ZONE=ADDR[:PORT] or ZONE=URL"
        )));
    };
    let upstream = upstream(settings, "forward", address, backends)?;
    let zone = name_to_wire(zone).filter(|_| zone.is_ascii()).ok_or_else(|| {
        Failure::usage(format!(
            "--forward {entry:?}: {zone:?} is not a domain name in ASCII; \
             write it as xn--..."
        ))
    })?;
    match forwards.iter_mut().find(|forward| forward.zone == zone) {
        Some(forward) => forward.upstreams.push(upstream),
        None => forwards.push(Forward { zone, upstreams: vec![upstream] }),
    }
    Ok(())
}

fn summary(counts: &Counts) -> String {
    format!(
        "{} queries: {} hits, {} by policy, {} misses, {} sent upstream, {} failed",
        counts.all_queries(),
        counts.hits,
        counts.by_policy(),
        counts.misses,
        counts.upstream_queries_udp + counts.upstream_queries_tcp,
        counts.upstream_failures
    )
}
