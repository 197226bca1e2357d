//! Queries return the packets that a scan returns, and those of the model.

mod common;

use std::fs;

use common::world::*;
use common::*;
use larder_store::Query;

/// Random queries of names, addresses, ports, tags and times, joined in any way, return the packets
/// of a scan and of the model: over more than a hundred segments and two runs, also while the last
/// segment grows, and by indexes that are missing or of the first version.
#[test]
fn queries_are_scan_are_model() {
    for seed in [200] {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::new(seed, folder.path(), options(folder.path()));
        for _ in 0..2 {
            world.open();
            world.go_on(150);
            settle(&world);
            query(&mut world, 40);
            world.store.take().unwrap().finish().unwrap();
            query(&mut world, 60);
        }
        let closed = files(folder.path()).into_iter().filter(|name| name.ends_with(".idx"));
        let closed: Vec<_> = closed.map(|name| folder.path().join(name)).collect();
        assert!(closed.len() > 100, "{}", closed.len());
        for path in closed.iter().step_by(2) {
            fs::write(path, of_version_1(&fs::read(path).unwrap())).unwrap();
        }
        query(&mut world, 30);
    }
}

fn query(world: &mut World, questions: usize) {
    for _ in 0..questions {
        let (question, options) = (world.question(3), world.find_options());
        let text = question.text();
        let query = Query::read(&text, 0).unwrap_or_else(|error| panic!("{text}: {error}"));
        let (found, summary) = find_query(&world.directory, &query, options, false);
        assert_eq!((summary.packets, summary.damaged), (found.len() as u64, Vec::new()));
        let expected = world.answer(&question, options);
        assert!(found == expected, "{text} {options:?}: {} {}", found.len(), expected.len());
        let (scanned, _) = find_query(&world.directory, &query, options, true);
        assert!(scanned == expected, "{text} {options:?}: {} {}", scanned.len(), expected.len());
    }
}
