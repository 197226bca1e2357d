//! A policy of your own in the simulator: `cargo run --release -p larder-sim --example own_policy [TRACE]`.
//!
//! The policy is "second chance from a random place": evict a random entry, but one that was read since it was
//! last looked at is passed over once. It must keep what it knows of entries by their numbers, below `places`.

use larder::policy::{Entries, EntryNumber, Replacement};
use larder_sim::hit_ratio::{Capacity, Contestant, Plan, Watch, run};
use larder_sim::trace::{Format, Spec};

struct LuckyChance {
    entries: Vec<EntryNumber>, // in no order
    at: Vec<usize>,            // where an entry is in there
    was_read: Vec<bool>,
    random: u64,
}

impl LuckyChance {
    fn new(places: u32, seed: u64) -> Self {
        let places = places as usize;
        LuckyChance {
            entries: vec![],
            at: vec![0; places],
            was_read: vec![false; places],
            random: seed | 1,
        }
    }
}

impl Replacement for LuckyChance {
    fn len(&self) -> u64 {
        self.entries.len() as u64
    }
    fn inserted(&mut self, entry: EntryNumber) {
        self.at[entry as usize] = self.entries.len();
        self.was_read[entry as usize] = false;
        self.entries.push(entry);
    }
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        self.was_read[entry as usize] = true;
    }
    fn removed(&mut self, entry: EntryNumber) {
        let at = self.at[entry as usize];
        self.entries.swap_remove(at);
        if let Some(&moved) = self.entries.get(at) {
            self.at[moved as usize] = at;
        }
    }
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let at = self.at[from as usize];
        (self.entries[at], self.at[to as usize]) = (to, at);
        self.was_read[to as usize] = self.was_read[from as usize];
    }
    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        self.entries.iter().find(|entry| Some(**entry) != except)?; // else there is nobody
        loop {
            self.random ^= self.random << 13; // xorshift, Marsaglia 2003
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let entry = self.entries[(self.random % self.len()) as usize];
            if Some(entry) != except && !std::mem::take(&mut self.was_read[entry as usize]) {
                self.removed(entry);
                return Some(entry);
            }
        }
    }
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        [None, None] // who knows
    }
    fn validate(&self) -> Result<(), String> {
        let is_found = |(at, entry): (usize, &EntryNumber)| self.at[*entry as usize] == at;
        let all = self.entries.iter().enumerate().all(is_found);
        all.then_some(()).ok_or_else(|| "an entry is not where it should be".to_owned())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let trace = std::env::args().nth(1).unwrap_or_else(|| "zipf:0.9:20000:300000".to_owned());
    let spec = Spec::parse(&trace)?;
    let own = Contestant::own("lucky-chance", |shape| {
        Ok(shape.simulate(LuckyChance::new(shape.places, shape.seed)))
    });
    let contestants = vec![own, "clock".parse()?, "random".parse()?, "fifo".parse()?];
    let plan = Plan::new(contestants, vec![Capacity::Share(0.01), Capacity::Share(0.1)]);
    let results = run(&plan, &|| Ok(spec.open(Format::Auto, 1)?), &Watch::default())?;
    print!("{}", larder_sim::report::table(&[(trace, results)]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_sim::intern::Intake;
    use larder_sim::replay::{Replay, Rules, Simulation};

    /// The policy keeps its books and the cache its bound, and on skewed requests it is better than chance.
    #[test]
    fn it_is_a_policy() {
        let mut simulation = Simulation::new(LuckyChance::new(100, 7), 100, Rules::default());
        let mut source = Spec::parse("zipf:1:1000:20000").unwrap().open(Format::Auto, 1).unwrap();
        let (mut intake, mut batch) = (Intake::new(), Vec::new());
        source.next(&mut batch).unwrap();
        simulation.replay(&intake.batch(&batch).unwrap());
        simulation.validate().unwrap();
        let counts = simulation.counts();
        assert_eq!(counts.evicted, counts.gets - counts.hits - 100);
        assert!(counts.hits * 2 > counts.gets, "{counts:?}");
    }
}
