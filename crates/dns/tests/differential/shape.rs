//! Names that describe their responses.
//!
//! The first label that begins with `q-` is a list of tokens. So a response is a function of the
//! query alone. Two servers get the same responses if they query at different times, in another
//! order or more than once. A name without such a label has the response of [`Shape::default`].
//!
//! ```text
//! mail.q-n17-c2-r3-t600.zone.   number 17, two aliases, then three records with a TTL of 600 seconds
//! ```

/// The content of the response at the end of its aliases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Records of the queried type.
    #[default]
    Data,
    /// The name exists, and has no records of the type.
    NoData,
    /// The name does not exist.
    NoName,
    /// This response code without records.
    Code(u8),
    /// Name servers of a delegated zone.
    Referral,
    /// No error, no records, no SOA.
    Empty,
}

/// A shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Makes names distinct.
    pub number: u32,
    pub kind: Kind,
    /// Number of records of the queried type.
    pub records: u16,
    /// Number of CNAME records before them.
    pub aliases: u8,
    pub ttl_s: u32,
    /// MINIMUM of the SOA.
    pub minimum_s: u32,
    /// Bytes of text in a TXT record.
    pub text_bytes: u16,
    pub extended_error: Option<u16>,
    /// The bits of [`FLAGS`].
    pub flags: u16,
}

/// Tokens without a number.
const FLAGS: [&str; 14] =
    ["dn", "so", "op", "ad", "aa", "ex", "up", "mc", "sh", "un", "tw", "sg", "wc", "tc"];

/// Properties, each by its index in [`FLAGS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// The names below it are under a DNAME.
    Dname,
    /// A negative response has no SOA.
    NoSoa,
    /// The response has no OPT.
    NoOpt,
    /// AD is set.
    Authentic,
    /// AA is set.
    Authoritative,
    /// Authority and additional records with the response.
    Extra,
    /// No name is compressed.
    Uncompressed,
    /// Owners differ in case from the question.
    MixedCase,
    /// The answer section is in reverse order.
    Reversed,
    /// The answer section has unrelated records.
    Unrelated,
    /// The answer section has each record twice.
    Twice,
    /// Signatures, and proofs of nonexistence, for queries with DO.
    Signed,
    /// The response comes from a wildcard: with DO, it has a proof.
    Wildcard,
    /// Over UDP only TC, without records.
    Truncated,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            number: 0,
            kind: Kind::Data,
            records: 1,
            aliases: 0,
            ttl_s: 3_600,
            minimum_s: 900,
            text_bytes: 40,
            extended_error: None,
            flags: 0,
        }
    }
}

impl Shape {
    /// Sets a flag.
    pub fn set(&mut self, flag: Flag) {
        self.flags |= 1 << flag as u16;
    }

    /// True if the flag is set.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags >> flag as u16 & 1 == 1
    }

    /// Clears a flag.
    pub fn clear(&mut self, flag: Flag) {
        self.flags &= !(1 << flag as u16);
    }

    /// The label of this shape; it omits defaults.
    pub fn label(&self) -> Vec<u8> {
        let usual = Shape::default();
        let mut label = format!("q-n{}", self.number);
        let mut number = |token: &str, value: u32, usual: u32| {
            if value != usual {
                label.push_str(&format!("-{token}{value}"));
            }
        };
        number("r", self.records.into(), usual.records.into());
        number("c", self.aliases.into(), usual.aliases.into());
        number("t", self.ttl_s, usual.ttl_s);
        number("m", self.minimum_s, usual.minimum_s);
        number("x", self.text_bytes.into(), usual.text_bytes.into());
        number("e", self.extended_error.map_or(u32::MAX, u32::from), u32::MAX);
        if self.kind != Kind::Data {
            number("k", self.kind_number(), u32::MAX);
        }
        for (at, token) in FLAGS.iter().enumerate() {
            if self.flags >> at & 1 == 1 {
                label.push_str(&format!("-{token}"));
            }
        }
        assert!(label.len() <= 63, "{label} is too long for a label");
        label.into_bytes()
    }

    fn kind_number(&self) -> u32 {
        match self.kind {
            Kind::Data => 100,
            Kind::NoData => 101,
            Kind::NoName => 102,
            Kind::Referral => 103,
            Kind::Empty => 104,
            Kind::Code(code) => code.into(),
        }
    }

    /// The shape that a label describes; `None` if it describes none.
    fn parse(label: &[u8]) -> Option<Shape> {
        let label = std::str::from_utf8(label).ok()?.to_ascii_lowercase();
        let mut shape = Shape::default();
        for token in label.strip_prefix("q-")?.split('-') {
            if let Some(at) = FLAGS.iter().position(|&flag| flag == token) {
                shape.flags |= 1 << at;
                continue;
            }
            let (letter, number) = token.split_at_checked(1)?;
            let number: u32 = number.parse().ok()?;
            match letter {
                "n" => shape.number = number,
                "r" => shape.records = number as u16,
                "c" => shape.aliases = number as u8,
                "t" => shape.ttl_s = number,
                "m" => shape.minimum_s = number,
                "x" => shape.text_bytes = number as u16,
                "e" => shape.extended_error = Some(number as u16),
                "k" => {
                    shape.kind = match number {
                        101 => Kind::NoData,
                        102 => Kind::NoName,
                        103 => Kind::Referral,
                        104 => Kind::Empty,
                        code => Kind::Code(code as u8),
                    }
                }
                _ => return None,
            }
        }
        Some(shape)
    }
}

/// A name, as a list of labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Name(pub Vec<Vec<u8>>);

impl Name {
    /// A name from dotted labels without escapes.
    pub fn of(text: &str) -> Name {
        Name(text.split('.').filter(|label| !label.is_empty()).map(|label| label.into()).collect())
    }

    /// In wire format, not compressed.
    pub fn wire(&self) -> Vec<u8> {
        let mut wire = Vec::new();
        for label in &self.0 {
            wire.push(label.len() as u8);
            wire.extend_from_slice(label);
        }
        wire.push(0);
        wire
    }

    /// Reads an uncompressed name; returns it with its end.
    pub fn read(message: &[u8], mut at: usize) -> Option<(Name, usize)> {
        let mut name = Name::default();
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            match length {
                0 => return Some((name, at)),
                1..=63 => name.0.push(message.get(at..at + length)?.to_vec()),
                _ => return None,
            }
            at += length;
        }
    }

    /// The name with this label before it.
    pub fn child(&self, label: &[u8]) -> Name {
        Name(std::iter::once(label.to_vec()).chain(self.0.iter().cloned()).collect())
    }

    /// All in lower case.
    pub fn lower(&self) -> Name {
        Name(self.0.iter().map(|label| label.to_ascii_lowercase()).collect())
    }

    /// With every other letter in upper case.
    pub fn mixed(&self) -> Name {
        let mix = |label: &Vec<u8>| {
            let bytes = label.iter().enumerate();
            bytes.map(|(at, o)| if at % 2 == 0 { o.to_ascii_uppercase() } else { *o }).collect()
        };
        Name(self.0.iter().map(mix).collect())
    }

    /// The shape of the name, and the number of labels before the one that describes it.
    pub fn shape(&self) -> (Shape, usize) {
        let mut shapes = self.0.iter().enumerate();
        let found = shapes.find_map(|(at, label)| Some((Shape::parse(label)?, at)));
        found.unwrap_or((Shape::default(), 0))
    }

    /// The same name with another shape.
    pub fn with_shape(&self, at: usize, shape: &Shape) -> Name {
        let mut name = self.clone();
        name.0[at] = shape.label();
        name
    }

    /// The name without its first labels.
    pub fn skip_labels(&self, at: usize) -> Name {
        Name(self.0[at.min(self.0.len())..].to_vec())
    }
}

/// A shape can be read from its label, in any case.
#[test]
fn shapes_are_read_back() {
    let mut shape = Shape {
        number: 4_000_000,
        kind: Kind::NoName,
        records: 7,
        aliases: 3,
        ttl_s: u32::MAX,
        extended_error: Some(22),
        ..Shape::default()
    };
    shape.set(Flag::Dname);
    shape.set(Flag::Signed);
    let name = Name::of("a.b.zone").child(&shape.label()).child(b"www");
    assert_eq!(name.mixed().shape(), (shape, 1));
    assert_eq!(Name::of("q.q-.q-z9.zone").shape(), (Shape::default(), 0));
    assert_eq!(Name::read(&name.wire(), 0), Some((name.clone(), name.wire().len())));
}
