//! Whole runs, tiny. Each is skipped, with a line that states this, where it cannot have a network of its own.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::*;
use crate::result_table::Style;
use crate::servers::Measured as _;

const TINY: Plan = Plan {
    rounds: 1,
    measured: Duration::from_millis(40),
    cores: 1,
    connections: 5,
    clients: 7,
    takes: Duration::from_millis(60),
    strace: false,
};

fn work(kind: Kind, bytes: u64) -> Work {
    Work { kind, bytes }
}

/// Runs works; `None`, and a line that states this, where it cannot have a network. Returns the reasons of servers
/// that were left out.
fn tiny(
    test: &str,
    servers: &[Server],
    works: &[Work],
    plan: &Plan,
) -> Option<(Vec<Measured>, Vec<String>)> {
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    let result = run(servers, works, plan, &Arc::default(), |event| match event {
        Event::Measured(measured) => all.push(measured),
        Event::Skipped(name, reason) => left_out.push(format!("{name}: {reason}")),
        _ => {}
    });
    match result {
        Ok(()) => Some((all, left_out)),
        Err(Error::NotPermitted(error)) => {
            eprintln!("SKIP {test}: no network of its own: {error}");
            None
        }
        Err(Error::Failed(error)) => panic!("{error}"),
    }
}

/// The limits are measured, answer rightly, and are in tables and lines; a server that does not start is left out with
/// its reason.
#[test]
fn limits_are_measured() {
    let servers = [Server::find("larder", Path::new("/bin/false")).unwrap()];
    let works = [work(Kind::Hits, 1 << 10), work(Kind::Hits, 3 << 20)];
    let Some((all, left_out)) = tiny("limits_are_measured", &servers, &works, &TINY) else {
        return;
    };
    assert!(left_out.len() == 2 && left_out[0].contains("it ended"), "{left_out:?}");
    let names: Vec<Vec<&str>> =
        all.iter().map(|one| one.entries.iter().map(|entry| entry.name).collect()).collect();
    assert_eq!(names, [vec!["send"], vec!["write", "sendfile"]]);
    for measured in &all {
        for Entry { name, figures, is_limit } in &measured.entries {
            let wrong = (figures.wrong, figures.failed, &figures.first_fault);
            assert_eq!(wrong, (0, 0, &None), "{name}");
            assert!(*is_limit && figures.gb_per_s[0] > 0.0 && figures.threads == 1, "{name}");
            let text = measured.table(Style::Text);
            assert!(text.contains(&format!("({name})")) && !text.contains("fetches"), "{text}");
            let lines = measured.json();
            assert!(lines.contains(&format!("\"server\":\"{name}\"")), "{lines}");
            assert!(lines.contains("\"is_limit\":true"), "{lines}");
        }
    }
}

/// Servers in processes of their own answer rightly in every kind of work: hits without a fetch, what is passed on from
/// the origin with a fetch each, from itself without, and a crowd with one where the server collapses.
#[test]
fn servers_answer_rightly() {
    let test = "servers_answer_rightly";
    let mut servers = Vec::new();
    for name in ["nginx", "haproxy", "varnish"] {
        match Server::find(name, Path::new("larder")) {
            Ok(server) => servers.push(server),
            Err(reason) => eprintln!("SKIP {test}: {name} is {reason}"),
        }
    }
    let kinds = [Kind::Hits, Kind::Pass, Kind::Through, Kind::Busy];
    let works: Vec<Work> = kinds.iter().map(|&kind| work(kind, 200_000)).collect();
    let Some((all, left_out)) = tiny(test, &servers, &works, &TINY) else { return };
    assert_eq!((all.len(), left_out), (4, Vec::new()));
    for measured in &all {
        let kind = measured.work.kind;
        for Entry { name, figures, .. } in measured.entries.iter().filter(|one| !one.is_limit) {
            let context = format!("{name} {kind:?} {figures:?}");
            assert_eq!((figures.wrong, figures.failed), (0, 0), "{context}");
            assert!(figures.threads > 0 && figures.peak_bytes > 1 << 20, "{context}");
            match kind {
                Kind::Hits | Kind::Pass => assert_eq!(figures.fetches, [0.0], "{context}"),
                Kind::Through => assert!(figures.fetches[0] >= 1.0, "{context}"),
                Kind::Busy => {
                    let most = if *name == "haproxy" { 7.0 } else { 1.0 };
                    assert!((1.0..=most).contains(&figures.fetches[0]), "{context}");
                    assert!(figures.last_s[0] >= 0.03 && figures.first_ms.len() == 1, "{context}");
                }
            }
        }
        let json = measured.json();
        assert_eq!(json.lines().count(), measured.entries.len());
        for line in json.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["failed"], 0);
        }
        let table = measured.table(Style::Markdown);
        assert_eq!(table.contains("first ms"), kind == Kind::Busy, "{table}");
    }
}

/// System calls are counted where strace is, by name: a server that answers has received and sent.
#[test]
fn calls_are_counted() {
    let test = "calls_are_counted";
    let found = (Server::find("nginx", Path::new("larder")), crate::process::find("strace"));
    let (Ok(server), Some(_)) = found else {
        return eprintln!("SKIP {test}: nginx or strace is not installed");
    };
    let plan = Plan { strace: true, ..TINY };
    let Some((all, _)) = tiny(test, &[server], &[work(Kind::Hits, 100)], &plan) else { return };
    let Some(calls) = &all[0].entries[0].figures.calls else {
        return eprintln!("SKIP {test}: strace may not trace here");
    };
    let receives = calls.by_name.iter().find(|(name, _)| name == "recvfrom").expect("receives").1;
    assert!((0.5..2.0).contains(&receives) && calls.per_request > receives, "{calls:?}");
    assert!(all[0].table(Style::Text).contains("calls of nginx: "));
}

/// A run that is stopped ends, and gives no half figures.
#[test]
fn a_run_can_be_stopped() {
    let plan = Plan { rounds: 1_000_000, measured: Duration::from_secs(3600), ..TINY };
    let stop = Arc::new(AtomicBool::new(false));
    let mut measured = 0;
    let works = [work(Kind::Hits, 10), work(Kind::Busy, 10)];
    let result = run(&[], &works, &plan, &stop, |event| match event {
        Event::Progress(_) => stop.store(true, Ordering::Relaxed),
        Event::Measured(_) => measured += 1,
        _ => {}
    });
    if let Err(Error::NotPermitted(error)) = result {
        eprintln!("SKIP a_run_can_be_stopped: no network of its own: {error}");
    }
    assert_eq!(measured, 0);
}
