//! `larder dns`: settings to a server of `larder_dns`, and how it ends.

mod shadow;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use larder_dns::backend::Backend;
use larder_dns::core::{NxdomainCut, Settings};
use larder_dns::dnstap::Target;
use larder_dns::metrics::Counts;
use larder_dns::pending::Limits;
use larder_dns::policy::{BlockAnswer, PolicyOptions, Reason};
use larder_dns::presentation::name_to_wire;
use larder_dns::reload::{Fresh, Source};
use larder_dns::server::{Options, serve};
use larder_dns::supervisor::Operation;
use larder_dns::upstream_udp::QuerySource;
use larder_dns::zones::{Answers, Forward, Upstream};
use larder_dns::{client_tcp, cookie, limit, query_log, upstream_tcp, xdp};
use larder_io::random;
use larder_serve::log::Log;
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::layers::Resolved;
use larder_settings::row::{List, Text};

use crate::addresses::{addresses, control, metrics, not_an_address, parse_address};
use crate::page::{Ui, note_token, page};
use crate::reloading::{Again, Reloading};
use crate::settings::dns::{Caching, Dns, Operation as OperationSettings, Serving};
use crate::{encrypted, logs, signals};

/// The port of DNS.
const PORT: u16 = 53;

/// How long larder waits for an upstream over an encrypted transport before it queries another one, in
/// milliseconds: it may have to connect first.
const ENCRYPTED_WAIT_MS: u32 = 2_500;

const RESOLV_CONF: &str = "/etc/resolv.conf";

mod recurse;

fn log_words(settings: &Dns) -> logs::Words {
    (settings.operation.log_level, settings.operation.log_format)
}

/// Runs the command.
pub fn dns(resolved: Resolved, again: Again) -> Outcome {
    let settings: Dns = resolved.read();
    let resolvers = addresses(&settings.shadow.shadow, PORT)?;
    let options = options(&settings, &resolvers)?;
    let log = logs::log("dns", log_words(&settings));
    if !resolvers.is_empty() {
        return shadow::run(&settings.shadow, options, resolvers, &log);
    }
    let source = source(resolved, &options, again, log.clone());
    signals::hold()
        .map_err(|error| Failure::file("signals", &error, "free some file descriptors"))?;
    let _printer = logs::print(&log)?;
    let served =
        serve(&options, Some(source), &log).map_err(|error| Failure::usage(error.to_string()))?;
    log_end(&log, &served.counts);
    Ok(if served.was_hurried { exit::INTERRUPTED } else { exit::DONE })
}

/// Whether these settings go together, and the files of the policy can be read. Nothing is started.
pub fn check(settings: &Dns) -> Result<(), Failure> {
    let resolvers = addresses(&settings.shadow.shadow, PORT)?;
    let options = options(settings, &resolvers)?;
    let policy = larder_dns::policy::load(&options.policy, 0, &[0; 16]);
    policy.map(drop).map_err(|error| Failure::usage(error.to_string()))
}

/// Reads the settings again, and lists the changes. Those of the policy and the log are applied.
fn source(start: Resolved, in_force: &Options, again: Again, log: Log) -> Source {
    let reloading = Arc::new(Reloading::new(start, again));
    let (exempt, page) = (in_force.policy.exempt.clone(), in_force.operation.page.clone());
    Arc::new(move || {
        let (settings, mut changes) = reloading.read()?;
        let fresh: Dns = settings.read();
        // What needs a restart is checked, too: else the next start would fail.
        let operation = operation(&fresh.operation).map_err(|failure| failure.message)?;
        note_token(&mut changes, page.as_ref(), operation.page.as_ref());
        // Zones are forwarded as at the start.
        let policy = PolicyOptions { exempt: exempt.clone(), ..policy(&fresh) };
        let (reloading, log) = (reloading.clone(), log.clone());
        let applied = Box::new(move || {
            logs::follow(&log, log_words(&settings.read()));
            reloading.apply(settings);
        });
        Ok(Fresh { policy, changes, applied })
    })
}

/// Where queries to servers come from.
fn origin(source: &List) -> Result<QuerySource, Failure> {
    let mut origin = QuerySource::default();
    for word in source.iter() {
        let address: IpAddr = word.parse().map_err(|_| {
            Failure::usage(format!("--source {word:?}: expected an IP address, such as 192.0.2.1"))
        })?;
        origin.addresses.push(address);
    }
    Ok(origin)
}

/// The options of the server. With addresses in `shadowed` it serves no clients, but is compared with the
/// resolver that has them.
fn options(settings: &Dns, shadowed: &[SocketAddr]) -> Result<Options, Failure> {
    let Dns { serving, caching, .. } = settings;
    let listen = addresses(&serving.listen, PORT)?;
    let (mut forwards, mut backends) = (Vec::new(), Vec::new());
    if !serving.cache_only {
        if serving.recurse {
            let (forward, backend) = recurse::recursor(serving)?;
            forwards.push(forward);
            backends.push(backend);
        } else {
            forwards.extend(match shadowed {
                [] => upstreams(serving, &listen, &mut backends)?,
                resolvers => shadow::upstreams(serving, resolvers, &mut backends)?,
            });
        }
        for entry in serving.forward.iter() {
            add_forward(serving, entry, &mut forwards, &mut backends)?;
        }
    }
    let xdp = xdp::Options { interfaces: serving.xdp.to_vec(), falls_back: serving.xdp_fallback };
    Ok(Options {
        listen,
        xdp,
        forwards,
        backends,
        reuse_port: serving.reuse_port,
        cores: serving.cores,
        cache_bytes: serving.cache,
        settings: core(settings)?,
        policy: policy(settings),
        origin: origin(&serving.source)?,
        client_tcp_limits: client_tcp::Limits {
            streams_max: caching.streams_max,
            per_client_max: caching.streams_per_client,
            ..client_tcp::Limits::default()
        },
        upstream_tcp_limits: upstream_tcp::Limits::default(),
        beside: encrypted::beside(serving)?,
        operation: operation(&settings.operation)?,
    })
}

/// Settings of each core.
fn core(settings: &Dns) -> Result<Settings, Failure> {
    let Dns { serving, caching, .. } = settings;
    let mut core = Settings {
        udp_bytes_max: serving.udp_size,
        cache_only: serving.cache_only,
        stale_s: caching.stale,
        prefetch_percent: caching.prefetch,
        query_ms_max: serving.timeout.saturating_mul(1_000),
        attempts_max: serving.attempts,
        limits: Limits {
            queries_max: caching.questions_max,
            waiters_max: caching.waiters_max,
            ..Limits::default()
        },
        hedges: serving.hedge,
        case_random: serving.randomize_case,
        cookie_secret: cookie_secret(caching)?,
        rate: limit::Limits {
            per_s: caching.rate_limit,
            slip: caching.rate_limit_slip,
            ..limit::Limits::default()
        },
        nxdomain_cut: match caching.nxdomain_cut {
            "always" => NxdomainCut::Always,
            "never" => NxdomainCut::Never,
            _ => NxdomainCut::Validated,
        },
        ..Settings::default()
    };
    core.rules.ttl_min_s = caching.ttl_min;
    core.rules.ttl_max_s = caching.ttl_max;
    core.rules.negative_ttl_max_s = caching.negative_ttl_max;
    core.rules.failure_ttl_s = caching.failure_ttl;
    core.rules.believes_ad = serving.trust_ad;
    core.rules.is_minimal = serving.minimal;
    Ok(core)
}

/// Control, metrics, snapshots and logs.
fn operation(settings: &OperationSettings) -> Result<Operation, Failure> {
    let ui = Ui {
        ui: settings.ui.as_ref(),
        history: settings.ui_history.as_ref(),
        token: settings.ui_token.as_deref(),
        hosts: &settings.ui_hosts,
    };
    Ok(Operation {
        control: control(settings.ctl.as_ref(), &settings.ctl_mode)?,
        page: page(&ui)?,
        page_prefix: prefix(settings)?,
        metrics: metrics(settings.metrics.as_ref())?,
        snapshot: settings.snapshot.clone(),
        snapshot_every_s: settings.snapshot_every,
        dnstap: settings.dnstap.as_deref().map(|word| match word.strip_prefix("unix:") {
            Some(socket) => Target::Socket(socket.into()),
            None => Target::File(word.into()),
        }),
        query_log: settings.query_log.as_ref().map(|path| query_log(settings, path)).transpose()?,
    })
}

/// The query log.
fn query_log(settings: &OperationSettings, path: &Path) -> Result<query_log::Options, Failure> {
    Ok(query_log::Options {
        path: path.to_owned(),
        format: match settings.query_log_format {
            "json" => query_log::Format::Json,
            _ => query_log::Format::Text,
        },
        sample: settings.query_log_sample,
        prefix: prefix(settings)?,
        bytes_max: settings.query_log_size,
        files_max: settings.query_log_keep,
    })
}

/// How many bits of clients' addresses logs and the page have.
fn prefix(settings: &OperationSettings) -> Result<Option<query_log::Prefix>, Failure> {
    let Some(word) = &settings.query_log_prefix else { return Ok(None) };
    let expected = "expected bits, such as 24 or 24/48";
    let wrong = || Failure::usage(format!("--query-log-prefix {word:?}: {expected}"));
    parse_prefix(word).map(Some).ok_or_else(wrong)
}

/// Bits of IPv4 addresses, and of IPv6 addresses: 56 by default, a home's network.
fn parse_prefix(word: &str) -> Option<query_log::Prefix> {
    let (v4, v6) = word.split_once('/').unwrap_or((word, "56"));
    let bits = |text: &str, most| text.parse().ok().filter(|bits: &u8| *bits <= most);
    Some(query_log::Prefix { v4: bits(v4, 32)?, v6: bits(v6, 128)? })
}

/// Access, views, local data and blocking.
fn policy(settings: &Dns) -> PolicyOptions {
    let policy = &settings.policy;
    // In a zone that is forwarded, names of special use are forwarded, too.
    let zones = settings.serving.forward.iter().filter_map(|entry| entry.split_once('='));
    let zones = zones.map(|(zone, _)| zone).filter(|zone| !matches!(*zone, "" | "."));
    PolicyOptions {
        access: policy.access.to_vec(),
        views: policy.view.to_vec(),
        hosts: policy.hosts.to_vec(),
        local: policy.local_data.to_vec(),
        blocklists: policy.blocklist.to_vec(),
        block_answer: match policy.block_answer {
            "zero" => BlockAnswer::Zero,
            "refused" => BlockAnswer::Refused,
            _ => BlockAnswer::NxDomain,
        },
        block_reason: match policy.block_reason {
            "filtered" => Reason::Client,
            _ => Reason::Operator,
        },
        allowlists: policy.allowlist.to_vec(),
        rpz: policy.rpz.to_vec(),
        exempt: zones.map(str::to_owned).collect(),
        version: policy.version_text.as_ref().map(Text::to_string),
        id: policy.id_text.as_ref().map(Text::to_string),
    }
}

/// The secret of cookies, if clients get any.
fn cookie_secret(caching: &Caching) -> Result<Option<[u8; cookie::SECRET_BYTES]>, Failure> {
    if !caching.cookies {
        return Ok(None);
    }
    let mut secret = [0; cookie::SECRET_BYTES];
    match &caching.cookie_secret {
        None => random::fill(&mut secret).map_err(|error| {
            let next = "give --cookie-secret, or --cookies=false";
            Failure::file("random numbers", &error, next)
        })?,
        Some(text) => {
            let wrong =
                || Failure::usage("--cookie-secret: expected 32 hexadecimal digits, or 'random'");
            if text.len() != 2 * secret.len() || !text.is_ascii() {
                return Err(wrong());
            }
            for (at, byte) in secret.iter_mut().enumerate() {
                let digits = &text[2 * at..2 * at + 2];
                *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
            }
        }
    }
    Ok(Some(secret))
}

/// The upstreams of names that no --forward covers.
fn upstreams(
    serving: &Serving,
    listen: &[SocketAddr],
    backends: &mut Vec<Arc<dyn Backend>>,
) -> Result<Option<Forward>, Failure> {
    let upstreams: Vec<Upstream> = if *serving.upstream == ["system"] {
        let found = system_upstreams(Path::new(RESOLV_CONF), listen)?;
        if found.is_empty() {
            return Err(Failure::usage(format!(
                "{RESOLV_CONF}: no server other than this one; name an upstream with --upstream ADDR"
            )));
        }
        found.into_iter().map(Upstream::from).collect()
    } else {
        named_upstreams(serving, backends)?
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

/// The servers that `--upstream` names.
fn named_upstreams(
    serving: &Serving,
    backends: &mut Vec<Arc<dyn Backend>>,
) -> Result<Vec<Upstream>, Failure> {
    let each = |word: &String| upstream(serving, serving.upstream.name(), word, backends);
    serving.upstream.iter().map(each).collect()
}

/// The server that a word of the setting `name` stands for: an address, or a URL of an encrypted
/// transport.
fn upstream(
    serving: &Serving,
    name: &str,
    word: &str,
    backends: &mut Vec<Arc<dyn Backend>>,
) -> Result<Upstream, Failure> {
    if !word.contains("://") {
        let address = parse_address(word, PORT).ok_or_else(|| not_an_address(name, word))?;
        return Ok(address.into());
    }
    backends.push(encrypted::upstream(serving, name, word)?);
    let timeout_ms = serving.timeout.saturating_mul(1_000);
    Ok(Upstream::Backend(Answers {
        number: backends.len() - 1,
        wait_ms: timeout_ms.min(ENCRYPTED_WAIT_MS),
        is_believed: false,
    }))
}

/// The nameservers of a resolv.conf without this server.
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

/// Adds `ZONE=ADDR[:PORT]` or `ZONE=URL` to the entry of the zone.
fn add_forward(
    serving: &Serving,
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
    let upstream = upstream(serving, serving.forward.name(), address, backends)?;
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

fn log_end(log: &Log, counts: &Counts) {
    log.info("stopped")
        .number("queries", counts.all_queries())
        .number("hits", counts.hits)
        .number("by_policy", counts.by_policy())
        .number("misses", counts.misses)
        .number("upstream_queries", counts.upstream_queries_udp + counts.upstream_queries_tcp)
        .number("failures", counts.upstream_failures);
}
