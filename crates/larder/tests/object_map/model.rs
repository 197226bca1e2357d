//! A map of objects next to one of numbers.

use std::collections::HashMap;
use std::time::Duration;

use larder::{Change, Expiry, Map, Ttl};
use proptest::prelude::*;

use super::{Alive, Object, map, number};

#[derive(Debug, Clone)]
enum Act {
    Insert(u8, Option<u16>),
    Remove(u8),
    Take(u8),
    Add(u8),
    Touch(u8, u16),
    Load(u8),
    Advance(u16),
    Retain(u64),
    RemoveExpired,
    Clear,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let key = || 0..6u8;
    let ms = || prop::sample::select(vec![250u16, 999, 1000, 2000, 5500]);
    prop::collection::vec(
        prop_oneof![
            4 => (key(), prop::option::of(ms())).prop_map(|(key, ms)| Act::Insert(key, ms)),
            1 => key().prop_map(Act::Remove),
            1 => key().prop_map(Act::Take),
            2 => key().prop_map(Act::Add),
            2 => (key(), ms()).prop_map(|(key, ms)| Act::Touch(key, ms)),
            2 => key().prop_map(Act::Load),
            2 => ms().prop_map(Act::Advance),
            1 => (0..9u64).prop_map(Act::Retain),
            1 => Just(Act::RemoveExpired),
            1 => Just(Act::Clear),
        ],
        1..60,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every call does what it does to a map of numbers in a `Map`, which has its own model; and no object is alive
    /// that is not in the map.
    #[test]
    fn as_a_map_of_numbers(acts in acts()) {
        let alive = Alive::default();
        let (objects, clock) = map::<Object>(100);
        let numbers: Map<str, u64> = Map::build(Map::<str, u64>::builder().budget(1 << 20), clock.clone()).unwrap();
        for (n, act) in acts.into_iter().enumerate() {
            let n = n as u64;
            let name = |key: u8| ["", "a", "b", "c", "d", &"long".repeat(100)][usize::from(key)].to_owned();
            let ms = |ms: u16| Duration::from_millis(ms.into());
            match act {
                Act::Insert(key, ttl) => {
                    let ttl = ttl.map_or(Expiry::NEVER, |ttl| ms(ttl).into());
                    objects.insert_ttl(name(key).as_str(), alive.object(n), ttl).unwrap();
                    numbers.insert_ttl(name(key).as_str(), n, ttl).unwrap();
                }
                Act::Remove(key) => {
                    objects.remove(name(key).as_str()).unwrap();
                    numbers.remove(name(key).as_str()).unwrap();
                }
                Act::Take(key) => {
                    let (key, taken) = (name(key), number(objects.take(name(key).as_str()).unwrap()));
                    prop_assert_eq!(taken, numbers.take(key.as_str()).unwrap());
                }
                Act::Add(key) => {
                    let key = name(key);
                    let before = objects.compute(key.as_str(), |there| match there {
                        Some(object) if object.number % 7 == 0 => Change::Keep,
                        Some(object) => Change::Update(alive.object(object.number + 1)),
                        None => Change::Insert(alive.object(1), Ttl::seconds(3).into()),
                    });
                    let expected = numbers.compute(key.as_str(), |there| match there {
                        Some(number) if number % 7 == 0 => Change::Keep,
                        Some(number) => Change::Update(number + 1),
                        None => Change::Insert(1, Ttl::seconds(3).into()),
                    });
                    prop_assert_eq!(number(before.unwrap()), expected.unwrap());
                }
                Act::Touch(key, ttl) => {
                    let key = name(key);
                    let touched = objects.touch(key.as_str(), ms(ttl)).unwrap();
                    prop_assert_eq!(touched, numbers.touch(key.as_str(), ms(ttl)).unwrap());
                }
                Act::Load(key) => {
                    let key = name(key);
                    let loaded = objects.get_or_insert_with(key.as_str(), || alive.object(n)).number;
                    prop_assert_eq!(loaded, numbers.get_or_insert_with(key.as_str(), || n));
                }
                Act::Advance(time) => drop(clock.advance(ms(time))),
                Act::Retain(rest) => {
                    let removed = objects.retain(|_, object| object.number % 9 != rest).unwrap();
                    prop_assert_eq!(removed, numbers.retain(|_, number| number % 9 != rest).unwrap());
                }
                Act::RemoveExpired => {
                    let expired = objects.len().unwrap() - objects.iter().count() as u64;
                    let removed = objects.remove_expired().unwrap();
                    prop_assert_eq!((removed, numbers.remove_expired().unwrap()), (expired, expired));
                }
                Act::Clear => {
                    objects.clear().unwrap();
                    numbers.clear().unwrap();
                }
            }
            let of_objects = objects.iter().map(|(key, object)| (key, object.number));
            prop_assert_eq!(of_objects.collect::<HashMap<_, _>>(), numbers.iter().collect());
            prop_assert_eq!(alive.count(), objects.len().unwrap());
            prop_assert_eq!(objects.len().unwrap(), numbers.len().unwrap());
        }
    }
}
