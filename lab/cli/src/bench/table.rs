//! What the rounds gave, for people: one line a contestant, and one on lookups.

use std::fmt::Write as _;

use larder_annotate::options::LookupPer;
use larder_bench::result_table::{Cell, Column, ResultTable};
use larder_bench::sample::Median;
use larder_settings::amounts::{scaled, size};

use super::{Contestant, Kind};

/// The table.
pub fn text(contestants: &[Contestant]) -> String {
    let limit_of = |contestant: &Contestant| {
        let cores = match contestant.kind {
            Kind::Walk { cores, .. } | Kind::Annotate { cores, .. } => cores,
            Kind::Tshark { .. } => 1,
        };
        let is_limit =
            |other: &&Contestant| matches!(other.kind, Kind::Walk { cores: of, .. } if of == cores);
        contestants.iter().find(is_limit).map(|walk| median(&walk.rates))
    };
    let figure = |rate: f64| Cell::Figure(scaled(rate));
    let columns: [Column<'_, &Contestant>; 7] = [
        ("contestant", &|of| of.name.as_str().into()),
        ("packets", &|of| of.packets.unwrap_or(0).into()),
        ("median pps", &|of| figure(median(&of.rates))),
        ("least", &|of| figure(least(&of.rates))),
        ("most", &|of| figure(most(&of.rates))),
        ("of walk", &|of| {
            Cell::known(limit_of(of), |limit| Cell::Number(median(&of.rates) / limit, 4))
        }),
        ("peak RSS", &|of| Cell::known(of.peak_bytes, |bytes| Cell::Figure(size(bytes)))),
    ];
    let mut text = ResultTable::of(contestants, &columns).text();
    for contestant in contestants.iter().filter(|contestant| {
        matches!(contestant.kind, Kind::Annotate { lookup_per: LookupPer::Packet, .. })
    }) {
        let rates = &contestant.lookup_rates;
        let _ = writeln!(
            text,
            "lookups: {}/s ({} to {}); one takes{}",
            scaled(median(rates)),
            scaled(least(rates)),
            scaled(most(rates)),
            lookup_times(contestant)
        );
    }
    text
}

fn median(rates: &[f64]) -> f64 {
    Median::of(rates).value
}

fn least(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = text(&list);
        let line = text.lines().find(|line| line.starts_with("annotate")).expect("a line");
        assert!(line.contains("0.2500") && line.contains("3.0 MiB"), "{text}");
        assert!(text.contains("lookups: 2.0 M/s") && text.contains("p99 5 ns"), "{text}");
    }
}
