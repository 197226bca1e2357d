//! A policy of your own in the simulator: `cargo run --release -p larder-sim --example own_policy [TRACE]`.
//!
//! The policy is "second chance from a random place": evict a random entry, but one that was read since it was
//! last looked at is passed over once. It must keep what it knows of entries by their numbers, below `places`.

use larder::policy::{Entries, EntryNumber, Replacement};
use larder_sim::hit_ratio::{Capacity, Contestant, Plan, Watch, run};
use larder_sim::trace::{Format, Spec};

struct LuckyChance {
    entries: Vec<EntryNumber>, // in no order
    known: Vec<(usize, bool)>, // of an entry: where it is in there, and whether it was read
    random: u64,
}

impl LuckyChance {
    fn new(places: u32, random: u64) -> Self {
        LuckyChance { entries: vec![], known: vec![(0, false); places as usize], random }
    }
}

impl Replacement for LuckyChance {
    fn len(&self) -> u64 {
        self.entries.len() as u64
    }
    fn inserted(&mut self, entry: EntryNumber) {
        self.known[entry as usize] = (self.entries.len(), false);
        self.entries.push(entry);
    }
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        self.known[entry as usize].1 = true;
    }
    fn removed(&mut self, entry: EntryNumber) {
        let at = self.known[entry as usize].0;
        self.entries.swap_remove(at);
        if let Some(&moved) = self.entries.get(at) {
            self.known[moved as usize].0 = at;
        }
    }
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.known[to as usize] = self.known[from as usize];
        self.entries[self.known[to as usize].0] = to;
    }
    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        self.entries.iter().find(|entry| Some(**entry) != except)?; // else there is nobody
        loop {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let entry = self.entries[((self.random >> 33) % self.len()) as usize];
            if Some(entry) != except && !std::mem::take(&mut self.known[entry as usize].1) {
                self.removed(entry);
                return Some(entry);
            }
        }
    }
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        [None, None] // who knows
    }
    fn validate(&self) -> Result<(), String> {
        let is_found = |(at, entry): (usize, &EntryNumber)| self.known[*entry as usize].0 == at;
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

    /// The guide shows this code, and not what it once was.
    #[test]
    fn the_guide_shows_this() {
        let (code, guide) =
            (include_str!("own_policy.rs"), include_str!("../../../docs/guide/sim.md"));
        let begin = code.find("use larder::policy").unwrap();
        let end = code.find("\n#[cfg(test)]").unwrap();
        assert!(guide.contains(code[begin..end].trim_end()), "copy the code to docs/guide/sim.md");
    }

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
