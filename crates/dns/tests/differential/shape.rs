//! What a name says of its answer.
//!
//! The first label that begins with `q-` is a list of tokens, so that an answer is a function of
//! the question and of nothing else: two servers that ask at different times, in another order or
//! more than once are told the same. A name without such a label has the answer of
//! [`Shape::default`].
//!
//! ```text
//! mail.q-n17-c2-r3-t600.zone.     number 17, two aliases, then three records with a TTL of 600 seconds
//! ```

/// What the answer says at the end of its aliases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Records of the type asked for.
    #[default]
    Data,
    /// The name exists, and has none.
    NoData,
    /// The name does not exist.
    NoName,
    /// This response code, and nothing.
    Code(u8),
    /// Name servers of a zone further down.
    Referral,
    /// No error, no records, no SOA.
    Empty,
}

/// A shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Makes names differ.
    pub number: u32,
    pub kind: Kind,
    /// Records of the type asked for.
    pub records: u16,
    /// CNAME records before them.
    pub aliases: u8,
    pub ttl_s: u32,
    /// MINIMUM of the SOA.
    pub minimum_s: u32,
    /// Bytes of text in a TXT record.
    pub text_bytes: u16,
    pub extended_error: Option<u16>,
    /// Which of [`FLAGS`] hold.
    pub flags: u16,
}

/// Tokens without a number.
const FLAGS: [&str; 14] =
    ["dn", "so", "op", "ad", "aa", "ex", "up", "mc", "sh", "un", "tw", "sg", "wc", "tc"];

/// Things that hold or not, each by its place in [`FLAGS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// The names below are under a DNAME.
    Dname,
    /// A negative answer has no SOA.
    NoSoa,
    /// The answer has no OPT.
    NoOpt,
    /// AD is set.
    Authentic,
    /// AA is set.
    Authoritative,
    /// Authority and additional records beside the answer.
    Extra,
    /// No name is compressed.
    Uncompressed,
    /// Owners have another case than the question.
    MixedCase,
    /// The answer section stands in reverse.
    Reversed,
    /// Records that nobody asked for, in the answer section.
    Unrelated,
    /// Each record of the answer twice.
    Twice,
    /// Signatures, and proofs of what is missing, for those who ask with DO.
    Signed,
    /// The answer comes from a wildcard: with DO, it has a proof.
    Wildcard,
    /// Over UDP, nothing but TC.
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
    /// Says that something holds.
    pub fn set(&mut self, flag: Flag) {
        self.flags |= 1 << flag as u16;
    }

    /// True where it holds.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags >> flag as u16 & 1 == 1
    }

    /// Says that something does not hold.
    pub fn clear(&mut self, flag: Flag) {
        self.flags &= !(1 << flag as u16);
    }

    /// The label that says so: what is as by default is left out.
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

    /// What a label says; `None` for one that says nothing.
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

/// A name, by its labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Name(pub Vec<Vec<u8>>);

impl Name {
    /// A name of dotted labels without escapes.
    pub fn of(text: &str) -> Name {
        Name(text.split('.').filter(|label| !label.is_empty()).map(|label| label.into()).collect())
    }

    /// In wire form, not compressed.
    pub fn wire(&self) -> Vec<u8> {
        let mut wire = Vec::new();
        for label in &self.0 {
            wire.push(label.len() as u8);
            wire.extend_from_slice(label);
        }
        wire.push(0);
        wire
    }

    /// Reads a name that is not compressed, and tells where it ends.
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

    /// With this label before it.
    pub fn child(&self, label: &[u8]) -> Name {
        Name(std::iter::once(label.to_vec()).chain(self.0.iter().cloned()).collect())
    }

    /// All in small letters.
    pub fn lower(&self) -> Name {
        Name(self.0.iter().map(|label| label.to_ascii_lowercase()).collect())
    }

    /// Every other letter a capital.
    pub fn mixed(&self) -> Name {
        let mix = |label: &Vec<u8>| {
            let octets = label.iter().enumerate();
            octets.map(|(at, o)| if at % 2 == 0 { o.to_ascii_uppercase() } else { *o }).collect()
        };
        Name(self.0.iter().map(mix).collect())
    }

    /// What it says of its answer, and the number of labels before the one that says it.
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

/// What is said of a name is read from it, whatever its case.
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
