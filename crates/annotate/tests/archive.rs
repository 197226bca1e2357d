//! An archive of many files: its hours, each annotated by itself after reduced captures of what comes before, are one
//! run over all of it.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_annotate::Progress;
use larder_annotate::extract::extract;
use larder_annotate::options::{Endpoint, Options, OutputFormat};
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
fn slice(parts: &[Part], from_ns: Option<i64>, to_ns: Option<i64>, all: &Options) -> Made {
    let before = parts.partition_point(|part| Some(part.latest_ns) < from_ns);
    let options = Options {
        names_read: endpoints(parts[..before].iter().map(|part| &part.reduced)),
        read: endpoints(parts[before..].iter().map(|part| &part.path)),
        from_ns,
        to_ns,
        ..all.clone()
    };
    made(&options, 1)
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
