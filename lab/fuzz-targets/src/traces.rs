//! Traces of requests: any bytes are read to their end, and the same however they arrive.

use std::io::{Cursor, Read};

use larder_io::decode::Compression;
use larder_sim::request::Request;
use larder_sim::trace::{BATCH_REQUESTS, Damage, Format, read};

/// Gives the input in pieces that lines and records do not respect.
struct Pieces(Cursor<Vec<u8>>, usize);

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = out.len().min(self.1);
        self.0.read(&mut out[..count])
    }
}

/// The first byte states the format and the length of pieces, the rest is the trace.
pub fn traces(input: &[u8]) {
    let Some((choice, trace)) = input.split_first() else { return };
    if Compression::detect(trace).is_some() {
        // What other people's decoders do with it is not asked here.
        return;
    }
    let format = Format::ALL[usize::from(choice % Format::ALL.len() as u8)];
    let whole = drain(trace, trace.len().max(1), format);
    let pieces = drain(trace, usize::from(choice / Format::ALL.len() as u8) + 1, format);
    assert_eq!(whole, pieces);
    let Ok((requests, damage)) = whole else { return };
    assert_eq!(damage.records == 0, damage.first.is_none());
    // Every record that was lost or asked for something had a byte at least.
    let lines = trace.len() as u64;
    assert!(damage.records <= lines);
    assert!(requests.windows(2).all(|pair| pair[0].time_s <= pair[1].time_s), "time went back");
    assert!(requests.iter().all(|request| request.bytes > 0));
    let several = matches!(format, Format::Auto | Format::Arc | Format::PcapDns);
    assert!(several || requests.len() as u64 + damage.records <= lines);
}

fn drain(
    trace: &[u8],
    piece_bytes: usize,
    format: Format,
) -> Result<(Vec<Request>, Damage), String> {
    let pieces = Pieces(Cursor::new(trace.to_vec()), piece_bytes);
    let mut source = read(pieces, format, "fuzzed.be64").map_err(|error| error.to_string())?;
    let (mut batch, mut requests) = (Vec::new(), Vec::new());
    loop {
        source.next(&mut batch).expect("readers count what they cannot read");
        assert!(batch.len() < BATCH_REQUESTS * 2);
        if batch.is_empty() {
            return Ok((requests, source.damage()));
        }
        requests.truncate(REQUESTS_KEPT);
        requests.append(&mut batch);
    }
}

/// A few bytes of an `arc` trace ask for thousands of blocks; the last ones will do.
const REQUESTS_KEPT: usize = 1 << 12;
