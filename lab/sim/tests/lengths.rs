//! What a split by length costs: what must hold of any list, and cases that can be thought through.

use std::io::Write;
use std::path::Path;

use larder_sim::lengths::names::Names;
use larder_sim::lengths::{Row, Settings, Split, run};
use larder_sim::policy::Kind;

fn names_of(lengths: impl Iterator<Item = usize>) -> Names {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for (number, length) in lengths.enumerate() {
        let number = number.to_string();
        writeln!(file, "{number}{}", "x".repeat(length - number.len())).unwrap();
    }
    file.flush().unwrap();
    Names::read(file.path()).unwrap().0
}

fn small() -> Settings {
    Settings { requests: 60_000, memory_shares: vec![0.1, 0.5], ..Settings::default() }
}

fn find(rows: &[Row], split: Split, width: u8) -> Vec<Row> {
    rows.iter().filter(|row| (row.split, row.width) == (split, width)).copied().collect()
}

/// Where all names have one length, one class has all the memory: no split costs anything but the rounding of that
/// length. The paper's example keeps room for names that do not come, and loses it.
#[test]
fn one_length_is_one_class() {
    let names = names_of((0..2_000).map(|_| 16));
    let rows = run(&names, &small(), 2).unwrap();
    assert_eq!(rows.len(), 2 * 2 * 4 * 4);
    for row in &rows {
        if row.width < 32 && row.split != Split::Geometric {
            assert_eq!(row.loss_points, 0.0, "{row:?}");
        } else if row.width != 16 {
            assert!(row.loss_points > 0.0, "{row:?}");
        }
    }
}

/// Bytes counted and nothing split lose nothing to themselves; wider classes of moving pages lose by rounding
/// alone, more the wider they are, and all use the memory that they have.
#[test]
fn moving_pages_lose_by_rounding_alone() {
    let names = Names::made_up(3_000, 5);
    let settings = Settings { policies: vec![Kind::Lru], ..small() };
    let rows = run(&names, &settings, 1).unwrap();
    assert!(find(&rows, Split::Moving, 1).iter().all(|row| row.loss_points == 0.0));
    for (narrow, wide) in find(&rows, Split::Moving, 8).iter().zip(find(&rows, Split::Moving, 32)) {
        assert!(0.0 < narrow.loss_points && narrow.loss_points < wide.loss_points);
        assert!(wide.used < narrow.used && narrow.used <= 1.0);
    }
    assert!(find(&rows, Split::Moving, 1).iter().all(|row| row.used > 0.95));
}

/// The paper's example gives most of the memory to lengths that few names have: it holds much less, and loses.
#[test]
fn the_papers_example_starves_the_long() {
    let names = Names::made_up(3_000, 5);
    let rows = run(&names, &small(), 2).unwrap();
    for (paper, universe) in
        find(&rows, Split::Geometric, 8).iter().zip(find(&rows, Split::Universe, 8))
    {
        assert!(paper.used < universe.used, "{paper:?} {universe:?}");
        assert!(paper.loss_points > universe.loss_points, "{paper:?} {universe:?}");
    }
}

/// A seed decides all, the number of threads nothing; another order of popularity is another result.
#[test]
fn results_are_functions_of_the_seed() {
    let names = Names::made_up(1_000, 3);
    let settings = Settings { requests: 30_000, ..small() };
    let rows = run(&names, &settings, 1).unwrap();
    assert_eq!(rows, run(&names, &settings, 3).unwrap());
    let shuffled = Settings { is_shuffled: true, ..settings };
    assert_ne!(rows, run(&names, &shuffled, 1).unwrap());
}

/// Widths that were not asked for are not reported, though the narrowest is simulated to compare with.
#[test]
fn only_what_was_requested_is_reported() {
    let settings = Settings { widths: vec![8], ..small() };
    let rows = run(&Names::made_up(500, 3), &settings, 1).unwrap();
    assert!(rows.iter().all(|row| row.width == 8) && rows.len() == 2 * 2 * 4);
    assert!(rows.iter().any(|row| row.loss_points != 0.0));
}

/// No names, no hits, and no failure; no file is an error with advice.
#[test]
fn nothing_is_handled() {
    let rows = run(&Names::default(), &small(), 2).unwrap();
    assert!(rows.iter().all(|row| row.requests == 0 && row.hits == 0));
    let error = Names::read(Path::new("/nonexistent/names")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/names"), "{error}");
}
