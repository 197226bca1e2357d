//! `larder-lab names --train`: makes the table of trees that chooses among several names.
//!
//! ```text
//! log of Zeek, whole and thinned -> larder_annotate -> Trial with the features of its candidates
//! features, right or not         -> gradient boosting -> trees
//! trees                          -> source text of the table; exactness on clients that took no part
//! ```
//!
//! **Thinned logs.** From a log of some thousand flows alone the trees learn more about its clients than about
//! names. In copies of the log with a part of the lines left out, the same flows have other evidence; and networks
//! where fewer flows state their name look so. With ten copies, tables from different halves of the clients agree
//! better (docs/decisions/0018).
//!
//! **Boosting** (Friedman, 2001; the second-order gain of Chen and Guestrin, KDD 2016): each tree is fitted to the
//! gradients of the logistic loss that the trees before leave. Its three levels ask one question each (Prokhorenkova
//! et al., NeurIPS 2018), the one with the most gain over all leaves. Nothing is random, so the same logs give the
//! same table.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use larder_annotate::evidence::choice::{FEATURES, Features, Tree, choose};
use larder_annotate::evidence::{Observer, Trial};
use larder_bench::result_table::{Cell, ResultTable};
use larder_wire::Addr;

/// Trees of the table.
const TREES: usize = 30;
/// What a tree adds of its best weight.
const STEP: f64 = 0.4;
/// Added to the weight of each leaf's examples (L2).
const SHRINKAGE: f64 = 10.0;
/// Limits that are tried of a feature, at most.
const LIMITS_MAX: usize = 64;
/// Weights are thousandths.
const SCALE: f64 = 1_000.0;
/// The parts of the lines that copies of a log keep, percent.
pub const KEPT: [u64; 9] = [80, 70, 60, 50, 90, 80, 70, 60, 50];
/// Divisions of the clients in two halves, for judging.
const DIVISIONS: u64 = 3;

/// A flow that states its name.
pub struct Flow {
    client: Addr,
    /// The candidates that the choice could take. Empty if there was no choice.
    candidates: Vec<Features>,
    /// The place of the stated name among them.
    right: Option<usize>,
    /// The name of a flow without a choice is right.
    is_right: bool,
}

impl Flow {
    fn of(trial: &Trial) -> Flow {
        let (names, candidates): (Vec<_>, Vec<_>) = trial.features.iter().cloned().unzip();
        Flow {
            client: trial.client.0,
            candidates,
            right: names.iter().position(|name| *name == trial.stated),
            is_right: trial.is_right(),
        }
    }

    /// True if `table` finds the name that the flow states.
    fn is_right_by(&self, table: &[Tree]) -> bool {
        match choose(table, &self.candidates) {
            Some(choice) => Some(choice.place) == self.right,
            None => self.is_right,
        }
    }
}

/// Flows of one run.
pub type Flows = Arc<Mutex<Vec<Flow>>>;

/// Collects the trials of a run.
pub fn collector(flows: &Flows) -> Observer {
    let flows = Arc::clone(flows);
    Box::new(move |trial| {
        flows.lock().unwrap_or_else(PoisonError::into_inner).push(Flow::of(trial));
    })
}

/// A copy of a log of Zeek with `kept` percent of its lines: which ones depends on `copy`.
pub fn thin(log: &[u8], kept: u64, copy: u64) -> Vec<u8> {
    let lines = log.split_inclusive(|byte| *byte == b'\n').enumerate();
    let is_kept = |number: usize, line: &[u8]| {
        line.starts_with(b"#") || mixed(number as u64, copy) % 100 < kept
    };
    lines
        .filter(|(number, line)| is_kept(*number, line))
        .flat_map(|(_, line)| line)
        .copied()
        .collect()
}

/// A number that looks random (the finalizer of SplitMix64, Steele et al., OOPSLA 2014).
fn mixed(number: u64, seed: u64) -> u64 {
    let mut state = number.wrapping_add(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// Candidates for training.
#[derive(Default)]
struct Examples {
    features: Vec<Features>,
    is_right: Vec<bool>,
}

impl Examples {
    /// The candidates of those `flows` whose client is wanted.
    fn of(copies: &[Vec<Flow>], is_wanted: impl Fn(&Addr) -> bool) -> Examples {
        let mut examples = Examples::default();
        let flows = copies.iter().flatten().filter(|flow| is_wanted(&flow.client));
        for Flow { candidates, right, .. } in flows {
            examples.features.extend(candidates);
            examples.is_right.extend((0..candidates.len()).map(|place| Some(place) == *right));
        }
        examples
    }
}

/// A feature's values by class: class `n` is above `n` of the limits.
struct Classes {
    limits: Vec<i16>,
    /// The class of each example.
    of: Vec<u8>,
}

impl Classes {
    fn new(examples: &Examples, feature: usize) -> Classes {
        let values = || examples.features.iter().map(|features| features[feature]);
        let mut sorted: Vec<i16> = values().collect();
        sorted.sort_unstable();
        let at = |part: usize| sorted[part * (sorted.len() - 1) / LIMITS_MAX];
        let mut limits: Vec<i16> = (0..LIMITS_MAX).map(at).collect();
        limits.dedup();
        let of =
            values().map(|value| limits.partition_point(|limit| *limit < value) as u8).collect();
        Classes { limits, of }
    }
}

/// Sums of gradient and curvature of some examples.
#[derive(Clone, Copy, Default)]
struct Sums {
    gradient: f64,
    curvature: f64,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.gradient += other.gradient;
        self.curvature += other.curvature;
    }

    fn without(self, other: Sums) -> Sums {
        Sums {
            gradient: self.gradient - other.gradient,
            curvature: self.curvature - other.curvature,
        }
    }

    fn gain(self) -> f64 {
        self.gradient * self.gradient / (self.curvature + SHRINKAGE)
    }

    fn weight(self) -> f64 {
        STEP * self.gradient / (self.curvature + SHRINKAGE)
    }
}

/// Trains a table. `None` without examples.
fn train(examples: &Examples) -> Option<Vec<Tree>> {
    let count = examples.is_right.len();
    if count == 0 {
        return None;
    }
    let classes: Vec<Classes> = (0..FEATURES).map(|it| Classes::new(examples, it)).collect();
    let mut scores = vec![0.0; count];
    let mut leaves = vec![0_u8; count];
    let mut table = Vec::with_capacity(TREES);
    for _ in 0..TREES {
        let of_score = |(score, is_right): (&f64, &bool)| {
            let share = 1.0 / (1.0 + f64::exp(-*score));
            Sums {
                gradient: f64::from(u8::from(*is_right)) - share,
                curvature: share * (1.0 - share),
            }
        };
        let sums: Vec<Sums> = scores.iter().zip(&examples.is_right).map(of_score).collect();
        leaves.fill(0);
        let mut questions = [(0, 0); 3];
        for (level, question) in questions.iter_mut().enumerate() {
            let (feature, class) = best_question(&classes, &sums, &leaves, 1 << level);
            *question = (feature as u8, classes[feature].limits[class]);
            for (leaf, of) in leaves.iter_mut().zip(&classes[feature].of) {
                *leaf = *leaf << 1 | u8::from(usize::from(*of) > class);
            }
        }
        let mut by_leaf = [Sums::default(); 8];
        for (leaf, sums) in leaves.iter().zip(&sums) {
            by_leaf[usize::from(*leaf)].add(*sums);
        }
        let weights = by_leaf.map(|sums| (sums.weight() * SCALE).round() as i16);
        for (score, leaf) in scores.iter_mut().zip(&leaves) {
            *score += f64::from(weights[usize::from(*leaf)]) / SCALE;
        }
        table.push((questions, weights));
    }
    Some(table)
}

/// The feature and class whose question gains most over all leaves so far.
fn best_question(
    classes: &[Classes],
    sums: &[Sums],
    leaves: &[u8],
    count: usize,
) -> (usize, usize) {
    let (mut best, mut highest) = ((0, 0), f64::MIN);
    for (feature, Classes { limits, of }) in classes.iter().enumerate() {
        let mut by_class = vec![[Sums::default(); 4]; limits.len() + 1];
        let mut all = [Sums::default(); 4];
        for ((class, leaf), sums) in of.iter().zip(leaves).zip(sums) {
            by_class[usize::from(*class)][usize::from(*leaf)].add(*sums);
            all[usize::from(*leaf)].add(*sums);
        }
        let mut below = [Sums::default(); 4];
        for (class, here) in by_class[..limits.len()].iter().enumerate() {
            let mut gain = 0.0;
            for leaf in 0..count {
                below[leaf].add(here[leaf]);
                gain += below[leaf].gain() + all[leaf].without(below[leaf]).gain();
            }
            if gain > highest {
                (best, highest) = ((feature, class), gain);
            }
        }
    }
    best
}

/// Exactness of tables from one half of the clients on the other half.
struct Division {
    /// Flows, and right names, of each half by the table of the other.
    halves: [(u64, u64); 2],
}

fn divide(copies: &[Vec<Flow>], division: u64) -> Option<Division> {
    let clients: BTreeSet<Addr> = copies.iter().flatten().map(|flow| flow.client).collect();
    let mut order: Vec<Addr> = clients.into_iter().collect();
    let number = |client: &Addr| {
        client.octets().iter().fold(0, |number, byte| mixed(number, u64::from(*byte)))
    };
    order.sort_by_key(|client| (mixed(number(client), division), *client));
    let first: BTreeSet<Addr> = order[..order.len() / 2].iter().copied().collect();
    let judge = |is_first: bool| -> Option<(u64, u64)> {
        let table = train(&Examples::of(copies, |client| first.contains(client) != is_first))?;
        let flows = copies.first()?.iter().filter(|flow| first.contains(&flow.client) == is_first);
        Some(flows.fold((0, 0), |(flows, right), flow| {
            (flows + 1, right + u64::from(flow.is_right_by(&table)))
        }))
    };
    Some(Division { halves: [judge(true)?, judge(false)?] })
}

/// The table from all clients as source text, and what tables from halves of them are worth. `copies`: the flows of
/// the log and of its thinned copies.
pub fn report(copies: &[Vec<Flow>]) -> Option<(String, String)> {
    let table = train(&Examples::of(copies, |_| true))?;
    let mut judged = ResultTable::new(&["division", "flows", "right", "share", "first", "second"]);
    let share = |(flows, right): (u64, u64)| {
        Cell::known((flows > 0).then(|| right as f64 / flows as f64), super::figures::percent)
    };
    for division in 0..DIVISIONS {
        let Division { halves: [first, second] } = divide(copies, division)?;
        let (flows, right) = (first.0 + second.0, first.1 + second.1);
        judged.push(vec![
            Cell::Count(division + 1),
            Cell::Count(flows),
            Cell::Count(right),
            share((flows, right)),
            share(first),
            share(second),
        ]);
    }
    Some((source_text(&table), judged.text()))
}

fn source_text(table: &[Tree]) -> String {
    let mut text = "//! Made by `larder-lab names --train`; do not edit.\n\nuse super::Tree;\n\n\
        /// The trees.\n#[rustfmt::skip]\npub const TABLE: &[Tree] = &[\n"
        .to_owned();
    for (questions, weights) in table {
        // Writing to a string does not fail.
        let _ = writeln!(text, "    ({questions:?}, {weights:?}),");
    }
    text.push_str("];\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(client: u8, ages: [i16; 2], right: usize) -> Flow {
        let candidates = ages.map(|age| {
            let mut features = [0; FEATURES];
            features[1] = age;
            features
        });
        let client = Addr::v4([10, 0, 0, client]);
        Flow { client, candidates: candidates.to_vec(), right: Some(right), is_right: false }
    }

    /// Flows that always mean the name of the newer lookup.
    fn flows() -> Vec<Flow> {
        let ages = |number: i16| match number % 2 {
            0 => ([number % 40, 100 + number % 7], 0),
            _ => ([90 + number % 9, number % 50], 1),
        };
        (0..400)
            .map(|number| {
                let (ages, right) = ages(number);
                flow(number as u8 % 20, ages, right)
            })
            .collect()
    }

    /// What decides in the examples decides in the table, for clients that took no part as well.
    #[test]
    fn the_table_learns_what_decides() {
        let copies = [flows()];
        let table = train(&Examples::of(&copies, |_| true)).expect("examples");
        assert_eq!(table.len(), TREES);
        assert!(copies[0].iter().all(|flow| flow.is_right_by(&table)));
        let Division { halves } = divide(&copies, 0).expect("clients");
        assert_eq!(halves.map(|(flows, right)| flows - right), [0, 0]);
        assert_eq!(halves[0].0 + halves[1].0, 400);
        let (text, judged) = report(&copies).expect("a table");
        assert_eq!(text.lines().filter(|line| line.starts_with("    ([(")).count(), TREES);
        assert!(judged.contains("100.00 %"), "{judged}");
    }

    /// Without flows that have a choice there is no table, and no panic.
    #[test]
    fn no_examples_give_no_table() {
        assert!(report(&[]).is_none());
        let none = Flow { candidates: Vec::new(), right: None, ..flow(1, [0, 0], 0) };
        assert!(report(&[vec![none]]).is_none());
    }

    /// Header lines stay, the same lines are kept each time, and other copies keep others.
    #[test]
    fn thin_logs_keep_their_header() {
        let log: String = (0..1_000).map(|number| format!("{number}\n")).collect();
        let log = format!("#fields\tts\n{log}#close\n");
        let kept = |copy| thin(log.as_bytes(), 60, copy);
        assert_eq!(kept(1), kept(1));
        assert_ne!(kept(1), kept(2));
        let lines = kept(1).split(|byte| *byte == b'\n').count();
        assert!((500..700).contains(&lines), "{lines}");
        assert!(kept(1).starts_with(b"#fields\tts\n") && kept(1).ends_with(b"#close\n"));
        assert_eq!(thin(log.as_bytes(), 100, 3), log.as_bytes());
    }
}
