//! Figure 13: hit ratios by memory.

use super::{Block, at_full, called, heading, hidden, is, percent, picture, rows, text};
use crate::figure::{Axis, Figure, Series};
use crate::paper::reported::{MEMORY_GB, SIZES};
use crate::paper::simulated::{ALPHA, ALPHAS, Case, Simulated};
use crate::policy::Kind;
use larder_bench::result_table::{Cell, Column, ResultTable};

pub(super) fn hit_ratios(simulated: &Simulated) -> Vec<Block> {
    let hits = |policy: &str| {
        let found = at_full(simulated, ALPHA, true).find(|case| is(case, policy));
        found.map_or(f64::NAN, |case| case.outcome.hit_ratio())
    };
    let (own, text_reading, lru, fifo, larder) =
        (hits("paper"), hits("paper:third"), hits("lru"), hits("fifo"), hits("partitioned"));
    let above = lru_above_listing(simulated);
    vec![
        heading("Figure 13: hit ratios"),
        text(format!(
            "The paper has LRU slightly above its own replacement and FIFO well below both, at {SIZES} sizes up to 8 GB for \
             17 GB of names; it gives neither numbers nor the exponent. Here at 8 GB and Zipf {ALPHA}: LRU {}, Algorithm 1 \
             as listed {}, as the text has it {}, FIFO {}; larder {}.",
            percent(lru),
            percent(own),
            percent(text_reading),
            percent(fifo),
            percent(larder),
        )),
        picture("hit-ratio-fill", &figure(simulated, true)),
        picture("hit-ratio-sets", &figure(simulated, false)),
        text("Hits in percent with the most memory, by exponent:"),
        rows("hit-ratio-by-exponent", by_exponent(simulated)),
        Block::List(vec![
            format!(
                "With misses filled, its replacement as listed is {} LRU by {:.2} points here. What it gives depends \
                 on choices that the paper leaves open: the shares of the partitions among them (here 25, 50, 25 %, each free to \
                 use what others leave).",
                if own >= lru { "above" } else { "below" },
                100.0 * (own - lru).abs()
            ),
            format!(
                "Where only sets store, LRU is above the listing at {} of {SIZES} sizes, by {:.2} points at most: the order of the \
                 paper's figure. It may have measured that.",
                above.len(),
                above.iter().copied().fold(0.0, f64::max),
            ),
            "The listing promotes at the first read, the text at the third hit: `paper` and `paper:third`. They are two \
             replacements."
                .to_owned(),
            "Its section 4 stores what misses, its section 3 only what is set; the second figure is for that. Where only \
             sets store, everything waits for the next set of a name; the sets of one stream do not fill the largest sizes, where \
             all policies are alike."
                .to_owned(),
            "The paper explains FIFO's misses by duplicates in it; a table has each name once, in any order of leaving. \
             FIFO loses because it forgets what is popular."
                .to_owned(),
        ]),
        hidden("hit-ratio", all_rows(simulated)),
    ]
}

/// The simulated policies, each once.
fn policies(simulated: &Simulated) -> Vec<Kind> {
    let mut policies: Vec<Kind> = Vec::new();
    for case in &simulated.hit_ratios {
        if !policies.contains(&case.point.policy) {
            policies.push(case.point.policy);
        }
    }
    policies
}

fn figure(simulated: &Simulated, fills: bool) -> Figure {
    let full = simulated.hit_ratios.iter().map(|case| case.point.capacity).max().unwrap_or(1);
    let gb = |case: &Case| f64::from(MEMORY_GB) * f64::from(case.point.capacity) / f64::from(full);
    let line = |policy: Kind| {
        let of = simulated.hit_ratios.iter().filter(|case| {
            (case.alpha, case.settings.fills, case.point.policy) == (ALPHA, fills, policy)
        });
        let points = of.map(|case| (gb(case), case.outcome.hit_ratio()));
        Series::new(called(policy), points.collect())
    };
    let which = if fills { "a miss fills" } else { "only sets store" };
    Figure {
        title: format!("Figure 13: hit ratio by memory, {which}"),
        caption: format!(
            "Zipf {ALPHA}, 90 % get, 10 % set; memory as the paper's, for 17 GB of names."
        ),
        source: "larder-lab sim paper".to_owned(),
        x: Axis::linear("memory, GB"),
        y: Axis::linear("hit ratio").percent(),
        series: policies(simulated).into_iter().map(line).collect(),
        ..Figure::default()
    }
}

/// Hits with the most memory.
fn by_exponent(simulated: &Simulated) -> ResultTable {
    let titles = ["policy", "zipf_0.8", "zipf_0.9", "zipf_0.99", "zipf_1.1", "sets_only_0.9"];
    let mut table = ResultTable::new(&titles);
    for policy in policies(simulated) {
        let hits = |alpha, fills| {
            let found = at_full(simulated, alpha, fills).find(|case| case.point.policy == policy);
            found.map_or(Cell::Unknown, |case| Cell::percent(case.outcome.hit_ratio()))
        };
        let filled = ALPHAS.map(|alpha| hits(alpha, true));
        table.push([called(policy).into()].into_iter().chain(filled).chain([hits(ALPHA, false)]));
    }
    table
}

fn all_rows(simulated: &Simulated) -> ResultTable {
    let columns: [Column<'_, &Case>; 7] = [
        ("zipf", &|case| Cell::Number(case.alpha, 2)),
        ("fill", &|case| case.settings.fills.into()),
        ("policy", &|case| case.point.policy.to_string().into()),
        ("capacity", &|case| u64::from(case.point.capacity).into()),
        ("gets", &|case| case.outcome.gets.into()),
        ("hits", &|case| case.outcome.hits.into()),
        ("hit_ratio", &|case| Cell::ratio(case.outcome.hit_ratio())),
    ];
    ResultTable::of(&simulated.hit_ratios, &columns)
}

/// How many points LRU is above the listing where only sets store, for each size where it is.
fn lru_above_listing(simulated: &Simulated) -> Vec<f64> {
    let of = |policy: &'static str| {
        let cases = simulated.hit_ratios.iter();
        cases.filter(move |case| !case.settings.fills && is(case, policy))
    };
    let pairs = of("lru").zip(of("paper"));
    pairs
        .map(|(lru, listing)| 100.0 * (lru.outcome.hit_ratio() - listing.outcome.hit_ratio()))
        .filter(|&points| points > 0.0)
        .collect()
}
