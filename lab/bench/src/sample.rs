//! What rounds say: medians, and how sure they are.
//!
//! The interval of a median comes from order statistics: the k-th least and k-th most of n rounds hold the
//! true median between them with a probability that the binomial distribution gives, whatever the times are
//! distributed like. With fewer than six rounds 95 % can't be had, and the interval is all of them.

/// A median and the interval that holds the true one with 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Median {
    /// The middle value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Rounds behind it.
    pub runs: usize,
}

impl Median {
    /// Of the figures of some rounds; not a number when there are none.
    pub fn of(figures: &[f64]) -> Median {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let runs = sorted.len();
        if runs == 0 {
            return Median { value: f64::NAN, low: f64::NAN, high: f64::NAN, runs };
        }
        let value = (sorted[(runs - 1) / 2] + sorted[runs / 2]) / 2.0;
        let cut = ranks_outside(runs);
        Median { value, low: sorted[cut], high: sorted[runs - 1 - cut], runs }
    }

    /// Of the ratios `over / under`, round by round: what disturbed a round disturbed both.
    pub fn of_ratios(over: &[f64], under: &[f64]) -> Median {
        let ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
        Median::of(&ratios)
    }
}

/// Runs each of some contestants once a round, in rotated order: the first one moves on by one each round, so that no
/// contestant always runs after the same neighbor, and a busy moment of the machine hits all of them. `run` gets
/// the round and the contestant. Round 0 warms up: its figures are discarded. Returns the figures of each
/// contestant, round by round.
pub fn rounds<T, E>(
    contestants: usize,
    rounds: usize,
    mut run: impl FnMut(usize, usize) -> Result<T, E>,
) -> Result<Vec<Vec<T>>, E> {
    let mut figures: Vec<Vec<T>> = (0..contestants).map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..=rounds {
        for turn in 0..contestants {
            let at = (turn + round) % contestants;
            let figure = run(round, at)?;
            if round > 0 {
                figures[at].push(figure);
            }
        }
    }
    Ok(figures)
}

/// How many figures may be left out at each end while the rest holds the median with 95 %.
fn ranks_outside(runs: usize) -> usize {
    // P(fewer than k + 1 of n fair coins show heads), both ends.
    let mut term = 0.5f64.powi(runs as i32);
    let mut sum = term;
    let mut cut = 0;
    while 2.0 * sum <= 0.05 && 2 * (cut + 1) < runs {
        cut += 1;
        term *= (runs - cut + 1) as f64 / cut as f64;
        sum += term;
    }
    // The last `cut` that kept both ends below 5 %: `sum` counts ranks up to and with it.
    if 2.0 * sum <= 0.05 { cut } else { cut.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranks are those of the table of the sign test: for 10 rounds the 2nd and the 9th, for 20 the
    /// 6th and the 15th, for 5 the first and the last.
    #[test]
    fn intervals_are_those_of_the_sign_test() {
        for (runs, rank) in [(1, 1), (5, 1), (6, 1), (9, 2), (10, 2), (12, 3), (20, 6), (100, 40)] {
            let figures: Vec<f64> = (1..=runs).map(f64::from).rev().collect();
            let median = Median::of(&figures);
            assert_eq!(median.low, f64::from(rank), "{runs} rounds");
            assert_eq!(median.high, f64::from(runs + 1 - rank), "{runs} rounds");
            assert_eq!(median.value, f64::from(runs + 1) / 2.0);
        }
    }

    /// Ratios are taken round by round; of nothing there is no figure.
    #[test]
    fn ratios_are_paired() {
        assert_eq!(Median::of_ratios(&[1.0, 20.0, 3.0], &[2.0, 40.0, 6.0]).value, 0.5);
        assert!(Median::of(&[]).value.is_nan());
    }
}
