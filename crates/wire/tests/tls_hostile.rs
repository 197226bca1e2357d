//! Truncated, changed and made-up ClientHellos: nothing panics, and no name is invented.

use larder_testkit::hello::{extension, handshake, hello_body, record, server_names, vector16};
use larder_wire::tls::{ClientHello, Hello, client_hello, client_hello_cut, hello_message};
use proptest::prelude::*;

/// A hello as a client might build it.
#[derive(Clone, Debug)]
struct Sample {
    session_id: Vec<u8>,
    suites: Vec<u16>,
    name: Option<Vec<u8>>,
    protocols: Vec<Vec<u8>>,
    ech: bool,
    others: Vec<(u16, Vec<u8>)>,
    order: Vec<usize>,
}

impl Sample {
    fn message(&self) -> Vec<u8> {
        let mut extensions: Vec<Vec<u8>> =
            self.others.iter().map(|(kind, data)| extension(*kind, data)).collect();
        if let Some(name) = &self.name {
            extensions.push(server_names(&[(0, name)]));
        }
        if !self.protocols.is_empty() {
            let list: Vec<u8> = self
                .protocols
                .iter()
                .flat_map(|protocol| [&[protocol.len() as u8], &protocol[..]].concat())
                .collect();
            extensions.push(extension(16, &vector16(&list)));
        }
        if self.ech {
            extensions.push(extension(0xfe0d, &[0; 40]));
        }
        let shuffled: Vec<u8> =
            self.order.iter().filter_map(|&at| extensions.get(at)).flatten().copied().collect();
        let suites: Vec<u8> = self.suites.iter().flat_map(|suite| suite.to_be_bytes()).collect();
        let session = [&[self.session_id.len() as u8], &self.session_id[..]].concat();
        let middle = [&session[..], &vector16(&suites), &[1, 0]].concat();
        handshake(1, &hello_body([3, 3], &middle, &[shuffled]))
    }

    /// The message in records of these sizes, repeated in a cycle.
    fn records(&self, sizes: &[usize]) -> Vec<u8> {
        let message = self.message();
        let mut rest = &message[..];
        let mut out = Vec::new();
        for size in sizes.iter().cycle() {
            let (fragment, behind) = rest.split_at(rest.len().min(*size));
            out.extend(record(fragment));
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        out
    }

    fn is_said_by(&self, hello: &ClientHello<'_>) -> bool {
        hello.server_name.as_deref() == self.name.as_deref()
            && hello.alpn_first.as_deref() == self.protocols.first().map(Vec::as_slice)
            && hello.ech == self.ech
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max);
    (
        bytes(33),
        prop::collection::vec(any::<u16>(), 1..20),
        prop::option::of(prop::collection::vec(any::<u8>(), 1..40)),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 1..10), 0..3),
        any::<bool>(),
        prop::collection::vec((17u16..0xf000, bytes(80)), 0..8),
        Just((0..11usize).collect::<Vec<_>>()).prop_shuffle(),
    )
        .prop_map(|(session_id, suites, name, protocols, ech, others, order)| Sample {
            session_id,
            suites,
            name,
            protocols,
            ech,
            others,
            order,
        })
}

/// The bytes of the stream without record headers; a name must be a slice of them.
fn fragments(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let [_, _, _, high, low, behind @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (fragment, behind) = behind.split_at(length.min(behind.len()));
        out.extend_from_slice(fragment);
        rest = behind;
    }
    out
}

fn is_inside(part: &[u8], whole: &[u8]) -> bool {
    whole.windows(part.len()).any(|window| window == part)
}

proptest! {
    /// The parser reads a valid hello in records of any size. For a prefix it asks for more bytes;
    /// if the stream ends there, it gives no wrong name.
    #[test]
    fn sound_hellos(sample in sample(), sizes in prop::collection::vec(20usize..700, 1..4)) {
        let bytes = sample.records(&sizes);
        match client_hello(&bytes) {
            Hello::Found(hello) => prop_assert!(sample.is_said_by(&hello), "{:?}", hello),
            other => prop_assert!(false, "{:?}", other),
        }
        match hello_message(&sample.message()) {
            Hello::Found(hello) => prop_assert!(sample.is_said_by(&hello), "{:?}", hello),
            other => prop_assert!(false, "{:?}", other),
        }
        for len in 0..bytes.len() {
            prop_assert_eq!(client_hello(&bytes[..len]), Hello::NeedMore);
            match client_hello_cut(&bytes[..len]) {
                Hello::NeedMore => {}
                Hello::Found(hello) => {
                    prop_assert!(sample.name.is_some());
                    prop_assert_eq!(hello.server_name.as_deref(), sample.name.as_deref());
                }
                other => prop_assert!(false, "{:?} at {}", other, len),
            }
        }
    }

    /// Changed bytes may hide or change a name; they never add one that is not in the bytes.
    /// Nothing panics.
    #[test]
    fn changed_hellos(
        sample in sample(),
        sizes in prop::collection::vec(20usize..700, 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = sample.records(&sizes);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let cut = &bytes[..=end.index(bytes.len())];
        for (answer, bytes) in [
            (client_hello(&bytes), &bytes[..]),
            (client_hello(cut), cut),
            (client_hello_cut(cut), cut),
        ] {
            if let Hello::Found(hello) = answer {
                let sent = fragments(bytes);
                for part in [hello.server_name, hello.alpn_first].into_iter().flatten() {
                    prop_assert!(!part.is_empty() && is_inside(&part, &sent));
                }
            }
        }
    }

    /// Random bytes after a plausible start never cause a panic.
    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), length in any::<u16>()) {
        client_hello(&bytes);
        hello_message(&bytes);
        let [high, low] = length.to_be_bytes();
        let start = [&[22, 3, 1, high & 3, low, 1, 0, high & 1, low], &bytes[..]].concat();
        client_hello(&start);
        client_hello_cut(&start);
        hello_message(&start[5..]);
    }
}
