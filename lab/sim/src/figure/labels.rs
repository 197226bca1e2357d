//! Names moved apart so that none lies on another.
//!
//! Each name wants to be at the height where its line ends. Wanted heights in order, a minimum gap, and the
//! least sum of squared moves: this is isotonic regression, and pooling neighbors that are too near solves
//! it exactly (Ayer et al., 1955). Cost: n log n.

/// A run of names that touch: `count` of them, a gap apart, the first at `start`.
struct Run {
    start: f64,
    count: usize,
}

/// The position of each name: the wanted positions, moved as little as keeps them `gap` apart and inside
/// `low..=high`. Names keep the order of their places; equal places, the order in which they came. Where
/// there is no room for all of them (`high - low` below `gap` for each but one), the gap shrinks.
pub(super) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let gap = gap.min((high - low) / (wanted.len() - 1).max(1) as f64);
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));

    let mut runs: Vec<Run> = Vec::new();
    for &index in &order {
        let mut run = Run { start: wanted[index], count: 1 };
        while let Some(before) = runs.pop_if(|before| before.end(gap) > run.start) {
            run = before.join(run, gap);
        }
        runs.push(run);
    }
    // Each run is kept inside; those pushed in at an edge may now touch their neighbors, never pass them.
    let mut floor = low;
    for run in &mut runs {
        run.start = run.start.max(floor);
        floor = run.end(gap);
    }
    let mut ceiling = high + gap;
    for run in runs.iter_mut().rev() {
        run.start = run.start.min(ceiling - run.count as f64 * gap);
        ceiling = run.start;
    }

    let places = runs.iter().flat_map(|run| (0..run.count).map(|k| run.start + k as f64 * gap));
    let mut placed = vec![0.0; wanted.len()];
    for (&index, place) in order.iter().zip(places) {
        placed[index] = place.clamp(low, high);
    }
    placed
}

impl Run {
    /// Where the next name may be.
    fn end(&self, gap: f64) -> f64 {
        self.start + self.count as f64 * gap
    }

    /// Both as one run, at the mean of where each would have it start.
    fn join(self, after: Run, gap: f64) -> Run {
        let count = self.count + after.count;
        let after_start = after.start - self.count as f64 * gap;
        let sum = self.start * self.count as f64 + after_start * after.count as f64;
        Run { start: sum / count as f64, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Names that are far enough apart stay; a crowd is spread evenly around its middle.
    #[test]
    fn names_move_only_where_they_must() {
        assert_eq!(spread(&[10.0, 50.0, 90.0], 14.0, 0.0, 100.0), [10.0, 50.0, 90.0]);
        assert_eq!(spread(&[50.0, 50.0, 50.0], 10.0, 0.0, 100.0), [40.0, 50.0, 60.0]);
        assert_eq!(spread(&[99.0, 100.0, 20.0], 10.0, 0.0, 100.0), [90.0, 100.0, 20.0]);
        assert_eq!(spread(&[0.0, 0.0, 5.0], 10.0, 0.0, 100.0), [0.0, 10.0, 20.0]);
        assert_eq!(spread(&[7.0], 10.0, 0.0, 5.0), [5.0]);
        assert!(spread(&[], 10.0, 0.0, 5.0).is_empty());
    }

    proptest! {
        /// Any wishes end inside, in order, and a gap apart where there is room.
        #[test]
        fn names_are_apart_inside_and_in_order(wanted in prop::collection::vec(0.0..400.0f64, 0..60)) {
            let (gap, high) = (14.0, 400.0);
            let placed = spread(&wanted, gap, 0.0, high);
            prop_assert_eq!(placed.len(), wanted.len());
            let room = wanted.len().saturating_sub(1) as f64 * gap <= high;
            let mut order: Vec<usize> = (0..wanted.len()).collect();
            order.sort_by(|&a, &b| placed[a].total_cmp(&placed[b]));
            for place in &placed {
                prop_assert!((0.0..=high).contains(place));
            }
            for pair in order.windows(2) {
                prop_assert!(wanted[pair[0]] <= wanted[pair[1]]);
                if room {
                    prop_assert!(placed[pair[1]] - placed[pair[0]] >= gap - 1e-6);
                }
            }
        }
    }
}
