//! A journal that has lost events is noted.

mod common;

use std::fs;

use common::world::*;
use common::*;
use larder_store::{FindOptions, Options, Store};

/// What a kill leaves may lack the events of its last frame, which is no damage. Events that are lost otherwise are
/// noted: by a search, and by the start that writes the index.
#[test]
fn lost_events_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let large = Options { segment_bytes: 1 << 20, ..options(folder.path()) };
    let mut world = World::new(7, folder.path(), large);
    world.open();
    world.go_on(30);
    settle(&world);
    let journal = files(folder.path()).into_iter().find(|name| name.ends_with(".journal")).unwrap();
    let number: u64 = journal.split('.').next().unwrap().parse().unwrap();
    let sound = fs::read(folder.path().join(&journal)).unwrap();
    assert!(sound.len() > 200, "{} bytes", sound.len());
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 4;
        Some(bytes)
    };
    let cut = Some(sound[..sound.len() - 1].to_vec());
    let cases = [
        (Some(sound.clone()), false),
        (cut, false),
        (flipped(5), true),
        (flipped(60), true),
        (Some(Vec::new()), true),
        (None, true),
    ];
    for (bytes, is_damaged) in cases {
        let copy = tempfile::tempdir().unwrap();
        for name in files(folder.path()).into_iter().filter(|name| *name != journal) {
            fs::copy(folder.path().join(&name), copy.path().join(&name)).unwrap();
        }
        if let Some(bytes) = bytes {
            fs::write(copy.path().join(&journal), bytes).unwrap();
        }
        let words = ["*".to_owned()];
        let (_, summary) = find(copy.path(), &words, FindOptions::default(), false);
        let noted = if is_damaged { vec![number] } else { vec![] };
        assert_eq!(summary.segments_without_index, noted);
        let again = options(copy.path());
        let log = again.log.clone();
        Store::open(again, &interfaces()).unwrap().finish().unwrap();
        let is_warned =
            log.take().iter().any(|line| line.starts_with("warn store: journal damaged"));
        assert_eq!(is_warned, is_damaged);
    }
    world.store.take().unwrap().finish().unwrap();
}
