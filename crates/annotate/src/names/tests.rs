//! Merging of names, and the effects of a batch's overlay and commits.

use larder_testkit::random::Random;

use super::followed::FOLLOWED_MAX;
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
        learned_from: NameProtocol::Dns,
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

/// Newest first, each name once, no more than the limit; a name that is queried again comes to the
/// front.
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

/// An unsolicited name comes after every solicited one, displaces none, and does not renew one that
/// it repeats.
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

/// An entry returns each candidate as it was written, and of a value that was cut short those that
/// are whole.
#[test]
fn candidates_are_read_as_they_were_written() {
    let teachers = [
        (NameProtocol::Dns, NameSource::DnsAddress),
        (NameProtocol::Mdns, NameSource::Mdns),
        (NameProtocol::Llmnr, NameSource::Llmnr),
        (NameProtocol::Nbns, NameSource::Nbns),
        (NameProtocol::Dhcp, NameSource::Dhcp),
        (NameProtocol::Ptr, NameSource::Ptr),
    ];
    let (mut value, mut written) = (Vec::new(), Vec::new());
    for (learned_from, source) in teachers {
        assert_eq!(learned_from.source(), source);
        for (standing, direct) in Standing::ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let plain = candidate("asked.example", -5, standing);
            let (head, ttl_s) = (&b"head.example"[..], 0x0102_0304);
            let all =
                Candidate { head, ttl_s, learned_from, askers: 7, asker: 0x0809, direct, ..plain };
            for one in [plain, all] {
                one.write(&mut value);
                written.push(one);
            }
        }
    }
    assert_eq!(Candidates::new(&value).collect::<Vec<_>>(), written);
    let short = &value[..value.len() - 1];
    assert_eq!(Candidates::new(short).collect::<Vec<_>>(), written[..written.len() - 1]);
}

/// A name is stale when more time has passed than its TTL; a clock that went back makes none stale.
#[test]
fn names_are_stale_after_their_ttl() {
    let at_10_s = candidate("a", 10_000_000_000, Standing::Confirmed);
    assert!(!at_10_s.is_stale_at(70_000_000_000));
    assert!(at_10_s.is_stale_at(70_000_000_001));
    assert!(!at_10_s.is_stale_at(0));
}

/// The statement of a host comes before its lease until it expires, and after it later; a name by
/// DNS with a query comes before both at any time.
#[test]
fn a_lease_replaces_what_a_host_no_longer_says() {
    let (minute_ns, both) = (60_000_000_000, |first: Candidate<'_>, lease_ns: i64| {
        let leased = Candidate {
            learned_from: NameProtocol::Dhcp,
            ..candidate("lease", lease_ns, Standing::Leased)
        };
        names(&merged(&[first, leased], MERGING))
    });
    let looked_up = candidate("host", 0, Standing::Confirmed);
    let said = Candidate { learned_from: NameProtocol::Mdns, ..looked_up };
    assert_eq!(both(said, minute_ns), "hostlease");
    assert_eq!(both(said, minute_ns + 1), "leasehost");
    assert_eq!(both(looked_up, minute_ns + 1), "hostlease");
}

/// A site that clients query directly keeps its place before an alias of it in another domain,
/// unless more clients followed aliases to it; names behind it do not.
#[test]
fn an_alias_stays_behind_a_site_that_is_asked_for() {
    let order = |asker: Option<u16>, led: &[u8], targets: &[&[u8]], owner: &str| {
        let steps = [candidate("old.org ", 1, Standing::Confirmed)];
        let (mut old, mut new) = (Vec::new(), Vec::new());
        merge(&[], &steps[0], MERGING, &mut old);
        let site = candidate("site.com ", 2, Standing::Confirmed);
        merge(&old, &site, Merging { asker, ..MERGING }, &mut new);
        let alias = candidate(owner, 3, Standing::Confirmed);
        merge(&new, &alias, Merging { targets, led, ..MERGING }, &mut old);
        Candidates::new(&old).map(|c| String::from_utf8_lossy(c.asked)).collect::<String>()
    };
    let (other, site): (&[u8], &[u8]) = (b"other.com ", b"site.com ");
    assert_eq!(order(Some(1), &[1], &[site], "a.net "), "site.com a.net old.org ");
    assert_eq!(order(Some(1), &[9, 0], &[other, site], "a.net "), "site.com a.net old.org ");
    assert_eq!(order(Some(1), &[2], &[site], "a.net "), "a.net site.com old.org ", "followed");
    assert_eq!(order(None, &[0], &[site], "a.net "), "a.net site.com old.org ", "never asked for");
    assert_eq!(order(Some(1), &[1], &[other], "a.net "), "a.net site.com old.org ", "of another");
    assert_eq!(order(Some(1), &[1], &[site], "a.site.com "), "a.site.com site.com old.org ");
}

/// A client that queries again counts again only after another client, observations without a
/// client count none, and the count does not wrap.
#[test]
fn askers_are_counted() {
    let askers = |clients: &[Option<u16>]| {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for &asker in clients {
            let one = candidate("a.com", 1, Standing::Confirmed);
            merge(&old, &one, Merging { asker, ..MERGING }, &mut new);
            std::mem::swap(&mut old, &mut new);
        }
        let found = Candidates::new(&old).next().expect("a candidate");
        (found.askers, found.asker)
    };
    assert_eq!(askers(&[None]), (0, 0));
    assert_eq!(askers(&[Some(0), Some(0)]), (1, 0));
    assert_eq!(askers(&[Some(3), Some(3), None]), (1, 3));
    assert_eq!(askers(&[Some(3), Some(4), Some(3)]), (3, 3));
    let many: Vec<_> = (0..300).map(Some).collect();
    assert_eq!(askers(&many), (255, 299));
}

/// A name comes before the head of its chain if at least as many clients queried it as were led to
/// it, and the head is of another domain.
#[test]
fn a_name_asked_for_directly_stands_before_its_head() {
    let direct = |head: &[u8], asker: Option<u16>, led_here: u8| {
        let one = Candidate { head, ..candidate("cdn.com", 1, Standing::Confirmed) };
        let mut entry = Vec::new();
        merge(&[], &one, Merging { asker, led_here, ..MERGING }, &mut entry);
        Candidates::new(&entry).next().expect("a candidate").direct
    };
    assert!(direct(b"shop.org", Some(1), 0) && direct(b"shop.org", Some(1), 1));
    assert!(!direct(b"shop.org", Some(1), 2) && !direct(b"shop.org", None, 0));
    assert!(!direct(b"www.cdn.com", Some(1), 0) && !direct(b"", Some(1), 0));
}

/// A key changed in a batch reads as it was before each packet, and as the engine has it if the
/// batch did not change it; keys of one hash are distinguished.
#[test]
fn an_overlay_is_exact_to_the_packet() {
    let mut overlay = Overlay::default();
    let before = overlay.begin(5, b"k", Some(b"old"), 10, b"new");
    overlay.begin(5, b"o", None, 12, b"first");
    let latest = overlay.changes[before as usize + 1];
    overlay.add(5, &latest, 14, b"newer");
    assert_eq!(overlay.get(5, b"k", 10), Some(Some(&b"old"[..])));
    assert_eq!(overlay.get(5, b"k", 11), Some(Some(&b"new"[..])));
    assert_eq!(overlay.get(5, b"k", 15), Some(Some(&b"newer"[..])));
    assert_eq!(overlay.get(5, b"o", 12), Some(None));
    assert_eq!(overlay.get(5, b"o", 13), Some(Some(&b"first"[..])));
    assert_eq!(overlay.get(5, b"absent", 99), None);
    assert_eq!(overlay.get(6, b"k", 99), None);
}

/// A mark counts after its packet, and the first packet stays.
#[test]
fn marks_count_after_their_packet() {
    let marks = Marks::new(16);
    marks.set(3, 7);
    marks.set(3, 9);
    assert!(!marks.has(3, 7) && marks.has(3, 8) && marks.has(3, 9));
    marks.set(5, 0);
    assert!(marks.has(5, 1), "a name that was loaded");
    assert!(!marks.has(4, 100));
}

fn alias<'a>(packet: u64, owner: &'a [u8], target: &'a [u8]) -> AliasObservation<'a> {
    let client = Addr::v4([10, 0, 0, 7]);
    let (scope, standing) = (Scope::NONE, Standing::Confirmed);
    let time_ns = packet as i64 * 1_000_000_000;
    AliasObservation { packet, time_ns, scope, client, owner, target, standing }
}

fn observation<'a>(packet: u64, client: u8, asked: &'a [u8], addr: u8) -> AddressObservation<'a> {
    AddressObservation {
        packet,
        time_ns: packet as i64 * 1_000_000_000,
        scope: Scope::NONE,
        client: Addr::v4([10, 0, 0, client]),
        asked,
        addr: Addr::v4([192, 0, 2, addr]),
        ttl_s: 5,
        learned_from: NameProtocol::Dns,
        standing: Standing::Confirmed,
        targets: &[],
    }
}

/// Names survive commits; a chain learned in one batch gives the head of a name learned in the
/// next; a loop of aliases has no head.
#[test]
fn names_over_batches() {
    let (mut names, readers) = Names::new(4 << 20, 1, 1, 4, Rules::all()).expect("room");
    names.learn_alias(&alias(1, b"www.shop.example", b"edge.cdn.example"));
    names.learn_alias(&alias(1, b"a.example", b"b.example"));
    names.learn_alias(&alias(1, b"b.example", b"a.example"));
    let mut reader = readers.into_iter().next().expect("one reader");
    let commit = |names: &mut Names, reader: &mut Reader| {
        let committed = names.commit().expect("no failure").expect("no stall");
        reader.sync_to(committed.position);
    };
    commit(&mut names, &mut reader);
    names.learn(&observation(5, 7, b"edge.cdn.example", 1));
    names.learn(&observation(6, 7, b"a.example", 2));
    commit(&mut names, &mut reader);
    let (client, other) = (Addr::v4([10, 0, 0, 7]), Addr::v4([10, 0, 0, 8]));
    let named = |client, addr, now_s: i64| {
        let addr = Addr::v4([192, 0, 2, addr]);
        names.view().destination(client, addr, u64::MAX, now_s * 1_000_000_000)
    };
    let own = named(client, 1, 6).expect("a name");
    assert_eq!((own.name.as_bytes(), own.source), (&b"edge.cdn.example"[..], NameSource::DnsPair));
    let rivals: Vec<&[u8]> = own.rivals.iter().map(|rival| rival.name.as_bytes()).collect();
    assert_eq!(rivals, [b"www.shop.example"]);
    assert!(!own.flags.has(NameFlags::STALE));
    let shared = named(other, 1, 11).expect("a name");
    let chain = (&b"www.shop.example"[..], NameSource::DnsChain);
    assert_eq!((shared.name.as_bytes(), shared.source), chain);
    assert!(shared.flags.has(NameFlags::STALE), "six seconds old, five to live");
    let looped = named(other, 2, 6).expect("a name");
    assert_eq!(looped.name.as_bytes(), b"a.example");
    assert_eq!(named(other, 3, 6), None);
}

/// An alias without a query neither replaces one with a query nor counts as followed; of those with
/// a query the last counts, and each client once.
#[test]
fn aliases_that_nobody_asked_for_replace_none() {
    let (mut names, _readers) = Names::new(4 << 20, 0, 1, 4, Rules::all()).expect("room");
    let (target, client) = (&b"edge.cdn.example"[..], |last| Addr::v4([10, 0, 0, last]));
    let head = |names: &mut Names, standing| {
        let mut head = Vec::new();
        names.head_of(target, standing, &mut head);
        String::from_utf8(head).expect("text")
    };
    let forged =
        AliasObservation { standing: Standing::Unsolicited, ..alias(1, b"forged.example", target) };
    names.learn_alias(&forged);
    assert_eq!(head(&mut names, Standing::Confirmed), "");
    assert_eq!(head(&mut names, Standing::Unsolicited), "forged.example");
    assert_eq!(names.led_to(target), 0);
    names.learn_alias(&AliasObservation { client: client(1), ..alias(2, b"one.example", target) });
    names.learn_alias(&AliasObservation { client: client(2), ..alias(3, b"two.example", target) });
    names.learn_alias(&AliasObservation { client: client(1), ..alias(4, b"one.example", target) });
    names.learn_alias(&AliasObservation { client: client(3), ..forged });
    assert_eq!(head(&mut names, Standing::Confirmed), "one.example");
    assert_eq!(names.led_to(target), 2);
    assert_eq!(names.led_to(b"one.example"), 0, "nothing is an alias of that");
}

/// Names that are addresses are counted and not learned: as aliases, as their targets, and as
/// queried names. An alias of itself and a target that is too long for a key are not learned
/// either.
#[test]
fn addresses_and_long_names_are_not_learned() {
    let (mut names, _readers) = Names::new(4 << 20, 0, 1, 4, Rules::all()).expect("room");
    names.learn_alias(&alias(1, b"10.0.0.1", b"a.example"));
    names.learn_alias(&alias(1, b"a.example", b"10.0.0.1"));
    names.learn(&observation(1, 7, b"10.0.0.1", 1));
    assert_eq!(names.refused(), 3);
    names.learn_alias(&alias(1, b"a.example", b"a.example"));
    names.learn_alias(&alias(1, b"a.example", &[b'a'; ALIAS_KEY_BYTES_MAX + 1]));
    assert!(names.overlay.is_empty());
    assert_eq!(names.refused(), 3);
    let longest = [b'a'; ALIAS_KEY_BYTES_MAX];
    names.learn_alias(&alias(1, b"a.example", &longest));
    assert_eq!(names.led_to(&longest), 1);
    let mut head = Vec::new();
    names.head_of(&longest, Standing::Confirmed, &mut head);
    assert_eq!(head, b"a.example");
}

/// An entry that was saved is learned under the same keys; unknown kinds, and those without an
/// address, are refused.
#[test]
fn what_was_known_is_recalled() {
    let (mut names, _readers) = Names::new(4 << 20, 0, 1, 4, Rules::all()).expect("room");
    let (client, addr) = (Addr::v4([10, 0, 0, 7]), Addr::v4([192, 0, 2, 1]));
    let mut recall = |kind, client, addr, asked: &str, head: &'static str| {
        let one = Candidate { head: head.as_bytes(), ..candidate(asked, 0, Standing::Confirmed) };
        names.recall(Recall::AsSaved, kind, Scope::NONE, (client, addr), &one)
    };
    for (kind, client, addr) in
        [("pair", None, Some(addr)), ("address", None, None), ("host", None, None)]
    {
        assert_eq!(recall(kind, client, addr, "a.example", ""), None, "{kind}");
    }
    assert_eq!(recall("gossip", Some(client), Some(addr), "a.example", ""), None);
    assert_eq!(recall("address", None, Some(addr), "10.0.0.1", ""), Some(()));
    assert_eq!(recall("address", None, Some(addr), "a.example", "10.0.0.1"), Some(()));
    assert_eq!(recall("address", None, Some(addr), "shared.example", ""), Some(()));
    assert_eq!(recall("pair", Some(client), Some(addr), "own.example", ""), Some(()));
    assert_eq!(recall("host", None, Some(client), "host.example", ""), Some(()));
    assert_eq!(recall("alias", None, None, "edge.example", "www.example"), Some(()));
    assert_eq!(names.refused(), 2);
    let learned = names.learned();
    let hash = |addr| names.address_hash(Scope::NONE, addr);
    assert!(learned.named.has(hash(addr), 1) && !learned.hosts.has(hash(addr), 1));
    assert!(learned.hosts.has(hash(client), 1) && !learned.named.has(hash(client), 1));
    let named = |client| names.view().destination(client, addr, u64::MAX, 0).expect("a name");
    assert_eq!(named(client).name.as_bytes(), b"own.example");
    assert_eq!(named(Addr::v4([10, 0, 0, 8])).name.as_bytes(), b"shared.example");
    let mut head = Vec::new();
    names.head_of(b"edge.example", Standing::Confirmed, &mut head);
    assert_eq!(head, b"www.example");
}

/// A key made as one number has the bytes of one made byte by byte, so entries are found whichever
/// way they were written.
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

/// An address that other networks may use too has its network in its key, and a globally routed one
/// has not; a pair always has it. Keys of different kinds, networks and addresses differ.
#[test]
fn keys_of_local_addresses_have_their_network() {
    let scope = Scope::NONE.tagged(5);
    let network = scope.bits().to_be_bytes();
    let (local, global) = (Addr::v4([10, 0, 0, 1]), Addr::v4([8, 8, 8, 8]));
    let v6 = Addr::v6(std::array::from_fn(|at| at as u8 + 32));
    assert_eq!(
        Key::address(scope, local).as_bytes(),
        [b"A", &network[..], b"\x0a\0\0\x01"].concat()
    );
    assert_eq!(Key::host(scope, local).as_bytes(), [b"H", &network[..], b"\x0a\0\0\x01"].concat());
    assert_eq!(Key::address(scope, global).as_bytes(), b"a\x08\x08\x08\x08");
    assert_eq!(Key::host(scope, global).as_bytes(), b"h\x08\x08\x08\x08");
    let (pair, turned) = (Key::pair(scope, global, v6), Key::pair(scope, v6, global));
    assert_eq!(pair.as_bytes(), [b"q", &network[..], &[8; 4], &v6.0].concat());
    assert_eq!(turned.as_bytes(), [b"Q", &network[..], &v6.0, &[8; 4]].concat());
}

/// A client that followed an alias stays known until twice as many entries as one sieve takes have
/// come after it; an entry that is repeated meanwhile stays.
#[test]
fn followed_aliases_are_forgotten_in_turn() {
    let (mut followed, max) = (Followed::new(), FOLLOWED_MAX as u64);
    assert!((0..max).all(|fact| followed.add(fact)), "all are new");
    assert!((0..max).all(|fact| !followed.add(fact)), "none is new");
    assert!(followed.add(max), "the sieves take turns");
    assert!(followed.has(0) && followed.has(1) && followed.has(max));
    assert!(!followed.add(0), "known, and noted once more");
    assert!((max + 1..2 * max - 1).all(|fact| followed.add(fact)));
    assert!(followed.has(1));
    assert!(followed.add(2 * max));
    assert!(followed.has(0) && followed.has(max) && followed.has(2 * max));
    assert!(!followed.has(1), "the oldest are forgotten");
}

/// A sieve has all added hashes, and of others only those that share a bit.
#[test]
fn sieves_tell_what_was_added() {
    let sieve = Sieve::new(100);
    sieve.add(5);
    sieve.add(64);
    let has: Vec<u64> = (0..256).filter(|&hash| sieve.has(hash)).collect();
    assert_eq!(has, [5, 64, 128 + 5, 128 + 64]);
}

/// Learning the same again changes nothing and writes nothing.
#[test]
fn what_stays_is_not_written() {
    let (mut names, _readers) = Names::new(4 << 20, 0, 1, 4, Rules::all()).expect("room");
    names.learn_alias(&alias(1, b"a.example", b"b.example"));
    names.commit().expect("no failure").expect("no stall");
    names.learn_alias(&alias(2, b"a.example", b"b.example"));
    assert!(names.overlay.is_empty() && names.changed.is_empty());
    names.learn_alias(&alias(3, b"c.example", b"b.example"));
    assert_eq!(names.changed.len(), 1);
}

/// Where batches end makes no difference: neither to what is known at a packet, nor to what a full budget has evicted
/// before it. The engine evicts only what is dead.
#[test]
fn evictions_do_not_depend_on_batches() {
    let (packets, queries) = (20_000, 3);
    let run = |every: u64| {
        let (mut names, readers) = Names::new(1 << 20, 1, 1, 4, Rules::all()).expect("room");
        let mut reader = readers.into_iter().next().expect("one reader");
        let mut random = Random(5);
        let (mut found, mut asked) = (Vec::new(), Vec::new());
        let known = |view: &View<'_>, (packet, client, addr): (u64, Addr, Addr)| {
            let found = view.destination(client, addr, packet, 0);
            found.map(|found| (found.name.as_bytes().to_vec(), found.rivals.len(), found.time_ns))
        };
        for packet in 1..=packets {
            let host = random.below(3_000);
            let client = Addr::v4([10, 0, 0, random.below(5) as u8]);
            let addr = |host: u64| Addr::v4([192, 0, (host / 200) as u8, (host % 200) as u8]);
            let name = format!("{:020}.h{}.example", random.below(2), host / 3).into_bytes();
            if random.below(4) == 0 {
                names.learn_alias(&AliasObservation {
                    client,
                    ..alias(packet, b"www.example", &name)
                });
            }
            let one = observation(packet, 1, &name, 1);
            names.learn(&AddressObservation { packet, client, addr: addr(host), ..one });
            for _ in 0..queries {
                asked.push((packet + 1, client, addr(random.below(3_000))));
                found.push(known(&names.view(), *asked.last().expect("a question")));
            }
            if packet % every == 0 || packet == packets {
                let committed = loop {
                    match names.commit().expect("no failure") {
                        Some(committed) => break committed,
                        None => drop(reader.sync()),
                    }
                };
                reader.sync_to(committed.position);
                let view = View { reader: &reader, overlay: &committed.overlay, ..names.view() };
                let again = asked.drain(..).map(|question| known(&view, question));
                let at = found.len() - again.len();
                assert!(
                    again.eq(found[at..].iter().cloned()),
                    "batches of {every}, packet {packet}"
                );
            }
        }
        let mut entries = Vec::new();
        names.for_each(|key, value| entries.push((key.to_vec(), value.to_vec())));
        assert_eq!(entries.len() as u64, names.counts().0, "the engine has all that are alive");
        (found, entries, names.counts())
    };
    let expected = run(1);
    let (alive, dead) = expected.2;
    assert!(alive > 1_000 && dead > 2 * alive, "{alive} alive, {dead} dead");
    for every in [2, 37, 900, 2_500, packets] {
        assert!(run(every) == expected, "batches of {every}");
    }
}
