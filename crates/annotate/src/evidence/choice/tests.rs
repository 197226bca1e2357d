//! Tests of the features, and of the choice by a table.

use super::*;
use crate::evidence::usage::FlowStart;

const MS: i64 = 1_000_000;

fn known(lookup_ms: Option<i64>, starts_ms: &[i64], by_client: u64, by_others: u8) -> Known {
    let mut stated = Stated { by_client, by_others, ..Stated::default() };
    for (place, start_ms) in stated.last.iter_mut().zip(starts_ms) {
        *place = Some(FlowStart { flow: 1, start_ns: start_ms * MS });
    }
    Known { lookup_ns: lookup_ms.map(|ms| ms * MS), stated }
}

/// The features of two candidates, worked out by hand, for a flow that begins at 100 s.
#[test]
fn features_compare_candidates() {
    let mut features = Vec::new();
    let first = known(Some(99_999), &[90_000, 99_000], 2, 1);
    let second = known(Some(96_001), &[100_003], 1, 3);
    super::features(100_000 * MS, &[first, second], &mut features);
    // Four classes for each power of two above the age in ms: 1 is in class 4, 3,999 in 47, 1,000 in 39, 3 in 8.
    let shares = [110, 110 - 60, 13, 13 - 146];
    assert_eq!(features[0][..8], [0, 4, 4 - 47, 39, 39 - 255, 255, 1, 0]);
    assert_eq!(features[0][8..], shares);
    assert_eq!(features[1][..8], [1, 47, 47 - 4, 255, 255 - 39, 8, 1, 0]);
    assert_eq!(features[1][8..], [60, 60 - 110, 146, 146 - 13]);
}

/// Each question is a bit of the answer's number, and a limit itself is not above it.
#[test]
fn a_tree_gives_the_weight_of_its_answers() {
    let table = [([(0, 1), (1, 10), (2, -5)], [0, 1, 2, 3, 4, 5, 6, 7])];
    let of = |rank, age, difference| {
        let mut features = [0; FEATURES];
        features[..3].copy_from_slice(&[rank, age, difference]);
        scores(&table, &[[0; FEATURES], features])[1]
    };
    assert_eq!([of(1, 10, -5), of(2, 10, -5), of(1, 11, -5), of(1, 10, -4)], [0, 4, 2, 1]);
    assert_eq!(of(9, 99, 9), 7);
}

/// The highest score wins, of equal ones the first; the margin is the distance to the second.
#[test]
fn the_highest_score_is_chosen() {
    let table: Vec<Tree> = vec![([(0, 1), (0, 2), (0, 3)], [0, 0, 0, 0, 300, 0, 500, 900])];
    let of = |ranks: &[i16]| {
        let candidates = ranks.iter().map(|rank| {
            let mut features = [0; FEATURES];
            features[0] = *rank;
            features
        });
        choose(&table, &candidates.collect::<Vec<_>>())
            .map(|Choice { place, margin }| (place, margin))
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[7]), Some((0, i32::MAX)));
    assert_eq!(of(&[1, 3, 2]), Some((1, 200)));
    assert_eq!(of(&[3, 1, 4]), Some((2, 400)));
    assert_eq!(of(&[2, 2, 1]), Some((0, 0)));
    // More of them than are scored together.
    let mut many = [1; 2 * LANES + 1];
    many[2 * LANES] = 4;
    many[LANES] = 3;
    assert_eq!(of(&many), Some((2 * LANES, 400)));
}

/// The shipped table is well formed, prefers what a client just stated, and of what nobody stated the first.
#[test]
fn the_shipped_table_knows_what_clients_mean() {
    for (questions, _) in TABLE {
        assert!(questions.iter().all(|(feature, _)| usize::from(*feature) < FEATURES));
    }
    let choice = |known: &[Known]| {
        let mut features = Vec::new();
        super::features(100_000 * MS, known, &mut features);
        choose(TABLE, &features).map(|choice| choice.place)
    };
    let untouched = known(Some(99_000), &[], 0, 0);
    assert_eq!(choice(&[untouched, untouched, untouched]), Some(0));
    let just_stated = known(Some(99_000), &[99_990, 99_980], 2, 5);
    assert_eq!(choice(&[untouched, just_stated, untouched]), Some(1));
}
