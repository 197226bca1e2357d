//! Figures 2 and 3: lengths of names, and what a split by length costs.

use super::{Block, bars, heading, hidden, picture, rows, text};
use crate::figure::{Axis, Bars, Figure, Group, Series};
use crate::lengths::names::{Names, Statistics, TOPS};
use crate::lengths::{self, Split};
use crate::paper::simulated::Simulated;
use crate::policy::Kind;

pub(super) fn name_lengths(names: &Names, names_are: &str, simulated: &Simulated) -> Vec<Block> {
    // The tail of whole names is in the rows.
    const LENGTHS_SHOWN: usize = 80;
    let share = |counts: &[u64]| -> Vec<(f64, f64)> {
        let sum = counts.iter().sum::<u64>().max(1) as f64;
        let of = |length: usize| counts.get(length).map_or(0.0, |&count| count as f64 / sum);
        (1..=LENGTHS_SHOWN).map(|length| (length as f64, of(length))).collect()
    };
    let mut series = vec![Series::new("whole names", share(&names.counts()))];
    for (at, top) in TOPS.iter().enumerate() {
        if !names.registered(at).is_empty() {
            let name = format!("labels in .{top}");
            series.push(Series::new(name, share(names.registered(at))));
        }
    }
    let figure = Figure {
        title: "Lengths of names (the paper's Figures 2 and 3: registered .com and .net)"
            .to_owned(),
        caption:
            "Share of the names that have each length; distinct labels right below .com and .net."
                .to_owned(),
        source: names_are.to_owned(),
        x: Axis::linear("bytes"),
        y: Axis::linear("share of names").percent(),
        series,
        ..Figure::default()
    };
    let of = Statistics::of(&names.counts());
    let registered = Statistics::of(names.registered(0));
    let mut blocks = vec![
        heading("Figures 2 and 3: lengths of names"),
        text(format!(
            "The paper shows the lengths of all registered .com and .net names and concludes that short ones are more \
             frequent, so that a sub-table for short names should have more memory (50 MB for 3 bytes, 1 MB for 65). \
             Whole names as they are asked for: mean {:.1}, most frequent {}, middle {}, nine in ten up to {}, longest \
             {} bytes.{}",
            of.mean,
            of.mode,
            of.median,
            of.p90,
            of.longest,
            if registered.count > 0 {
                format!(
                    " Labels registered below .com in the same list: mean {:.1}, most frequent {}.",
                    registered.mean, registered.mode
                )
            } else {
                String::new()
            }
        )),
        picture("name-lengths", &figure),
        rows("name-lengths-statistics", lengths::report::statistics(names)),
        hidden("name-lengths", lengths::report::distribution(names)),
    ];
    blocks.extend(split_costs(simulated));
    blocks
}

fn split_costs(simulated: &Simulated) -> Vec<Block> {
    let loss = |rows: &[lengths::Row], split, width| {
        let large = rows.iter().map(|row| row.memory_bytes).max();
        let of = |row: &&lengths::Row| {
            (row.policy, row.split, row.width) == (Kind::Lru, split, width)
                && Some(row.memory_bytes) == large
        };
        rows.iter().find(of).map_or(f64::NAN, |row| row.loss_points)
    };
    let widths = [1, 8, 16, 32];
    let group = |split: Split| Group {
        name: match split {
            Split::Moving => "moving pages: the engine",
            Split::Universe => "fixed, by all names",
            Split::Popularity => "fixed, by the root of popularity",
            Split::Geometric => "fixed, the paper's example",
        }
        .to_owned(),
        values: widths.map(|width| loss(&simulated.splits, split, width)).to_vec(),
        marks: Vec::new(),
    };
    let chart = Bars {
        title: "What a split by length costs".to_owned(),
        caption: "Points of hit ratio below an LRU that counts bytes and splits nothing; memory for 8 of 17 parts \
                  of the names."
            .to_owned(),
        source: "larder-lab sim lengths".to_owned(),
        values: Axis::linear("points of hit ratio lost"),
        series: widths.map(|width| format!("classes of {width}")).to_vec(),
        groups: Split::ALL.map(group).to_vec(),
        marks_note: String::new(),
    };
    let of = |split, width| loss(&simulated.splits, split, width);
    let apart = |split, width| loss(&simulated.splits_shuffled, split, width);
    let mut blocks = vec![
        text(format!(
            "What the split costs is not in the paper. Here, with classes of 8 bytes and memory for 8 of 17 parts: \
             {:.1} points of hit ratio where pages move to the class that needs them (the engine; that is rounding up \
             alone), {:.1} with parts fixed as all names would need them, {:.1} by the square root of popularity, {:.1} \
             with the paper's example drawn out to all lengths; {:.1} for that one where length says nothing of \
             popularity. The example gives most memory to lengths that few names have, and helps only as far as popular \
             names are short. Bytes are those of names alone: headers and values, which are the same for all, make \
             every one of these smaller.",
            of(Split::Moving, 8),
            of(Split::Universe, 8),
            of(Split::Popularity, 8),
            of(Split::Geometric, 8),
            apart(Split::Geometric, 8),
        )),
        bars("split-costs", &chart),
        hidden("split-costs", lengths::report::losses(&simulated.splits)),
    ];
    blocks
        .push(hidden("split-costs-shuffled", lengths::report::losses(&simulated.splits_shuffled)));
    blocks
}
