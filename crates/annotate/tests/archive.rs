//! An archive of many files: its hours, each annotated by itself after reduced captures of what comes before, are one
//! run over all of it.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_annotate::Progress;
use larder_annotate::extract::extract;
use larder_annotate::options::{Endpoint, Options, OutputFormat, SortBy};
use support::*;

const MINUTE_NS: i64 = 60 * SECOND_NS;

/// A file of an archive, what `larder extract` makes of it, and the greatest time in it.
struct Part {
    path: PathBuf,
    reduced: PathBuf,
    latest_ns: i64,
}

fn reduced(capture: &Path, to: PathBuf, cores: usize) -> PathBuf {
    let output = Endpoint::Path(to.clone());
    extract(&Options { cores, output, ..ecs(capture) }, &Arc::default() as &Arc<Progress>)
        .expect("a capture");
    to
}

/// Cuts the frames at random packets; only between packets in order of time, since files that overlap in time are
/// merged.
fn archive(maker: &mut Maker, files: u64, folder: &Folder) -> Vec<Part> {
    let count = maker.frames.len();
    let times = |frames: &[Frame]| frames.iter().map(|frame| frame.at_ns).collect::<Vec<_>>();
    let mut ends: Vec<usize> = (1..files)
        .map(|_| maker.random.below(count as u64) as usize)
        .filter(|&at| at > 0 && is_in_order(&maker.frames, at))
        .collect();
    ends.push(count);
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    let mut parts = Vec::new();
    for (number, end) in ends.into_iter().enumerate() {
        let mut part = Maker::new(0);
        part.frames = maker.frames[start..end].to_vec();
        let path = folder.keep(&format!("{number}.pcapng"), part.pcapng());
        let latest_ns = times(&part.frames).into_iter().max().expect("frames");
        let names = folder.path(&format!("{number}.names.pcapng"));
        let reduced = reduced(&path, names, 1 + number % 2);
        parts.push(Part { path, reduced, latest_ns });
        start = end;
    }
    parts
}

fn endpoints<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<Endpoint> {
    paths.into_iter().map(|path| Endpoint::Path(path.clone())).collect()
}

/// The records between two cuts: files before the first one are read in their reduced form.
fn slice_options(
    parts: &[Part],
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    all: &Options,
) -> Options {
    let before = parts.partition_point(|part| Some(part.latest_ns) < from_ns);
    Options {
        names_read: endpoints(parts[..before].iter().map(|part| &part.reduced)),
        read: endpoints(parts[before..].iter().map(|part| &part.path)),
        from_ns,
        to_ns,
        ..all.clone()
    }
}

fn slice(parts: &[Part], from_ns: Option<i64>, to_ns: Option<i64>, all: &Options) -> Made {
    made(&slice_options(parts, from_ns, to_ns, all), 1)
}

/// Whatever the traffic is and wherever files end: the records of the slices, one after the other, are those of one run
/// over all files, byte for byte.
///
/// `LARDER_MUTATIONS` asks for more archives, `LARDER_SEED` for others.
#[test]
fn slices_are_one_run() {
    let (count, seed) = (setting("LARDER_MUTATIONS", 40), setting("LARDER_SEED", 1));
    let mut reduced = 0;
    for case in 0..count {
        let seed = seed.wrapping_mul(1 << 32).wrapping_add(case);
        let mut maker = long_traffic(seed);
        let folder = Folder::new();
        let parts = archive(&mut maker, 12, &folder);
        let every = [1, 1, 2, 5][case as usize % 4];
        let every_ns = every * MINUTE_NS;
        let times = || maker.frames.iter().map(|frame| frame.at_ns);
        let grid = |time_ns: i64| time_ns.div_euclid(every_ns) * every_ns;
        let (first, last) = (times().min().map(grid), times().max().map(grid));
        let all = Options {
            format: OutputFormat::Csv,
            cut_every_s: 60 * every as u32,
            batch_bytes: [1 << 20, 5_000][case as usize % 2],
            ..ecs(&parts[0].path)
        };
        let whole = slice(&parts, None, None, &all).lines();
        let (mut from, mut slices, mut bounds) = (None, Vec::new(), Vec::new());
        while from < last {
            let cuts = 1 + maker.random.below(4) as i64;
            let to = from.or(first).map(|time_ns| time_ns + cuts * every_ns);
            let to = to.filter(|_| to < last);
            slices.extend(slice(&parts, from, to, &all).lines());
            bounds.push((slices.len(), from));
            reduced += usize::from(from.is_some_and(|from| parts[0].latest_ns < from));
            from = to.or(last);
        }
        let differs = |at: &usize| whole.get(*at) != slices.get(*at);
        if let Some(at) = (0..whole.len().max(slices.len())).find(differs) {
            let part = |lines: &[String]| {
                lines[at.min(lines.len())..].iter().take(3).cloned().collect::<Vec<_>>()
            };
            let from = bounds.iter().find(|(end, _)| *end > at);
            let (of_whole, of_slices) = (part(&whole).join("\n"), part(&slices).join("\n"));
            panic!("seed {seed}, line {at}, slice {from:?}\n{of_whole}\n\n{of_slices}");
        }
    }
    assert!(reduced as u64 > count, "{reduced} slices after reduced files: this test tests little");
}

/// A full budget evicts the same names, to the packet, wherever batches and files end, and in slices, too.
#[test]
fn a_full_budget_evicts_the_same() {
    let (count, seed) = (setting("LARDER_MUTATIONS", 6), setting("LARDER_SEED", 1));
    for case in 0..count {
        let mut maker = mixture(seed.wrapping_mul(1 << 32).wrapping_add(case), 3_000_000);
        for _ in 0..20 {
            maker.visit(12, 1_400);
            maker.pause(10 * SECOND_NS);
        }
        let folder = Folder::new();
        let parts = archive(&mut maker, 6, &folder);
        let all = Options {
            format: OutputFormat::Csv,
            names_budget_bytes: 1 << 20,
            cut_every_s: 60,
            ..ecs(&parts[0].path)
        };
        let whole = slice(&parts, None, None, &all);
        assert!(whole.summary.names_evicted > 2_000, "{:?}", whole.summary);
        let (alive, names) = (whole.summary.names_known, &whole.files["names"]);
        assert!(alive > 1_000, "{alive}");
        let mut evicted = whole.lines();
        evicted.retain(|line| line.contains("evicted"));
        assert!(evicted.len() > 20, "{} flows are without an evicted name", evicted.len());
        for batch_bytes in [3_000, 100_000] {
            let other = slice(&parts, None, None, &Options { batch_bytes, ..all.clone() });
            assert!(whole.lines() == other.lines(), "case {case}: batches of {batch_bytes} bytes");
            assert!(
                *names == other.files["names"],
                "case {case}: names, batches of {batch_bytes} bytes"
            );
        }
        let times = maker.frames.iter().map(|frame| frame.at_ns.div_euclid(MINUTE_NS) * MINUTE_NS);
        let last = times.clone().max().expect("frames");
        let middle = times.min().expect("frames") / 2 + last / 2;
        let cut = middle.div_euclid(MINUTE_NS) * MINUTE_NS;
        let mut slices = slice(&parts, None, Some(cut), &all).lines();
        slices.extend(slice(&parts, Some(cut), None, &all).lines());
        assert!(whole.lines() == slices, "case {case}: slices");
    }
}

/// A reduced capture that is cut short, comes twice, or was made for other rules is told.
#[test]
fn reduced_captures_that_are_not_sound_are_told() {
    let mut maker = long_traffic(5);
    let folder = Folder::new();
    let parts = archive(&mut maker, 3, &folder);
    let (first, last) = (&parts[0], parts.last().expect("parts"));
    let from_ns = (first.latest_ns.div_euclid(MINUTE_NS) + 1) * MINUTE_NS;
    let damaged = |names: &[&PathBuf], change: &dyn Fn(&mut Options)| {
        let mut options = Options {
            names_read: endpoints(names.iter().copied()),
            cut_every_s: 60,
            from_ns: Some(from_ns),
            ..ecs(&last.path)
        };
        change(&mut options);
        larder_annotate::run(&options, &Arc::default()).map(|summary| {
            let kinds = summary.damaged.into_iter().map(|(kind, found)| (kind, found.count));
            kinds.filter(|(kind, _)| kind.starts_with("extract")).collect::<Vec<_>>()
        })
    };
    let damaged_of = |names: &[&PathBuf]| damaged(names, &|_| {}).expect("captures");
    assert_eq!(damaged_of(&[&first.reduced]), []);
    let bytes = std::fs::read(&first.reduced).expect("a capture");
    let cut = folder.keep("cut.pcapng", &bytes[..bytes.len() - 72]);
    assert_eq!(damaged_of(&[&cut]), [("extract_cut_short", 1)]);
    let twice = damaged_of(&[&first.reduced, &first.reduced]);
    assert_eq!(twice, [("extract_overlaps", 2)], "each, once");
    let other = damaged(&[&first.reduced], &|options| options.udp_idle_s = 61);
    let error = other.expect_err("other rules").to_string();
    assert!(error.contains("--udp-idle") && error.contains("extract again"), "{error}");
}

/// The files of a dataset, by their paths in it.
fn files_of(dataset: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let files = entries(dataset)
        .into_iter()
        .flat_map(|date| entries(&date))
        .flat_map(|hour| entries(&hour));
    files
        .map(|path| {
            let bytes = std::fs::read(&path).expect("a file");
            (path.strip_prefix(dataset).expect("its folder").to_owned(), bytes)
        })
        .collect()
}

/// A dataset has the records of the log, each in the file of its time. Slices write the same files as one run, on any
/// number of cores and with batches of any size, and a range that is written again replaces its file.
#[test]
fn slices_write_one_dataset() {
    let (count, seed) = (setting("LARDER_MUTATIONS", 12), setting("LARDER_SEED", 1));
    let formats = [
        (OutputFormat::Csv, ".csv"),
        (OutputFormat::Ecs, ".jsonl"),
        #[cfg(feature = "parquet")]
        (OutputFormat::Parquet, ".parquet"),
    ];
    let (mut of_parts, mut empty) = (0, 0);
    for case in 0..count {
        let mut maker = long_traffic(seed.wrapping_mul(1 << 32).wrapping_add(case));
        let folder = Folder::new();
        let parts = archive(&mut maker, 8, &folder);
        let every = [1, 5][case as usize % 2];
        let every_ns = every * MINUTE_NS;
        let (format, extension) = formats[case as usize % formats.len()];
        let all = Options { format, cut_every_s: 60 * every as u32, ..ecs(&parts[0].path) };
        let run = |options: &Options, dataset: &Path| {
            let dataset = Some(dataset.to_owned());
            let options = Options { output: Endpoint::Pipe, dataset, ..options.clone() };
            larder_annotate::run(&options, &Arc::default()).expect("captures and a folder");
        };
        let whole = folder.path("whole");
        let options = slice_options(&parts, None, None, &all);
        run(&Options { cores: 2, batch_bytes: 5_000, ..options.clone() }, &whole);
        let whole = files_of(&whole);
        let is_sound = |path: &Path| path.to_string_lossy().ends_with(extension);
        assert!(whole.keys().all(|path| is_sound(path)), "{:?}", whole.keys());
        if format == OutputFormat::Ecs {
            let log = made(&options, 1).log();
            let files = whole.values().flatten().copied().collect::<Vec<_>>();
            assert!(
                String::from_utf8(files).expect("JSON") == log,
                "case {case}: the log in order"
            );
        }
        let slices = folder.path("slices");
        let grid = |time_ns: i64| time_ns.div_euclid(every_ns) * every_ns;
        let times = || maker.frames.iter().map(|frame| grid(frame.at_ns));
        let (mut from, last) = (None, times().max());
        let first = times().min().expect("frames");
        while from < last {
            let to = Some(from.unwrap_or(first) + every_ns).filter(|to| Some(*to) < last);
            let options = slice_options(&parts, from, to, &all);
            run(&options, &slices);
            if case % 4 == 0 {
                run(&options, &slices);
            }
            from = to.or(last);
            of_parts += 1;
        }
        let slices = files_of(&slices);
        assert!(
            whole.keys().eq(slices.keys()),
            "case {case}: {:?} {:?}",
            whole.keys(),
            slices.keys()
        );
        assert!(whole == slices, "case {case}: the bytes of the files");
        let ranges = (last.expect("frames") - first) / every_ns + 1;
        empty += ranges as usize - whole.len();
    }
    assert!(of_parts as u64 > 2 * count && empty > 0, "{of_parts} slices, {empty} empty ranges");
}

/// A run that was killed at any time continues with `--resume`: the dataset is that of one run, also if the captures
/// have grown, and of the files that were whole only the last is written again.
#[test]
fn a_run_resumes() {
    let mut maker = long_traffic(3);
    let folder = Folder::new();
    let parts = archive(&mut maker, 4, &folder);
    let run = |read: &[Part], dataset: &Path, resume| {
        let all = slice_options(read, None, None, &ecs(&parts[0].path));
        let (format, dataset) = (OutputFormat::Csv, Some(dataset.to_owned()));
        let output = Endpoint::Pipe;
        let options = Options { format, output, dataset, resume, cut_every_s: 60, ..all };
        larder_annotate::run(&options, &Arc::default()).expect("captures and a folder")
    };
    let whole = folder.path("whole");
    let summary = run(&parts, &whole, false);
    let whole = files_of(&whole);
    assert!(whole.len() > 5, "{} files", whole.len());
    for killed_after in 0..=whole.len() {
        let dataset = folder.path(&format!("after-{killed_after}"));
        for (number, (path, bytes)) in whole.iter().enumerate().take(killed_after + 1) {
            let path = dataset.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            let name = path.file_name().expect("a name").to_str().expect("a time");
            match number {
                // What a run that was killed leaves.
                number if number == killed_after => {
                    std::fs::write(path.with_file_name(format!(".{name}.part")), &bytes[..9])
                }
                // The run replaces this file, and keeps the others.
                number if number + 1 == killed_after => std::fs::write(path, "half an hour"),
                _ => std::fs::write(path, b"kept"),
            }
            .expect("room");
        }
        // Files that are none of this dataset.
        for name in ["flows.2199-01-01T00-00-00Z.log", "flows.99999-1-1T0-0-0Z.csv", "x.csv"] {
            let place = dataset.join("date=2199-01-01/hour=00");
            std::fs::create_dir_all(&place).expect("room");
            std::fs::write(place.join(name), "").expect("room");
        }
        let resumed = run(&parts, &dataset, true);
        if killed_after == 0 {
            assert_eq!(resumed.packets, summary.packets);
        }
        let mut files = files_of(&dataset);
        files.retain(|path, _| !path.starts_with("date=2199-01-01"));
        assert!(files.keys().eq(whole.keys()), "{killed_after}: {:?}", files.keys());
        for (number, (path, bytes)) in files.iter().enumerate() {
            let expected = if number + 1 < killed_after { &b"kept"[..] } else { &whole[path] };
            assert!(bytes == expected, "killed after {killed_after} files: {path:?}");
        }
    }
    let grown = folder.path("grown");
    run(&parts[..2], &grown, true);
    run(&parts, &grown, true);
    assert!(files_of(&grown) == whole, "captures that grew");
}

/// A dataset says which options it does not go with.
#[test]
fn what_a_dataset_does_not_go_with() {
    let folder = Folder::new();
    let mut maker = long_traffic(7);
    let parts = archive(&mut maker, 1, &folder);
    let dataset = Some(folder.path("dataset"));
    let options =
        Options { output: Endpoint::Pipe, dataset, cut_every_s: 60, ..ecs(&parts[0].path) };
    for (change, word) in [
        (&|options: &mut Options| options.cut_every_s = 0, "--cut-every"),
        (&|options: &mut Options| options.output = Endpoint::Path("x".into()), "-o"),
        (&|options: &mut Options| options.format = OutputFormat::Ipfix, "--format"),
        (&|options: &mut Options| options.sort_by = SortBy::Start, "--sort"),
        (&|options: &mut Options| options.rotation.every_s = 60, "rotation"),
    ] as [(&dyn Fn(&mut Options), &str); 5]
    {
        let mut options = options.clone();
        change(&mut options);
        let error = larder_annotate::run(&options, &Arc::default()).expect_err(word).to_string();
        assert!(error.starts_with("--dataset") && error.contains(word), "{error}");
    }
}
