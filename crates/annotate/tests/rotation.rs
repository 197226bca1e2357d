//! Rotated logs have the records of one log: the same in the same order, each file complete, on any
//! number of cores.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_annotate::options::{Endpoint, OutputFormat, Rotation};
use larder_annotate::{Options, Progress, run};

fn captures() -> Vec<Endpoint> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let names =
        ["r1-as-asked", "r3-newer", "r5-stale", "r7-late", "dns-tcp-many", "quic-v1", "svcb-hints"];
    names.map(|name| Endpoint::Path(folder.join(format!("{name}.pcap")))).to_vec()
}

fn options(folder: &Path, format: OutputFormat, rotation: Rotation) -> Options {
    Options {
        read: captures(),
        format,
        output: Endpoint::Path(folder.join("flows.log")),
        directory: Some(folder.to_owned()),
        rotation,
        ..Options::default()
    }
}

/// Files of a folder whose names begin so, in the order of their names, unpacked.
fn files(folder: &Path, before: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path: PathBuf = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if !name.starts_with(before) {
            continue;
        }
        let mut text = String::new();
        let file = std::fs::File::open(&path).expect("a file");
        match name.ends_with(".gz") {
            true => flate2::read::GzDecoder::new(file).read_to_string(&mut text),
            false => { file }.read_to_string(&mut text),
        }
        .expect("whole text");
        // Numbers sort as numbers.
        let (time, number) = match name.split_once("Z-") {
            Some((time, rest)) => (time, rest.split('.').next().and_then(|n| n.parse().ok())),
            None => (name.split_once("Z.").map_or(&name[..], |(time, _)| time), None),
        };
        found.insert(format!("{time}Z-{:06}", number.unwrap_or(0u32)), text);
    }
    found
}

fn body(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// A Zeek log in one file states the time of the first packet as `#open` and of the last as `#close`,
/// on any number of cores: readers take these times for those of the log.
#[test]
fn a_zeek_log_states_the_times_of_its_packets() {
    for cores in [1, 3] {
        let folder = tempfile::tempdir().expect("a folder");
        let options =
            Options { cores, ..options(folder.path(), OutputFormat::Zeek, Rotation::default()) };
        run(&options, &Arc::new(Progress::default())).expect("sound captures");
        let log = std::fs::read_to_string(folder.path().join("flows.log")).expect("the log");
        let stated =
            |tag: &str| log.lines().find_map(|line| line.strip_prefix(tag)).expect("a tag");
        let seconds = |text: &str| text.parse::<f64>().unwrap_or(0.0);
        let rows = body(&log).into_iter().map(|line| line.split('\t').collect::<Vec<_>>());
        let ends: Vec<(f64, f64)> =
            rows.map(|row| (seconds(row[0]), seconds(row[0]) + seconds(row[8]))).collect();
        let first = ends.iter().fold(f64::MAX, |least, (start, _)| least.min(*start));
        let last = ends.iter().fold(0.0, |most: f64, (_, end)| most.max(*end));
        assert_eq!(stated("#open\t"), dashed(first), "{cores} cores");
        assert_eq!(stated("#close\t"), dashed(last), "{cores} cores");
    }
}

/// A time as Zeek's headers have it, by another algorithm than the program's: days are counted up.
fn dashed(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (mut days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut month) = (1970, 0);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let length = |year, month| match month {
        1 => 28 + u64::from(leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    while days >= length(year, month) {
        days -= length(year, month);
        month += 1;
        if month == 12 {
            (year, month) = (year + 1, 0);
        }
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{:02}-{:02}-{hour:02}-{minute:02}-{second:02}", month + 1, days + 1)
}

/// Rotated by size, by time and both, compressed or not, in three formats: the files together are
/// the log, each has its header and footer, and one and three cores write the same files.
#[test]
fn files_together_are_the_log() {
    for format in [OutputFormat::Zeek, OutputFormat::Ecs, OutputFormat::Csv] {
        let whole = tempfile::tempdir().expect("a folder");
        let progress = Arc::new(Progress::default());
        run(&options(whole.path(), format, Rotation::default()), &progress)
            .expect("sound captures");
        let log = std::fs::read_to_string(whole.path().join("flows.log")).expect("the log");
        let answers = std::fs::read_to_string(whole.path().join("dns.log")).expect("dns.log");
        let head = match format {
            OutputFormat::Csv => log.lines().next(),
            _ => None,
        };
        let wanted: Vec<&str> = body(&log).into_iter().filter(|line| Some(*line) != head).collect();
        assert!(wanted.len() > 20 && body(&answers).len() > 10, "captures with too little in them");
        for (bytes_max, every_s, compress) in
            [(2400, 0, false), (0, 1, true), (900, 60, true), (1, 0, false)]
        {
            let rotation = Rotation { bytes_max, every_s, compress, budget_bytes: 0 };
            let mut made = Vec::new();
            for cores in [1, 3] {
                let folder = tempfile::tempdir().expect("a folder");
                let options = Options { cores, ..options(folder.path(), format, rotation.clone()) };
                run(&options, &Arc::new(Progress::default())).expect("sound captures");
                let flows = files(folder.path(), "flows.");
                let dns = files(folder.path(), "dns.");
                assert!(flows.len() > 1, "nothing was cut: {rotation:?}");
                let got: Vec<&str> = flows
                    .values()
                    .flat_map(|text| {
                        assert_eq!(
                            head,
                            head.and(text.lines().next()),
                            "a file without its header"
                        );
                        body(text)
                    })
                    .filter(|line| Some(*line) != head)
                    .collect();
                assert_eq!(got, wanted, "{rotation:?}");
                let got: Vec<&str> = dns.values().flat_map(|text| body(text)).collect();
                assert_eq!(got, body(&answers), "{rotation:?}");
                for (name, text) in &flows {
                    let is_framed = text.starts_with("#separator")
                        && text.lines().last().is_some_and(|line| line.starts_with("#close\t20"));
                    assert!(
                        format != OutputFormat::Zeek || is_framed,
                        "{name} is no log of Zeek's: {text}"
                    );
                    assert!(
                        compress
                            || bytes_max < 2400
                            || text.len() < 2400 + 50
                            || body(text).len() == 1,
                        "{name}: {}",
                        text.len()
                    );
                }
                let rest: Vec<_> = std::fs::read_dir(folder.path())
                    .expect("a folder")
                    .map(|entry| entry.expect("an entry").file_name())
                    .collect();
                assert!(
                    rest.iter()
                        .all(|name| name != "current" && !name.to_string_lossy().starts_with('.')),
                    "{rest:?}"
                );
                made.push((flows, dns));
            }
            assert_eq!(made[0], made[1], "cores changed the files");
        }
    }
}
