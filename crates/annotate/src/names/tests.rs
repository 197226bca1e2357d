//! How names join, and what a batch's overlay and commits make of them.

use larder_wire::Name;

use super::*;
use crate::record::{NameFlags, NameSource};

const MERGING: Merging<'_> =
    Merging { limit: 3, newer_first: true, targets: &[], led: &[], led_here: 0, asker: None };

fn candidate(asked: &str, time_ns: i64, standing: Standing) -> Candidate<'_> {
    Candidate {
        asked: asked.as_bytes(),
        head: b"",
        time_ns,
        ttl_s: 60,
        teacher: Teacher::Dns,
        standing,
        askers: 0,
        asker: 0,
        direct: false,
    }
}

fn merged(steps: &[Candidate<'_>], merging: Merging<'_>) -> Vec<(String, i64)> {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for step in steps {
        merge(&old, step, merging, &mut new);
        std::mem::swap(&mut old, &mut new);
    }
    Candidates::new(&old)
        .map(|c| (String::from_utf8_lossy(c.asked).into_owned(), c.time_ns))
        .collect()
}

fn names(merged: &[(String, i64)]) -> String {
    merged.iter().map(|(name, _)| name.as_str()).collect()
}

/// Newest first, each name once, no more than the limit; a name asked again comes to the front.
#[test]
fn newer_names_come_first() {
    let step = |name, time| candidate(name, time, Standing::Confirmed);
    let all = [step("a", 1), step("b", 2), step("c", 3), step("a", 4), step("d", 5)];
    let result = merged(&all, MERGING);
    assert_eq!(names(&result), "dac");
    assert_eq!(result[1].1, 4);
    let first_writer = Merging { newer_first: false, ..MERGING };
    assert_eq!(names(&merged(&all, first_writer)), "abc");
}

/// An unsolicited name stands behind every solicited one, pushes none out, and does not renew
/// one that it repeats.
#[test]
fn unsolicited_names_displace_nothing() {
    let (asked, forged) = (
        |n, t| candidate(n, t, Standing::Confirmed),
        |n, t| candidate(n, t, Standing::Unsolicited),
    );
    assert_eq!(names(&merged(&[asked("a", 1), forged("x", 2)], MERGING)), "ax");
    let full = [asked("a", 1), asked("b", 2), asked("c", 3), forged("x", 4)];
    assert_eq!(names(&merged(&full, MERGING)), "cba");
    let repeated = merged(&[asked("a", 1), forged("a", 9)], MERGING);
    assert_eq!(repeated, [("a".to_owned(), 1)]);
    let promoted = merged(&[forged("x", 1), asked("a", 2), asked("x", 3)], MERGING);
    assert_eq!(names(&promoted), "xa");
}

/// A key changed in a batch reads as it was before each packet, and as the engine has it where
/// the batch left it alone; keys of one hash are told apart.
#[test]
fn an_overlay_is_exact_to_the_packet() {
    let mut overlay = Overlay::default();
    let before = overlay.begin(5, b"k", Some(b"old"), 10, b"new");
    overlay.begin(5, b"o", None, 12, b"first");
    overlay.add(5, overlay.changes[before as usize].key, 14, b"newer");
    assert_eq!(overlay.get(5, b"k", 10), Some(Some(&b"old"[..])));
    assert_eq!(overlay.get(5, b"k", 11), Some(Some(&b"new"[..])));
    assert_eq!(overlay.get(5, b"k", 15), Some(Some(&b"newer"[..])));
    assert_eq!(overlay.get(5, b"o", 12), Some(None));
    assert_eq!(overlay.get(5, b"o", 13), Some(Some(&b"first"[..])));
    assert_eq!(overlay.get(5, b"absent", 99), None);
    assert_eq!(overlay.get(6, b"k", 99), None);
}

/// A mark counts from its batch on, and the first batch stays.
#[test]
fn marks_count_from_their_batch_on() {
    let marks = Marks::new(16);
    marks.set(3, 7);
    marks.set(3, 9);
    assert!(!marks.has(3, 6) && marks.has(3, 7) && marks.has(3, 8));
    assert!(!marks.has(4, 100));
}

fn alias<'a>(packet: u64, owner: &'a [u8], target: &'a [u8]) -> AliasLesson<'a> {
    let client = Addr::v4([10, 0, 0, 7]);
    let (scope, standing) = (Scope::NONE, Standing::Confirmed);
    AliasLesson { packet, scope, client, owner, target, standing }
}

fn lesson<'a>(packet: u64, client: u8, asked: &'a [u8], addr: u8) -> Lesson<'a> {
    Lesson {
        packet,
        time_ns: packet as i64 * 1_000_000_000,
        scope: Scope::NONE,
        client: Addr::v4([10, 0, 0, client]),
        asked,
        addr: Addr::v4([192, 0, 2, addr]),
        ttl_s: 5,
        teacher: Teacher::Dns,
        standing: Standing::Confirmed,
        targets: &[],
    }
}

/// Names survive commits; a chain learned in one batch gives the head of a name learned in the
/// next; a loop of aliases has no head.
#[test]
fn names_over_batches() {
    let (mut names, proxies) = Names::new(4 << 20, 1, 1, 4, Rules::all()).expect("room");
    names.learn_alias(&alias(1, b"www.shop.example", b"edge.cdn.example"));
    names.learn_alias(&alias(1, b"a.example", b"b.example"));
    names.learn_alias(&alias(1, b"b.example", b"a.example"));
    let mut proxy = proxies.into_iter().next().expect("one proxy");
    let commit = |names: &mut Names, proxy: &mut Proxy| {
        let committed = names.commit().expect("no failure").expect("no stall");
        proxy.sync_to(committed.position);
    };
    commit(&mut names, &mut proxy);
    names.learn(&lesson(5, 7, b"edge.cdn.example", 1));
    names.learn(&lesson(6, 7, b"a.example", 2));
    commit(&mut names, &mut proxy);
    let (client, other) = (Addr::v4([10, 0, 0, 7]), Addr::v4([10, 0, 0, 8]));
    let named = |client, addr, now_s: i64| {
        let addr = Addr::v4([192, 0, 2, addr]);
        names.view().destination(client, addr, u64::MAX, now_s * 1_000_000_000)
    };
    let own = named(client, 1, 6).expect("a name");
    assert_eq!((own.name.as_bytes(), own.source), (&b"edge.cdn.example"[..], NameSource::DnsPair));
    assert_eq!(own.rivals, [Name::from_canonical(b"www.shop.example")]);
    assert!(!own.flags.has(NameFlags::STALE));
    let shared = named(other, 1, 11).expect("a name");
    let chain = (&b"www.shop.example"[..], NameSource::DnsChain);
    assert_eq!((shared.name.as_bytes(), shared.source), chain);
    assert!(shared.flags.has(NameFlags::STALE), "six seconds old, five to live");
    let looped = named(other, 2, 6).expect("a name");
    assert_eq!(looped.name.as_bytes(), b"a.example");
    assert_eq!(named(other, 3, 6), None);
}

/// A key made as one number has the octets of one made octet by octet, so that entries are found
/// whichever way they were written.
#[test]
fn keys_have_their_octets() {
    let v4 = [Addr::v4([192, 0, 2, 1]), Addr::v4([255, 254, 253, 252])];
    let v6 = Addr::v6(std::array::from_fn(|at| at as u8 + 1));
    assert_eq!(Key::address(Scope::NONE, v4[0]).as_bytes(), b"a\xc0\x00\x02\x01");
    assert_eq!(Key::host(Scope::NONE, v4[1]).as_bytes(), b"h\xff\xfe\xfd\xfc");
    assert_eq!(
        Key::pair(Scope::NONE, v4[0], v4[1]).as_bytes(),
        b"p\xc0\x00\x02\x01\xff\xfe\xfd\xfc"
    );
    assert_eq!(Key::address(Scope::NONE, v6).as_bytes(), [b"a", &v6.0[..]].concat());
    assert_eq!(
        Key::pair(Scope::NONE, v6, v4[0]).as_bytes(),
        [b"P", &v6.0[..], &[192, 0, 2, 1]].concat()
    );
    assert_eq!(
        Key::pair(Scope::NONE, v4[0], v6).as_bytes(),
        [&b"p\xc0\0\x02\x01"[..], &v6.0].concat()
    );
}

/// A sieve has all that was added, and of other hashes only those that share a bit.
#[test]
fn sieves_tell_what_was_added() {
    let sieve = Sieve::new(100);
    sieve.add(5);
    sieve.add(64);
    let has: Vec<u64> = (0..256).filter(|&hash| sieve.has(hash)).collect();
    assert_eq!(has, [5, 64, 128 + 5, 128 + 64]);
}

/// What is taught again as it is changes nothing, and nothing is written for it.
#[test]
fn what_stays_is_not_written() {
    let (mut names, _proxies) = Names::new(4 << 20, 0, 1, 4, Rules::all()).expect("room");
    names.learn_alias(&alias(1, b"a.example", b"b.example"));
    names.commit().expect("no failure").expect("no stall");
    names.learn_alias(&alias(2, b"a.example", b"b.example"));
    assert!(names.overlay.is_empty() && names.changed.is_empty());
    names.learn_alias(&alias(3, b"c.example", b"b.example"));
    assert_eq!(names.changed.len(), 1);
}
