//! What the rounds gave, for people: one line a contestant, and one on lookups.

use std::fmt::Write as _;

use larder_annotate::options::LookupPer;
use larder_bench::result_table::{Cell, ResultTable};
use larder_settings::amounts::{scaled, size};

use super::{Contestant, Kind};

/// The table. Sorts the rounds of each contestant.
pub fn text(contestants: &mut [Contestant]) -> String {
    for contestant in contestants.iter_mut() {
        contestant.rates.sort_by(f64::total_cmp);
        contestant.lookup_rates.sort_by(f64::total_cmp);
    }
    let limit_of = |cores: usize| {
        let walk = contestants.iter().find(
            |contestant| matches!(contestant.kind, Kind::Walk { cores: of, .. } if of == cores),
        )?;
        Some(median(&walk.rates))
    };
    let titles = ["contestant", "packets", "median pps", "least", "most", "of walk", "peak RSS"];
    let mut table = ResultTable::new(&titles);
    for contestant in contestants.iter() {
        let [least, median, most] = spread(&contestant.rates);
        let limit = match contestant.kind {
            Kind::Walk { cores, .. } | Kind::Annotate { cores, .. } => limit_of(cores),
            Kind::Tshark { .. } => limit_of(1),
        };
        table.push([
            contestant.name.as_str().into(),
            contestant.packets.unwrap_or(0).into(),
            Cell::Figure(scaled(median)),
            Cell::Figure(scaled(least)),
            Cell::Figure(scaled(most)),
            limit.map_or(Cell::Unknown, |limit| Cell::Number(median / limit, 4)),
            contestant.peak_bytes.map_or(Cell::Unknown, |bytes| Cell::Figure(size(bytes))),
        ]);
    }
    let mut text = table.text();
    for contestant in contestants.iter().filter(|contestant| {
        matches!(contestant.kind, Kind::Annotate { lookup_per: LookupPer::Packet, .. })
    }) {
        let [least, median, most] = spread(&contestant.lookup_rates);
        let _ = writeln!(
            text,
            "lookups: {}/s ({} to {}); one takes{}",
            scaled(median),
            scaled(least),
            scaled(most),
            lookup_times(contestant)
        );
    }
    text
}

/// Percentiles of single lookups: ` p50 40 ns, p99 100 ns, …`.
fn lookup_times(contestant: &Contestant) -> String {
    let times = &contestant.lookup_times;
    let mut text = String::new();
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        if times.count() > 0 {
            let _ = write!(text, " {name} {} ns,", times.percentile(share));
        }
    }
    let _ = write!(text, " the clock included ({} timed)", times.count());
    text
}

/// Least, median and most of a sorted list.
fn spread(sorted: &[f64]) -> [f64; 3] {
    let end = |end: Option<&f64>| end.copied().unwrap_or(0.0);
    [end(sorted.first()), median(sorted), end(sorted.last())]
}

/// The middle of a sorted list; of the two in the middle, their mean.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        len if len.is_multiple_of(2) => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
        len => sorted[len / 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median is the middle, and of nothing it is nothing.
    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    /// A contestant is compared with the walk on as many cores, and its figures are those of the
    /// middle round.
    #[test]
    fn shares_are_of_the_walk_on_as_many_cores() {
        let mut list = Vec::new();
        for (cores, rates) in [(1, [30.0, 10.0, 20.0]), (2, [50.0, 40.0, 30.0])] {
            let kind = Kind::Walk { cores, plans: Vec::new() };
            list.push(Contestant { rates: rates.to_vec(), ..Contestant::new("walk", kind) });
        }
        let kind = Kind::Annotate { cores: 2, lookup_per: LookupPer::Packet };
        let mut annotate = Contestant::new("annotate", kind);
        annotate.rates = vec![9.0, 10.0, 11.0];
        annotate.lookup_rates = vec![2e6];
        annotate.lookup_times.add(5);
        annotate.peak_bytes = Some(3 << 20);
        list.push(annotate);
        let text = text(&mut list);
        let line = text.lines().find(|line| line.starts_with("annotate")).expect("a line");
        assert!(line.contains("0.2500") && line.contains("3.0 MiB"), "{text}");
        assert!(text.contains("lookups: 2.0 M/s") && text.contains("p99 5 ns"), "{text}");
    }
}
