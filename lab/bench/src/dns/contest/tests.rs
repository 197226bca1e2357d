//! Whole runs, tiny. Each is skipped, with a line that states this, where it cannot have a network of its own.

use std::path::Path;

use super::*;
use crate::dns::stub::StubOptions;
use crate::result_table::Style;
use crate::servers::Measured as _;

fn work(name: &str, hot: u32, hit_percent: u32) -> Work {
    Work { name: name.to_owned(), hot, hit_percent }
}

/// Runs works as briefly as it can, either without OPT records or with them and waiting; `None`, and a line that
/// states this, where it cannot have a network.
fn tiny(test: &str, servers: &[Server], works: &[Work], latency: bool) -> Option<Vec<Measured>> {
    let plan = Plan {
        rounds: 1,
        // On a machine with other work, a server may get no core for tens of milliseconds.
        measured: Duration::from_millis(400),
        cores: 1,
        in_flight: 32,
        edns: latency,
        upstream: StubOptions::default(),
        hierarchy: false,
        latency,
    };
    let mut all = Vec::new();
    let result = run(servers, works, &plan, &Arc::default(), |event| match event {
        Event::Measured(measured) => all.push(measured),
        Event::Skipped(name, reason) => panic!("{name}: {reason}"),
        _ => {}
    });
    match result {
        Ok(()) => Some(all),
        Err(Error::NotPermitted(error)) => {
            eprintln!("SKIP {test}: no network of its own: {error}");
            None
        }
        Err(Error::Failed(error)) => panic!("{error}"),
    }
}

/// The limits are measured where they are limits, and answer rightly; that of a mix lies between its parts.
#[test]
fn limits_are_measured() {
    let works = [work("hits", 100, 100), work("misses", 1, 0), work("half", 100, 50)];
    let Some(all) = tiny("limits_are_measured", &[], &works, true) else { return };
    let names =
        |measured: &Measured| measured.entries.iter().map(|entry| entry.name).collect::<Vec<_>>();
    let all_names: Vec<_> = all.iter().map(names).collect();
    let both = vec!["echo", "relay", "echo + relay"];
    assert_eq!(all_names, [vec!["echo"], vec!["relay"], both]);
    for measured in &all {
        let measured_ones = measured.entries.iter().filter(|entry| entry.name != "echo + relay");
        for Entry { name, figures, .. } in measured_ones {
            let work = &measured.work.name;
            assert!(figures.per_cpu_s[0] > 0.0 && figures.per_s[0] > 0.0, "{work}: {name}");
            assert_eq!(figures.wrong, 0, "{work}: {name}");
            assert!(figures.latency_us.iter().all(|share| share.len() == 1));
        }
        assert!(measured.table(Style::Text).contains(&measured.work.name));
    }
    let [hits, misses, half] = &all[..] else { panic!("three works") };
    let rates: Vec<f64> = half.entries.iter().map(|one| one.figures.per_cpu_s[0]).collect();
    let both = 2.0 / (1.0 / rates[0] + 1.0 / rates[1]);
    assert!((rates[2] / both - 1.0).abs() < 1e-9, "{rates:?}");
    assert_eq!(hits.entries[0].figures.upstream, [0.0]);
    assert!((0.5..1.5).contains(&misses.entries[0].figures.upstream[0]));
}

/// A server in a process of its own answers rightly from its cache and from the upstream, which is asked for
/// misses only.
#[test]
fn unbound_answers_rightly() {
    let test = "unbound_answers_rightly";
    let server = match Server::find("unbound", Path::new("larder")) {
        Ok(server) => server,
        Err(reason) => return eprintln!("SKIP {test}: unbound is {reason}"),
    };
    let works = [work("hits", 20, 100), work("misses", 1, 0)];
    let Some(all) = tiny(test, &[server], &works, false) else { return };
    let figures: Vec<&Figures> = all.iter().map(|one| &one.entries[0].figures).collect();
    assert!(all.iter().all(|measured| measured.entries[0].name == "unbound"));
    assert!(figures.iter().all(|one| one.wrong == 0 && one.per_s[0] > 0.0), "{figures:?}");
    assert_eq!(figures[0].upstream, [0.0]);
    assert!(figures[1].upstream[0] > 0.5, "{figures:?}");
    assert!(figures.iter().all(|one| one.of_limit.len() == 1 && one.of_limit[0] > 0.0));
    assert!(figures[0].filled_bytes.is_some_and(|bytes| bytes > 100_000));
}

/// A server that does not start is left out with its reason, and the others are measured.
#[test]
fn a_server_that_fails_is_skipped() {
    let test = "a_server_that_fails_is_skipped";
    let server = Server::find("larder", Path::new("/bin/false")).unwrap();
    let plan = Plan {
        rounds: 1,
        measured: Duration::from_millis(10),
        cores: 1,
        in_flight: 8,
        edns: false,
        upstream: StubOptions::default(),
        hierarchy: false,
        latency: false,
    };
    let (mut skipped, mut measured) = (Vec::new(), 0);
    let result =
        run(&[server], &[work("hits", 1, 100)], &plan, &Arc::default(), |event| match event {
            Event::Skipped(name, reason) => skipped.push((name, reason)),
            Event::Measured(_) => measured += 1,
            _ => {}
        });
    match result {
        Err(Error::NotPermitted(error)) => {
            eprintln!("SKIP {test}: no network of its own: {error}");
        }
        Err(Error::Failed(error)) => panic!("{error}"),
        Ok(()) => {
            assert_eq!((skipped.len(), measured), (1, 1));
            assert!(skipped[0].1.contains("it ended"), "{skipped:?}");
        }
    }
}

/// A run that is stopped ends, and gives no half figures.
#[test]
fn a_run_can_be_stopped() {
    let plan = Plan {
        rounds: 1_000_000,
        measured: Duration::from_secs(3600),
        cores: 1,
        in_flight: 8,
        edns: false,
        upstream: StubOptions::default(),
        hierarchy: false,
        latency: true,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let mut measured = 0;
    let works = [work("hits", 10, 100), work("misses", 1, 0)];
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
