//! One thing done in several ways, interleaved as contestants are: for what is no cache, or only larder has.

use std::convert::Infallible;

use larder::{Cache, Error, Ttl};

use crate::clock::ThreadTime;
use crate::data::{ValueBuffer, key, scatter};
use crate::engine::{ENTRY_BYTES_MEAN, NOW};
use crate::row::{Row, Unit};
use crate::sample::rounds;

/// One way: a name, what to know of it, and a run that gives its figure.
pub struct Way<'a> {
    /// As rows call it.
    pub name: String,
    /// What a reader should know of it.
    pub note: String,
    /// Does the work once.
    pub run: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Way<'a> {
    /// A way.
    pub fn new(name: &str, note: &str, run: impl FnMut() -> f64 + 'a) -> Way<'a> {
        Way { name: name.to_owned(), note: note.to_owned(), run: Box::new(run) }
    }
}

/// Runs every way once a round, in rotated order, after one round that is thrown away. The first way is
/// larder's; a row for each other one, or one row when there is none.
pub fn compare_ways(work: &str, unit: Unit, count: usize, ways: &mut [Way<'_>]) -> Vec<Row> {
    let Ok(figures) = rounds(ways.len(), count, |_, at| Ok::<_, Infallible>((ways[at].run)()));
    let compared = ways.iter().zip(&figures);
    let compared = compared.map(|(way, figures)| (&way.name[..], &way.note[..], &figures[..]));
    Row::of_rounds(work, 1, unit, compared, None)
}

/// A cache with a log so long that every entry may change between two syncs of its one reader, filled with the
/// numbers `0..entries`.
pub fn cache_with_long_log(entries: usize) -> Result<Cache, Error> {
    let bytes = (entries * (3 * ENTRY_BYTES_MEAN + 8 * 20)) as u64 + (8 << 20);
    let cache = Cache::builder()
        .budget(bytes)
        .readers_max(1)
        // The lag is set aside in each shard.
        .shards(1)
        .entry_bytes_mean(ENTRY_BYTES_MEAN)
        .lag_operations(entries)
        .build()?;
    let mut writer = cache.writer();
    let mut buffer = ValueBuffer::default();
    for number in 0..entries as u32 {
        writer.insert(&key(number), buffer.value(number), Ttl::FOREVER, NOW)?;
    }
    writer.flush()?;
    Ok(cache)
}

/// What a reader takes to apply one record of the log, measured over a tenth of `entries` updated at random.
pub fn apply_log(entries: usize, rounds: usize) -> Result<Row, Error> {
    let cache = cache_with_long_log(entries)?;
    let mut writer = cache.writer();
    let mut reader = cache.reader()?;
    let mut buffer = ValueBuffer::default();
    let (mut round, mut failed) = (0, None);
    let run = || {
        round += 1;
        let before = reader.sync().records();
        for i in 0..entries as u64 / 10 {
            let number = scatter(round, i, entries as u32);
            let inserted = writer.insert(&key(number), buffer.value(number), Ttl::FOREVER, NOW);
            failed = failed.take().or(inserted.err());
        }
        failed = failed.take().or(writer.flush().err());
        let time = ThreadTime::start();
        let records = reader.sync().records() - before;
        time.elapsed_ns() / records.max(1) as f64
    };
    let mut rows =
        compare_ways("apply a log record", Unit::Ns, rounds, &mut [Way::new("larder", "", run)]);
    match (failed, rows.pop()) {
        (None, Some(row)) => Ok(row),
        (Some(error), _) => Err(error),
        (None, None) => Err(Error::Setting("a comparison needs a way")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ways take turns, the first round does not count, and ratios are of the same round.
    #[test]
    fn ways_take_turns() {
        let turns = std::cell::RefCell::new(String::new());
        let mut ways: Vec<Way<'_>> = [("a", 1.0), ("b", 2.0)]
            .map(|(name, figure)| {
                let turns = &turns;
                Way::new(name, "", move || {
                    turns.borrow_mut().push_str(name);
                    figure
                })
            })
            .into();
        let rows = compare_ways("work", Unit::Ns, 3, &mut ways);
        assert_eq!(*turns.borrow(), "abbaabba");
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].larder.runs, 3);
        assert_eq!(rows[0].peer.as_ref().map(|peer| peer.ratio.value), Some(0.5));
    }

    /// Half of a cache may change without a stall, and applying takes some time a record.
    #[test]
    fn log_is_applied() {
        let row = apply_log(5000, 3).unwrap();
        assert!(row.larder.value > 0.0 && row.peer.is_none());
    }
}
