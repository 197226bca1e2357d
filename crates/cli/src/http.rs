//! `larder http`: settings to a server of `larder_http`, and how it ends.

use std::ffi::OsStr;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, PoisonError};

use larder_http::Rules;
use larder_http::access_log;
use larder_http::counts::Counts;
use larder_http::default_ttl::{BadStatuses, StatusRules};
use larder_http::message::Limits;
use larder_http::options::{Abandoned, HealthChecks, Operation, Options, OriginAddress, Patience};
use larder_http::reload::{Fresh, Source};
use larder_http::server::{LOOPS_MAX, serve};
use larder_http::store::Memory;
use larder_io::reactor::Choice;
use larder_serve::log::Log;
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::layers::Resolved;
use larder_settings::row::List;
use larder_settings::value::{Kind, Value};
use larder_wire::prefix::Prefix;

use crate::addresses::{addresses, control, metrics};
use crate::page::{Ui, note_token, page};
use crate::reloading::{Again, Reloading};
use crate::settings::Http;
use crate::{encrypted, logs, signals};

/// The ports of HTTP, in the clear and over TLS.
const PORT: u16 = 80;
const SECURE_PORT: u16 = 443;

/// Runs the command. `again` reads the settings again.
pub fn http(resolved: Resolved, again: Again) -> Outcome {
    let settings: Http = resolved.read();
    let options = options(&settings)?;
    let log = logs::log("http", (settings.log_level, settings.log_format));
    let source = source(resolved, &options, again, log.clone());
    signals::hold()
        .map_err(|error| Failure::file("signals", &error, "free some file descriptors"))?;
    let _printer = logs::print(&log)?;
    let served =
        serve(&options, Some(source), &log).map_err(|error| Failure::usage(error.to_string()))?;
    log_end(&log, &served.counts);
    Ok(if served.was_hurried { exit::INTERRUPTED } else { exit::DONE })
}

/// Whether these settings go together. Nothing is started.
pub fn check(settings: &Http) -> Result<(), Failure> {
    options(settings).map(drop)
}

/// Reads the settings again, and lists the changes.
fn source(start: Resolved, at_start: &Options, again: Again, log: Log) -> Source {
    let (origins, page) = (at_start.origins.clone(), at_start.operation.page.clone());
    // The authorities to trust are read at the start.
    let may_be_secure = origins.iter().any(|origin| origin.is_secure);
    let reloading = Reloading::new(start, again);
    let in_force = Mutex::new(origins);
    Arc::new(move || {
        let (settings, mut changes) = reloading.read()?;
        let fresh: Http = settings.read();
        let options = options(&fresh).map_err(|failure| failure.message)?;
        note_token(&mut changes, page.as_ref(), options.operation.page.as_ref());
        let is_new = |origin: &&OriginAddress| origin.is_secure && !may_be_secure;
        if let Some(origin) = options.origins.iter().find(is_new) {
            let why = "the first origin over TLS needs a restart";
            return Err(format!("--origin https://{}: {why}", origin.name));
        }
        let mut in_force = in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let has_origin = changes.changed.iter().any(|name| name == "origin");
        if options.origins != *in_force && !has_origin {
            // A name now has another address.
            changes.changed.push("origin".to_owned());
        }
        in_force.clone_from(&options.origins);
        logs::follow(&log, (fresh.log_level, fresh.log_format));
        reloading.apply(settings);
        Ok(Fresh { options, changes })
    })
}

fn options(settings: &Http) -> Result<Options, Failure> {
    let ms = |seconds: u64| seconds.saturating_mul(1_000);
    let words = settings.origin.iter();
    let origins: Vec<OriginAddress> = words.map(|word| origin(word)).collect::<Result<_, _>>()?;
    let tls_bridge = encrypted::http(settings, &origins)?;
    if origins.is_empty() {
        let text = "no origin; add one, such as --origin http://127.0.0.1:9000";
        return Err(Failure::usage(text));
    }
    let memory_bytes = settings.memory;
    let records_bytes = memory_bytes / 100 * settings.memory_small;
    Ok(Options {
        tls_bridge,
        loops: settings.cores.min(LOOPS_MAX),
        io: match settings.io {
            "uring" => Choice::Uring,
            "epoll" => Choice::Epoll,
            _ => Choice::Auto,
        },
        memory: Memory { records_bytes, bodies_bytes: memory_bytes - records_bytes },
        rules: Rules {
            heuristic_share: f64::from(settings.heuristic_percent) / 100.0,
            heuristic_max_s: settings.heuristic_max,
            heeds_clients: !settings.ignore_client_cache_control,
            guesses_with_cookies: settings.heuristic_cookies,
            stale_if_error_s: settings.stale_if_error,
            statuses: statuses(&settings.keep_status)?,
            ..Rules::default()
        },
        limits: Limits { head_bytes_max: settings.head_max as usize, ..Limits::default() },
        clients_max: settings.clients_max,
        clients_per_address: settings.clients_per_address,
        body_bytes_max: match settings.body_max {
            0 => u64::MAX,
            bytes => bytes,
        },
        reuse_port: settings.reuse_port,
        expects_proxy: settings.proxy_protocol,
        origin_connections_max: settings.origin_connections,
        window_bytes: settings.window,
        lease_bytes_max: settings.client_hold,
        inline_bytes_max: settings.inline,
        unshared_s: settings.unshared,
        abandoned: abandoned(&settings.abandoned)?,
        keep_s: settings.keep,
        says_status: !settings.no_cache_status,
        patience: Patience {
            idle_ms: ms(settings.idle_timeout),
            head_ms: ms(settings.head_timeout),
            client_ms: ms(settings.client_timeout),
            connect_ms: ms(settings.connect_timeout),
            first_byte_ms: ms(settings.first_byte_timeout),
            between_bytes_ms: ms(settings.between_bytes_timeout),
            ..Patience::default()
        },
        health_checks: health_checks(settings)?,
        purge_from: prefixes(&settings.purge_from)?,
        operation: operation(settings)?,
        ..Options::new(addresses(&settings.listen, PORT)?, origins)
    })
}

/// Health checks of origins.
fn health_checks(settings: &Http) -> Result<Option<HealthChecks>, Failure> {
    let Some(path) = &settings.health_check else { return Ok(None) };
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        let text = format!("--health-check {path:?}: expected a path, such as /health");
        return Err(Failure::usage(text));
    }
    let every_ms = settings.health_interval.saturating_mul(1_000);
    Ok(Some(HealthChecks { path: path.to_string(), every_ms }))
}

/// Freshness by status, for responses without a stated lifetime: `404=10s`.
fn statuses(words: &List) -> Result<StatusRules, Failure> {
    const TIME: Kind = Kind::Seconds { min: 0, max: 31_536_000 };
    let mut rules = StatusRules::default();
    for word in words.iter() {
        let wrong = |what: String| Failure::usage(format!("--keep-status {word:?}: {what}"));
        let Some((status, time)) = word.split_once('=') else {
            return Err(wrong("expected STATUS=TIME, such as 404=10s".to_owned()));
        };
        let status = status.trim().parse().map_err(|it: BadStatuses| wrong(it.to_string()))?;
        match TIME.parse(OsStr::new(time)).map_err(wrong)? {
            Value::Number(fresh_s) => rules.add(status, fresh_s),
            _ => return Err(wrong(format!("expected {}", TIME.range()))),
        }
    }
    Ok(rules)
}

/// `finish`, `drop`, or the number of bytes up to which a body is finished.
fn abandoned(word: &str) -> Result<Abandoned, Failure> {
    const SIZE: Kind = Kind::Bytes { min: 0, max: 1 << 44 };
    match word {
        "finish" => Ok(Abandoned::Finish),
        "drop" => Ok(Abandoned::Drop),
        _ => match SIZE.parse(OsStr::new(word)) {
            Ok(Value::Number(bytes)) => Ok(Abandoned::FinishUpTo(bytes)),
            _ => {
                let text =
                    format!("--abandoned {word:?}: expected finish, drop or {}", SIZE.range());
                Err(Failure::usage(text))
            }
        },
    }
}

/// Networks.
fn prefixes(list: &List) -> Result<Vec<Prefix>, Failure> {
    let each = |word: &String| {
        let name = list.name();
        let what =
            "expected an address or a network, such as 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32";
        word.parse().map_err(|_| Failure::usage(format!("--{name} {word:?}: {what}")))
    };
    list.iter().map(each).collect()
}

/// Control, metrics, snapshot and access log.
fn operation(settings: &Http) -> Result<Operation, Failure> {
    let access_log = settings.access_log.as_ref().map(|path| access_log::Options {
        path: path.clone(),
        format: match settings.access_log_format {
            "json" => access_log::Format::Json,
            _ => access_log::Format::Combined,
        },
        bytes_max: settings.access_log_size,
        files_max: settings.access_log_keep,
    });
    let ui = Ui {
        ui: settings.ui.as_ref(),
        history: settings.ui_history.as_ref(),
        token: settings.ui_token.as_deref(),
        hosts: &settings.ui_hosts,
    };
    Ok(Operation {
        page: page(&ui)?,
        control: control(settings.ctl.as_ref(), &settings.ctl_mode)?,
        metrics: metrics(settings.metrics.as_ref())?,
        snapshot: settings.snapshot.clone(),
        access_log,
    })
}

/// `http://HOST[:PORT]` or `https://HOST[:PORT]`, looked up.
fn origin(word: &str) -> Result<OriginAddress, Failure> {
    let expected = |what: &str| {
        let text = format!(
            "--origin {word:?}: {what}; expected http://HOST[:PORT] or https://HOST[:PORT]"
        );
        Failure::usage(text)
    };
    let secure = word.strip_prefix("https://");
    let port = if secure.is_some() { SECURE_PORT } else { PORT };
    let authority = secure.or(word.strip_prefix("http://")).unwrap_or(word);
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
        return Err(expected("it has a path, or no host"));
    }
    let after_bracket = authority.rsplit(']').next().unwrap_or(authority);
    let full = match after_bracket.contains(':') {
        true => authority.to_owned(),
        false => format!("{authority}:{port}"),
    };
    let found = full.to_socket_addrs().map_err(|error| expected(&error.to_string()))?;
    let address = { found }.next().ok_or_else(|| expected("the name has no address"))?;
    Ok(OriginAddress { address, name: authority.to_owned(), is_secure: secure.is_some() })
}

fn log_end(log: &Log, counts: &Counts) {
    log.info("stopped")
        .number("requests", counts.requests)
        .number("hits", counts.hits + counts.hits_stale)
        .number("misses", counts.misses)
        .number("coalesced", counts.collapsed)
        .number("passed", counts.passed)
        .number("refused", counts.refused_requests)
        .number("failed", counts.fetches_failed);
}
