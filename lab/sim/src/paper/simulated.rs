//! The experiments that need no clock: hit ratios, ways of sharing, lengths.
//!
//! All by the same simulations as `larder-lab sim sync` and `larder-lab sim lengths`; a cache of one core is one that
//! shares with no other.

use super::reported::{MEMORY_GB, NAMES_GB, SIZES};
use super::{Error, Settings};
use crate::lengths;
use crate::lengths::names::Names;
use crate::policy::Kind;
use crate::sync::{self, Mode, Outcome, Point, Spread};
use crate::trace::zipf::Zipf;

/// Exponents of Zipf's law for Figure 13.
pub(super) const ALPHAS: [f64; 4] = [0.8, 0.9, 0.99, 1.1];

/// The exponent where there is only one.
pub(super) const ALPHA: f64 = 0.9;

/// Exponents among which one that fits Table 1 is looked for.
const ALPHAS_OF_TABLE: [f64; 9] = [0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99];

/// Shares of read indications that reach main.
const REPORTS: [f64; 4] = [1.0, 0.5, 0.125, 0.0];

/// The paper's cores.
const CORES: u32 = 8;

/// Policies of Figure 13: ours, the paper's by its listing and by its text, its rivals, and a newer one.
const CONTESTANTS: [&str; 6] = ["partitioned", "paper", "paper:third", "lru", "fifo", "s3-fifo"];

/// Policies where cores share.
const SHARERS: [&str; 3] = ["paper", "partitioned", "lru"];

/// One simulation, with what it was of.
#[derive(Debug, Clone)]
pub struct Case {
    /// Exponent of Zipf's law.
    pub alpha: f64,
    /// What was asked.
    pub settings: sync::Settings,
    /// Of which policy.
    pub point: Point,
    /// What came of it.
    pub outcome: Outcome,
}

/// All that is simulated.
#[derive(Debug, Clone)]
pub struct Simulated {
    /// Figure 13: one core, nine sizes.
    pub hit_ratios: Vec<Case>,
    /// Table 1: eight cores, all modes.
    pub modes: Vec<Case>,
    /// Table 1 by exponent, to find one that fits.
    pub exponents: Vec<Case>,
    /// The periodic mode by period.
    pub periods: Vec<Case>,
    /// The periodic mode by share of read indications.
    pub reports: Vec<Case>,
    /// Independent caches by spread of requests.
    pub spreads: Vec<Case>,
    /// Splits by length.
    pub splits: Vec<lengths::Row>,
    /// The same with popularity and length apart.
    pub splits_shuffled: Vec<lengths::Row>,
}

/// Runs them all; `report` gets a line before each.
///
/// # Errors
/// A policy could not be built.
pub fn simulate(
    settings: &Settings,
    names: &Names,
    mut report: impl FnMut(&str),
) -> Result<Simulated, Error> {
    report("figure 13: hit ratios by memory");
    let sizes: Vec<u32> = (1..=SIZES).map(|step| memory(settings, step)).collect();
    let hit_ratios = hit_ratios(settings, &sizes)?;
    report("table 1: ways of sharing");
    let common = common(settings);
    let full = memory(settings, SIZES);
    // Sets alone do not fill the largest memory within one stream; a quarter of it they do.
    let size = |fills: bool| if fills { full } else { memory(settings, SIZES / 4) };
    let mut modes = Vec::new();
    for fills in [true, false] {
        let common = sync::Settings { fills, ..common.clone() };
        modes.extend(cases(settings, ALPHA, &common, &points(&Mode::ALL, &SHARERS, size(fills)))?);
    }
    let mut exponents = Vec::new();
    for alpha in ALPHAS_OF_TABLE {
        let points = points(&[Mode::Periodic, Mode::Independent], &["paper"], full);
        exponents.extend(cases(settings, alpha, &common, &points)?);
    }
    report("table 1: periods, read indications, spreads");
    let mut periods = Vec::new();
    for period in (0..7).map(|power| 10u64.pow(power)).filter(|&p| p <= settings.requests / 6) {
        let common = sync::Settings { period, ..common.clone() };
        let points = points(&[Mode::Periodic], &["paper", "partitioned"], full);
        periods.extend(cases(settings, ALPHA, &common, &points)?);
    }
    let mut reports = Vec::new();
    for fills in [true, false] {
        for report_share in REPORTS {
            let common = sync::Settings { report_share, fills, ..common.clone() };
            reports.extend(cases(
                settings,
                ALPHA,
                &common,
                &points(&[Mode::Periodic], &SHARERS, size(fills)),
            )?);
        }
    }
    let mut spreads = Vec::new();
    for spread in Spread::ALL {
        let common = sync::Settings { spread, ..common.clone() };
        let modes = [Mode::Independent, Mode::IndependentFull];
        spreads.extend(cases(settings, ALPHA, &common, &points(&modes, &["paper"], full))?);
    }
    report("figures 2 and 3: lengths");
    let (splits, splits_shuffled) =
        (splits(settings, names, false)?, splits(settings, names, true)?);
    Ok(Simulated {
        hit_ratios,
        modes,
        exponents,
        periods,
        reports,
        spreads,
        splits,
        splits_shuffled,
    })
}

/// Splits by length.
fn splits(
    settings: &Settings,
    names: &Names,
    is_shuffled: bool,
) -> Result<Vec<lengths::Row>, Error> {
    let wanted = lengths::Settings {
        policies: vec![Kind::Lru, Kind::Partitioned],
        alpha: ALPHA,
        is_shuffled,
        requests: settings.requests,
        seed: settings.seed,
        ..lengths::Settings::default()
    };
    lengths::run(names, &wanted, settings.threads).map_err(Error::Policy)
}

/// Entries of a size of Figure 13: so many ninths of 8 GB, of 17 GB of names.
fn memory(settings: &Settings, step: u32) -> u32 {
    let share = f64::from(MEMORY_GB * step) / f64::from(NAMES_GB * SIZES);
    ((f64::from(settings.names) * share).round() as u32).max(1)
}

/// What Table 1 has in common.
fn common(settings: &Settings) -> sync::Settings {
    sync::Settings {
        cores: CORES,
        warm_up: settings.requests / 3,
        seed: settings.seed,
        ..sync::Settings::default()
    }
}

/// All sizes at the one exponent, the largest at the others.
fn hit_ratios(settings: &Settings, sizes: &[u32]) -> Result<Vec<Case>, Error> {
    let of = |alpha, fills, sizes: &[u32]| {
        let common = sync::Settings { cores: 1, fills, ..common(settings) };
        let modes = [Mode::Synchronous];
        let points: Vec<Point> =
            sizes.iter().flat_map(|&size| points(&modes, &CONTESTANTS, size)).collect();
        cases(settings, alpha, &common, &points)
    };
    let mut all = of(ALPHA, true, sizes)?;
    all.extend(of(ALPHA, false, sizes)?);
    for alpha in ALPHAS.into_iter().filter(|&alpha| alpha != ALPHA) {
        all.extend(of(alpha, true, &sizes[sizes.len().saturating_sub(1)..])?);
    }
    Ok(all)
}

fn points(modes: &[Mode], policies: &[&str], capacity: u32) -> Vec<Point> {
    // The names are ours, and a test runs them all.
    let policies: Vec<Kind> = policies.iter().filter_map(|name| name.parse().ok()).collect();
    let of = |&mode: &Mode| policies.iter().map(move |&policy| Point { mode, policy, capacity });
    modes.iter().flat_map(of).collect()
}

fn cases(
    settings: &Settings,
    alpha: f64,
    common: &sync::Settings,
    points: &[Point],
) -> Result<Vec<Case>, Error> {
    let mut source = Zipf::new(alpha, settings.names, settings.requests, 0, settings.seed);
    let outcomes = sync::run(&mut source, common, points, settings.threads)?;
    let case = |(&point, outcome)| Case { alpha, settings: common.clone(), point, outcome };
    Ok(points.iter().zip(outcomes).map(case).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every policy that an experiment names exists.
    #[test]
    fn policies_are_known() {
        assert_eq!(points(&[Mode::Periodic], &CONTESTANTS, 1).len(), CONTESTANTS.len());
        assert_eq!(points(&Mode::ALL, &SHARERS, 1).len(), Mode::ALL.len() * SHARERS.len());
    }

    /// The largest memory is 8 of 17 parts of the names, the smallest a ninth of that.
    #[test]
    fn sizes_are_the_papers() {
        let settings = Settings { names: 170_000, ..Settings::quick(1) };
        assert_eq!((memory(&settings, 9), memory(&settings, 1)), (80_000, 8_889));
    }
}
