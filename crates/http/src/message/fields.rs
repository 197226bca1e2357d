//! Reads in one pass what fields state about the message itself and its connection.

use super::limits::CONNECTION_OPTIONS_MAX;
use crate::Field;

/// What the fields state.
#[derive(Debug, Default)]
pub struct Said<'a> {
    /// `Content-Length`.
    pub length: Option<u64>,
    /// `Transfer-Encoding: chunked`, and nothing else of that name.
    pub is_chunked: bool,
    /// The first `Host`.
    pub host: Option<&'a [u8]>,
    /// The number of `Host` fields.
    pub hosts: usize,
    /// `Connection: close`.
    pub closes: bool,
    /// `Connection: keep-alive`.
    pub keeps_alive: bool,
    /// `Expect: 100-continue`.
    pub expects_continue: bool,
}

/// A field that is invalid or ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A length that is no number, is too large, or is repeated with another value.
    Length,
    /// Codings in which `chunked` is not last, or is there twice: the end of the message is not
    /// known.
    Coding,
    /// `chunked` comes last, after a coding that larder does not know.
    CodingUnknown,
    /// Both a length and codings.
    LengthAndCoding,
    /// More options of the connection than larder reads.
    ConnectionOptions,
}

impl<'a> Said<'a> {
    /// Reads the fields that matter.
    pub fn read(fields: &[Field<'a>]) -> Result<Said<'a>, Fault> {
        let mut said = Said::default();
        let (mut codings, mut options) = (Codings::default(), 0);
        for field in fields {
            // Compares lengths first: few fields have one of these lengths.
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                4 if is("host") => {
                    said.host.get_or_insert(field.value);
                    said.hosts += 1;
                }
                6 if is("expect") => {
                    said.expects_continue |= field.value.eq_ignore_ascii_case(b"100-continue");
                }
                10 if is("connection") => options += said.connection(field.value),
                14 if is("content-length") => said.length(field.value)?,
                17 if is("transfer-encoding") => codings.add(field.value),
                _ => {}
            }
        }
        if options > CONNECTION_OPTIONS_MAX {
            return Err(Fault::ConnectionOptions);
        }
        if codings.is_there && said.length.is_some() {
            return Err(Fault::LengthAndCoding);
        }
        said.is_chunked = codings.is_there && codings.judge()?;
        Ok(said)
    }

    /// True where the connection outlives the message, for a version of HTTP/1.
    pub fn stays_open(&self, minor_version: u8) -> bool {
        !self.closes && (minor_version > 0 || self.keeps_alive)
    }

    /// Reads a `Connection` field, and returns how many options it has.
    fn connection(&mut self, value: &[u8]) -> usize {
        let options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        options
            .inspect(|option| {
                self.closes |= option.eq_ignore_ascii_case(b"close");
                self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            })
            .count()
    }

    /// Reads a `Content-Length` field. Some senders repeat it, within a field or in another one
    /// (RFC 9110, section 8.6).
    fn length(&mut self, value: &[u8]) -> Result<(), Fault> {
        for member in value.split(|&byte| byte == b',') {
            let length = number(member.trim_ascii()).ok_or(Fault::Length)?;
            if *self.length.get_or_insert(length) != length {
                return Err(Fault::Length);
            }
        }
        Ok(())
    }
}

/// A number of digits only, at most `i64::MAX`.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })?;
    i64::try_from(number).is_ok().then_some(number)
}

/// The members of all `Transfer-Encoding` fields.
#[derive(Default)]
struct Codings {
    is_there: bool,
    /// Other than `chunked`.
    others: usize,
    chunked: usize,
    is_last_chunked: bool,
}

impl Codings {
    fn add(&mut self, value: &[u8]) {
        self.is_there = true;
        for member in value.split(|&byte| byte == b',') {
            self.is_last_chunked = member.trim_ascii().eq_ignore_ascii_case(b"chunked");
            self.chunked += usize::from(self.is_last_chunked);
            self.others += usize::from(!self.is_last_chunked);
        }
    }

    /// True for `chunked` alone, the only coding that larder understands.
    fn judge(&self) -> Result<bool, Fault> {
        match (self.others, self.chunked, self.is_last_chunked) {
            (0, 1, _) => Ok(true),
            (_, 1, true) => Err(Fault::CodingUnknown),
            _ => Err(Fault::Coding),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(all: &[(&'static str, &'a str)]) -> Result<Said<'a>, Fault> {
        let fields: Vec<Field<'_>> =
            all.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
        Said::read(&fields)
    }

    /// A length consists of digits, and all lengths are equal.
    #[test]
    fn lengths() {
        let length = |values: &[&'static str]| {
            let all: Vec<_> = values.iter().map(|value| ("content-Length", *value)).collect();
            read(&all).map(|said| said.length)
        };
        assert_eq!(length(&["42"]), Ok(Some(42)));
        assert_eq!(length(&["42", "42, 42"]), Ok(Some(42)));
        assert_eq!(length(&["042"]), Ok(Some(42)));
        assert_eq!(length(&["9223372036854775807"]), Ok(Some(i64::MAX as u64)));
        for bad in ["", "+1", "-1", "1 2", "0x1", "1,", ",1", "1,2", "1;1", "1.0", "\u{661}"] {
            assert_eq!(length(&[bad]), Err(Fault::Length), "{bad:?}");
        }
        for long in ["9223372036854775808", "18446744073709551616", "99999999999999999999999"] {
            assert_eq!(length(&[long]), Err(Fault::Length), "{long:?}");
        }
        assert_eq!(length(&["1", "2"]), Err(Fault::Length));
        assert_eq!(length(&[]), Ok(None));
    }

    /// `chunked` is accepted alone. At the end of other codings another program could read the
    /// body; anywhere else no program could.
    #[test]
    fn codings() {
        let coding = |values: &[&'static str]| {
            let all: Vec<_> = values.iter().map(|value| ("Transfer-encodinG", *value)).collect();
            read(&all).map(|said| said.is_chunked)
        };
        assert_eq!((coding(&[]), coding(&["Chunked"])), (Ok(false), Ok(true)));
        for unknown in [&["gzip, chunked"][..], &["gzip", "chunked"], &[", chunked"]] {
            assert_eq!(coding(unknown), Err(Fault::CodingUnknown), "{unknown:?}");
        }
        let bad = ["", "identity", "xchunked", "chunked;a=1", "\"chunked\"", "chunked, gzip"];
        for bad in bad.into_iter().chain(["chunked, chunked", "chunked,", "chunked chunked"]) {
            assert_eq!(coding(&[bad]), Err(Fault::Coding), "{bad:?}");
        }
        assert_eq!(coding(&["chunked", "chunked"]), Err(Fault::Coding));
        let both = [("Content-Length", "1"), ("Transfer-Encoding", "chunked")];
        assert_eq!(read(&both).err(), Some(Fault::LengthAndCoding));
    }

    /// Options of the connection in any case and in any of its fields, up to a limit.
    #[test]
    fn connections() {
        let stays = |values: &[&'static str], minor_version| {
            let all: Vec<_> = values.iter().map(|value| ("CONNECTION", *value)).collect();
            read(&all).map(|said| said.stays_open(minor_version))
        };
        assert_eq!((stays(&[], 0), stays(&[], 1)), (Ok(false), Ok(true)));
        assert_eq!(stays(&["x, Keep-Alive"], 0), Ok(true));
        assert_eq!(stays(&["keep-alive", "CLOSE"], 0), Ok(false));
        assert_eq!(stays(&["a,close ,b"], 1), Ok(false));
        assert_eq!(stays(&["closed"], 1), Ok(true));
        assert_eq!(stays(&[",,,,,,,,,,,,,,,"], 1), Ok(true));
        assert_eq!(stays(&[",,,,,,,,,,,,,,,", "x"], 1), Err(Fault::ConnectionOptions));
    }
}
