//! The report on the paper: the same for a seed, complete, and honest about what was not done.

use larder_sim::lengths::names::Names;
use larder_sim::paper::{
    File, Measured, Mode, Settings, Timed, TimedMode, files, reported, simulate,
};

fn tiny(threads: usize) -> Settings {
    Settings { names: 300, requests: 3_000, seed: 5, threads }
}

fn report(threads: usize, measured: Option<&Measured>) -> Vec<File> {
    let (settings, names) = (tiny(threads), Names::made_up(300, 5));
    let simulated = simulate(&settings, &names, |_| ()).unwrap();
    files(&settings, &names, "made up <for a test>", &simulated, measured)
}

fn find<'a>(files: &'a [File], name: &str) -> &'a str {
    &files.iter().find(|file| file.0 == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// A machine that never was, of one core.
fn measured() -> Measured {
    let contestants: Vec<String> = ["larder", "own", "fifo", "lru"].map(str::to_owned).to_vec();
    let points = |percents: &[usize], value: f64| -> Vec<Timed> {
        let of = |name: &String| {
            let timed = |&percent: &usize| Timed {
                name: name.clone(),
                cores: 1,
                percent,
                value: [value, value - 1.0, value + 1.0],
            };
            percents.iter().map(timed).collect::<Vec<_>>()
        };
        contestants.iter().flat_map(of).collect()
    };
    let mode = |mode| TimedMode { mode, mops: [3.25, 3.0, 3.5], hit_ratio: 0.5 };
    Measured {
        machine: "a machine that never was".to_owned(),
        cores: 1,
        entries: 1_000,
        rounds: 3,
        stands_for: ["own", "fifo", "lru"].map(str::to_owned),
        inserts: points(&[50, 100], 321.0),
        throughput: points(&[100, 70, 30], 4.5),
        modes: [Mode::Synchronous, Mode::Asynchronous, Mode::Single].map(mode).to_vec(),
        contestants,
    }
}

/// What is simulated is the same bytes for a seed, on any number of threads, and others for another seed.
#[test]
fn the_report_is_a_function_of_its_seed() {
    let files = report(1, None);
    assert_eq!(files, report(3, None));
    let settings = Settings { seed: 6, ..tiny(1) };
    let names = Names::made_up(300, 5);
    let other = simulate(&settings, &names, |_| ()).unwrap();
    let other = larder_sim::paper::files(&settings, &names, "", &other, None);
    assert_ne!(find(&files, "hit-ratio.csv"), find(&other, "hit-ratio.csv"));
}

/// Every number that the paper reports stands in the report beside ours, every file that the page names is there, and
/// nothing is written as "not a number".
#[test]
fn every_reported_number_is_there() {
    let files = report(2, Some(&measured()));
    let page = find(&files, "report.md");
    for insert in reported::INSERTS {
        for ns in [insert.lru_ns, insert.fifo_ns, insert.own_ns] {
            assert!(page.contains(&format!("| {ns:.0} |")), "{ns}");
        }
    }
    for sync in reported::SYNCS {
        let hits = format!("| {:.2} |", 100.0 * sync.hit_ratio);
        let mops = format!("| {:.2} |", sync.operations as f64 / 1e6);
        assert!(page.contains(&hits) && page.contains(&mops), "{}", sync.name);
    }
    for system in reported::SYSTEMS {
        assert!(page.contains(&format!("| {:.2} |", system.mops)), "{}", system.name);
    }
    for ours in ["| 321 |", "| 3.25 |", "| 4.50 |", "a machine that never was"] {
        assert!(page.contains(ours), "{ours}");
    }
    let named = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    for name in named {
        assert!(!find(&files, name).is_empty(), "{name}");
    }
    for (name, text) in &files {
        assert!(!text.contains("NaN") && !text.contains(" inf"), "{name}");
    }
}

/// Pictures are whole documents, the page has them inside, and what a caller names cannot become a tag.
#[test]
fn the_page_stands_alone() {
    let files = report(2, Some(&measured()));
    let page = find(&files, "report.html");
    let pictures: Vec<&File> = files.iter().filter(|file| file.0.ends_with(".svg")).collect();
    assert!(pictures.len() >= 14, "{}", pictures.len());
    assert_eq!(page.matches("<svg ").count(), pictures.len());
    for (name, svg) in pictures {
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{name}");
    }
    assert!(page.contains("made up &lt;for a test&gt;") && !page.contains("<for a test>"));
}

/// Without an engine measured, the report says so where its figures would be.
#[test]
fn what_was_left_out_is_reported() {
    let files = report(2, None);
    let page = find(&files, "report.md");
    assert_eq!(page.matches("Left out in this run.").count(), 2);
    assert!(!files.iter().any(|file| file.0.starts_with("throughput")));
}

/// The simulation shows what it should: one cache shared beats eight small ones, shards lose nothing, sync once in a
/// while costs freshness and not hits.
#[test]
fn results_make_sense() {
    let settings = Settings { names: 2_000, requests: 30_000, ..tiny(2) };
    let simulated = simulate(&settings, &Names::made_up(300, 5), |_| ()).unwrap();
    let hits = |mode: &str| {
        let mut cases = simulated.modes.iter().filter(|case| case.settings.fills);
        let case = cases.find(|case| case.point.mode.name() == mode).unwrap();
        (case.outcome.hit_ratio(), case.outcome.old_ratio())
    };
    let (at_once, later, alone, shards) =
        (hits("synchronous"), hits("periodic"), hits("independent"), hits("sharded"));
    assert!((at_once.0 - shards.0).abs() < 0.02 && at_once.1 == 0.0 && shards.1 == 0.0);
    assert!(alone.0 < at_once.0 - 0.1 && alone.1 > 0.3);
    assert!(later.1 > 0.0);
}
