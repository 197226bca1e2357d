//! Traces of lines: what all line formats share, and the simple ones.
//!
//! | format | line |
//! |---|---|
//! | `lirs` | a number, as in the traces of Jiang and Zhang (SIGMETRICS 2002); lines of `*` say nothing |
//! | `arc` | first block, count, and what is not read: count requests, as in the traces of Megiddo and Modha (FAST 2003) |
//! | `adaptsize` | time, key, bytes, as in the traces of Berger, Sitaraman and Harchol-Balter (NSDI 2017) |
//! | `keys` | the key, any bytes |
//!
//! Empty lines say nothing in any of them, nor does a byte order mark before the first. Fields are apart by
//! blanks.

use std::io;

use super::digits::{Clock, bytes, number, seconds_ns};
use super::reader::{LINE_BYTES_MAX, Line, TraceReader};
use super::{BATCH_REQUESTS, Damage, Source, key_of};
use crate::request::Request;

/// Most blocks of one line of an `arc` trace: 32 MiB of blocks of 512 bytes.
pub const BLOCKS_MAX: u64 = 1 << 16;

/// How a line is read.
pub trait Lines: Send {
    /// Adds what the line asks for, if anything; what is wrong with it, and then nothing was added.
    fn read(&mut self, line: &[u8], batch: &mut Vec<Request>) -> Result<(), &'static str>;
}

/// A trace of lines.
pub struct Text<L> {
    reader: TraceReader,
    lines: L,
    number: u64,
    damage: Damage,
}

impl<L> Text<L> {
    /// Reads `reader` from where it is, which is line 1.
    pub fn new(mut reader: TraceReader, lines: L) -> Text<L> {
        reader.take_mark();
        Text { reader, lines, number: 0, damage: Damage::default() }
    }
}

impl<L: Lines> Source for Text<L> {
    fn next(&mut self, batch: &mut Vec<Request>) -> io::Result<()> {
        batch.clear();
        while batch.len() < BATCH_REQUESTS {
            let Some(line) = self.reader.line() else { break };
            self.number += 1;
            let number = self.number;
            match line {
                Line::Whole(line) => {
                    if let Err(why) = self.lines.read(line, batch) {
                        self.damage.add(|| format!("line {number}: {why}"));
                    }
                }
                Line::TooLong => {
                    self.damage
                        .add(|| format!("line {number}: longer than {LINE_BYTES_MAX} bytes"));
                }
            }
        }
        self.reader.count_failure(&mut self.damage);
        Ok(())
    }

    fn damage(&self) -> Damage {
        self.damage.clone()
    }
}

/// The fields of a line, apart by blanks.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// `lirs`.
pub struct Lirs;

impl Lines for Lirs {
    fn read(&mut self, line: &[u8], batch: &mut Vec<Request>) -> Result<(), &'static str> {
        match line.trim_ascii() {
            b"" | b"*" => {}
            word => batch.push(Request::get(number(word).ok_or("no number")?)),
        }
        Ok(())
    }
}

/// `arc`.
pub struct Arc;

impl Lines for Arc {
    fn read(&mut self, line: &[u8], batch: &mut Vec<Request>) -> Result<(), &'static str> {
        let mut words = words(line);
        let Some(first) = words.next() else { return Ok(()) };
        let first = number(first).ok_or("the first block is no number")?;
        let count = words.next().and_then(number).ok_or("no count of blocks")?;
        if count > BLOCKS_MAX {
            return Err("more than 65536 blocks at once");
        }
        let end = first.checked_add(count).ok_or("blocks past 64 bits")?;
        batch.extend((first..end).map(Request::get));
        Ok(())
    }
}

/// `adaptsize`.
#[derive(Default)]
pub struct AdaptSize(Clock);

impl Lines for AdaptSize {
    fn read(&mut self, line: &[u8], batch: &mut Vec<Request>) -> Result<(), &'static str> {
        let mut words = words(line);
        let Some(time) = words.next() else { return Ok(()) };
        let time_ns = seconds_ns(time).ok_or("the time is no number")?;
        let key = words.next().ok_or("no key")?;
        let size = words.next().and_then(number).ok_or("no size")?;
        let time_s = self.0.since_first(time_ns);
        batch.push(Request { time_s, bytes: bytes(size), ..Request::get(key_of(key)) });
        Ok(())
    }
}

/// `keys`.
pub struct Keys;

impl Lines for Keys {
    fn read(&mut self, line: &[u8], batch: &mut Vec<Request>) -> Result<(), &'static str> {
        if !line.is_empty() {
            batch.push(Request::get(key_of(line)));
        }
        Ok(())
    }
}
