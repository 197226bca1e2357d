//! Derived keys and values: what goes in comes out, and bytes of something else are refused.

// As in a program where larder has another name.
extern crate larder as renamed;

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::IpAddr;

use larder::{DecodeKey, Key, Map, Value};
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Key, DecodeKey, Value)]
struct Name {
    text: String,
    bytes: Vec<u8>,
    port: u16,
    more: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Key, DecodeKey, Value)]
#[larder(crate = renamed)]
struct Fixed(u8, [u8; 3], u64);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Key, DecodeKey)]
struct Flow {
    host: IpAddr,
    port: u16,
}

/// Keys that borrow.
#[derive(Key)]
struct FlowOf<'a> {
    host: &'a IpAddr,
    port: u16,
}

#[derive(Key)]
struct Request<'a, 'b, M> {
    host: &'a str,
    path: &'b str,
    scheme: &'static str,
    method: M,
}

#[derive(Debug, PartialEq, Value)]
struct Marked<T> {
    addr: std::net::SocketAddr,
    pair: (u8, Option8),
    kind: std::marker::PhantomData<T>,
}

#[derive(Debug, PartialEq, Clone, Copy, Value)]
#[allow(dead_code, reason = "one is enough to see that numbers are positions")]
enum Option8 {
    None = 7,
    Some = 9,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Key, DecodeKey, Value)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Key, DecodeKey, Value)]
enum Shape {
    None,
    Point(u32, u32),
    Named { name: String, at: Fixed },
    Nested(Box<str>, Name),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Key, DecodeKey, Value)]
enum Color {
    Red,
    Green,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Key, DecodeKey, Value)]
struct Pair<A, const N: usize, B>
where
    A: Clone,
{
    first: A,
    array: [u8; N],
    second: B,
}

#[derive(Debug, Clone, PartialEq, Value)]
struct Reading {
    // A name that generated code might use.
    with: f64,
    bytes: Cow<'static, str>,
    r#type: bool,
}

fn same_key<K: DecodeKey<Owned = K> + PartialEq + std::fmt::Debug>(key: &K) -> Vec<u8> {
    let bytes = key.with_key(<[u8]>::to_vec);
    assert_eq!(K::from_key(&bytes).as_ref(), Some(key));
    assert!(K::BYTES.is_none_or(|len| len == bytes.len()), "{key:?}: {bytes:?}");
    bytes
}

fn same_value<V: Value + PartialEq + std::fmt::Debug>(value: &V) -> Vec<u8> {
    let bytes = value.with_value(<[u8]>::to_vec);
    assert_eq!(V::from_value(&bytes).as_ref(), Some(value));
    assert!(V::VALUE_BYTES.is_none_or(|len| len == bytes.len()), "{value:?}: {bytes:?}");
    bytes
}

fn names() -> impl Strategy<Value = Name> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..400);
    (any::<String>(), bytes(), any::<u16>(), any::<String>())
        .prop_map(|(text, bytes, port, more)| Name { text, bytes, port, more })
}

fn shapes() -> impl Strategy<Value = Shape> {
    let fixed = || any::<(u8, [u8; 3], u64)>().prop_map(|(a, b, c)| Fixed(a, b, c));
    prop_oneof![
        Just(Shape::None),
        any::<(u32, u32)>().prop_map(|(x, y)| Shape::Point(x, y)),
        (any::<String>(), fixed()).prop_map(|(name, at)| Shape::Named { name, at }),
        (any::<String>(), names()).prop_map(|(text, name)| Shape::Nested(text.into(), name)),
    ]
}

proptest! {
    /// A key and a value decode to themselves, and two different ones have different bytes.
    #[test]
    fn they_round_trip(all in prop::collection::vec(shapes(), 1..12), names in prop::collection::vec(names(), 2)) {
        let mut seen = HashSet::new();
        for shape in all.iter().collect::<HashSet<_>>() {
            let bytes = same_key(shape);
            prop_assert_eq!(&bytes, &same_value(shape), "fields have the same bytes as keys and values");
            prop_assert!(seen.insert(bytes));
            same_value(&Pair { first: shape.clone(), array: [7; 5], second: names[0].clone() });
        }
        prop_assert_eq!(same_key(&names[0]) == same_key(&names[1]), names[0] == names[1]);
    }

    /// Any bytes are no key and no value, or one with these bytes.
    #[test]
    fn other_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Some(shape) = Shape::from_value(&bytes) {
            // A length below 255 in five bytes is read too, and written in one.
            prop_assert_eq!(shape.with_value(Shape::from_value), Some(shape));
        }
        if let Some(color) = Color::from_key(&bytes) {
            prop_assert_eq!(same_key(&color), bytes.clone());
        }
        if let Some(fixed) = Fixed::from_value(&bytes) {
            prop_assert_eq!(same_value(&fixed), bytes.clone());
        }
        prop_assert_eq!(Unit::from_value(&bytes).is_some(), bytes.is_empty());
    }
}

/// A struct has the bytes of a tuple of its fields, and lengths that are known are known of it.
#[test]
fn a_struct_is_a_tuple() {
    let tuple = ("x".to_owned(), 7u16, "y".to_owned());
    let pair = Pair { first: "x".to_owned(), array: 7u16.to_le_bytes(), second: "y".to_owned() };
    assert_eq!(same_key(&pair), same_key(&tuple));
    assert_eq!((Fixed::BYTES, Fixed::VALUE_BYTES), (Some(12), Some(12)));
    assert_eq!((Name::BYTES, Flow::BYTES, Shape::VALUE_BYTES), (None, None, None));
    assert_eq!((Unit::BYTES, Color::VALUE_BYTES), (Some(0), Some(1)));
    assert_eq!(Pair::<u32, 4, Color>::BYTES, Some(9));
    assert_eq!((same_value(&Unit), same_value(&Color::Green)), (vec![], vec![1]));
    let reading = Reading { with: -0.5, bytes: "°C".into(), r#type: true };
    assert_eq!(same_value(&reading).len(), 8 + 3 + 1 + 1);
    let request = Request { host: "a", path: "/", scheme: "https", method: Color::Red };
    assert_eq!(request.with_key(<[u8]>::to_vec), b"a/https\0\x01\x01\x05");
    let addr = ([192, 0, 2, 1], 53).into();
    let marked = Marked::<String> { addr, pair: (1, Option8::Some), kind: Default::default() };
    assert_eq!(same_value(&marked)[6..8], [1, 1]);
    assert_eq!(Color::from_value(&[2]), None);
    assert_eq!(Shape::from_value(&[0, 0]), None, "a variant without fields has no more bytes");
}

/// A map of them: lookups by a key that borrows, walks, and updates.
#[test]
fn a_map_of_them() {
    let map: Map<Flow, Shape> = Map::new(1 << 20).unwrap();
    let flow = |port| Flow { host: [192, 0, 2, 1].into(), port };
    for port in 0..100 {
        map.insert(&flow(port), Shape::Point(port.into(), 1)).unwrap();
    }
    assert_eq!(map.get(&flow(7)), Some(Shape::Point(7, 1)));
    let borrowed = FlowOf { host: &flow(7).host, port: 7 };
    assert_eq!(borrowed.with_key(<[u8]>::to_vec), flow(7).with_key(<[u8]>::to_vec));
    assert_eq!(map.retain(|flow, _| flow.port % 2 == 0).unwrap(), 50);
    let mut ports: Vec<u16> = map.iter().map(|(flow, _)| flow.port).collect();
    ports.sort_unstable();
    assert!(ports.iter().copied().eq((0..100).step_by(2)));
}
