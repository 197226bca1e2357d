//! What the replay requires of every policy, whatever its rules.

use larder::policy::Replacement;
use larder_sim::policy::Kind;
use proptest::prelude::*;

use super::{Act, Cache, Step, stream, with_cache};

/// The paper's readings too that `Kind::ALL` does not have.
fn kinds() -> impl Iterator<Item = Kind> {
    let readings = ["paper:third:leaves", "paper:third:again:fixed", "paper:third:hot:10/40"];
    Kind::ALL.into_iter().chain(readings.map(|text| text.parse().unwrap()))
}

struct Churn<'a>(&'a [(u32, u32)]);

impl Act for Churn<'_> {
    type Output = ();
    fn act<P: Replacement>(self, mut cache: Cache<P>) {
        for &(key, act) in self.0 {
            match act {
                0 => cache.remove(key),
                1 => cache.carry(key),
                // Room for a larger value of an entry that stays, and so a cache that holds less.
                2 => {
                    let except = cache.places.get(&key).copied();
                    let others = cache.places.len() - usize::from(except.is_some());
                    assert_eq!(cache.evict(except).is_some(), others > 0);
                }
                3 => _ = cache.request(key, true),
                _ => {
                    let known = cache.places.contains_key(&key);
                    assert_eq!(cache.get(key) == Step::Hit, known);
                }
            }
            assert!(cache.policy.len() <= cache.capacity());
            assert_eq!(cache.policy.is_empty(), cache.places.is_empty());
            for entry in cache.policy.upcoming().into_iter().flatten() {
                assert!((entry as usize) < cache.keys.0.len(), "{entry} is no place");
                cache.policy.prefetch(entry);
            }
            cache.policy.prefetch_key(super::mix(key));
            cache.validate();
        }
        // Until nobody is left, and then it serves again.
        while cache.evict(None).is_some() {}
        cache.validate();
        assert_eq!(cache.places.len(), 0);
        assert_eq!((cache.get(7), cache.get(7)), (Step::Miss(vec![]), Step::Hit));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Never more entries than there is room for, whoever leaves was there and is not the one excepted,
    /// somebody leaves if there is anybody else, and the books agree after every act.
    #[test]
    fn the_contract_holds(
        acts in prop::collection::vec((0..60u32, 0..12u32), 0..400),
        capacity in 1..40u32,
    ) {
        for kind in kinds() {
            with_cache(kind, capacity, Churn(&acts));
        }
    }
}

/// Which requests of a stream hit, and who left for the others.
struct Steps<'a>(&'a [u32]);

impl Act for Steps<'_> {
    type Output = Vec<Step>;
    fn act<P: Replacement>(self, mut cache: Cache<P>) -> Vec<Step> {
        self.0.iter().map(|&key| cache.get(key)).collect()
    }
}

/// A policy does the same again, and none does what another does, but for the paper's first two readings,
/// which differ by writes only.
#[test]
fn policies_are_repeatable_and_apart() {
    let stream = stream(30_000);
    let steps = Kind::ALL.map(|kind| with_cache(kind, 100, Steps(&stream)));
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        assert!(with_cache(kind, 100, Steps(&stream)) == steps[number], "{kind}");
        let twin = steps[..number].iter().position(|other| *other == steps[number]);
        let expected = (kind.to_string() == "paper:second").then(|| number - 1);
        assert_eq!(twin, expected, "{kind}");
    }
}
