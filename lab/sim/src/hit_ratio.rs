//! Hit ratios: one trace against every policy at every capacity asked for.
//!
//! ```text
//! auto rate     (only with Sampling::Auto) counts different keys in bounded memory, and chooses the rate
//! survey        (where a capacity is a share, or in bytes, or the bound is asked for) numbers all keys; what
//!               fits KEPT_BYTES_MAX is kept, so that the trace is read once
//! replay        every cache takes every request, from what was kept or from the trace read again
//! bound         MIN sees the whole order at once, so it comes last, and only when all was kept
//! rows          policies by capacities, in the order asked for
//! ```
//!
//! A trace larger than memory is streamed twice, or once where no survey is needed. What is held: 34 bytes or
//! so a different key, [`KEPT_BYTES_MAX`], and for each cache what `replay` states. FIFO is always simulated, for
//! the column that compares with it. No result depends on the number of cores, times apart.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use larder::policy::Replacement;

use crate::belady::belady;
use crate::intern::Intake;
use crate::parallel_replay::{self, Done, Portion};
use crate::pass::{Intakes, Pass, Read, choose_rate};
use crate::plan::Entrant;
use crate::policy::{Kind, Visitor};
use crate::replay::{By, Counts, Replay};
use crate::sample::{ENTRIES_MIN, Estimate, SUBSAMPLES, Sampler, Sampling, miss_ratio};

pub use crate::plan::{
    Capacity, Contestant, Error, KEPT_BYTES_MAX, Open, Plan, Results, Row, Shape, Watch,
};

/// Simulates the plan over the requests that `open` opens.
pub fn run(plan: &Plan, open: Open<'_>, watch: &Watch) -> Result<Results, Error> {
    let (rate, mut counted) = match plan.sampling {
        Sampling::Whole => (None, None),
        Sampling::Rate(rate) => (Some(rate), None),
        Sampling::Auto => choose_rate(plan, open, watch)?,
    };
    let mut intakes = Intakes::new(rate.map(|rate| Sampler::new(rate, plan.seed)));
    let (mut kept, mut read) = (None, Read::default());
    if needs_survey(plan) {
        let mut pass = Pass::open(open, &mut intakes, watch)?;
        kept = pass.keep(plan.kept_bytes_max)?;
        read = pass.read;
        read.check(counted)?;
        if read.is_stopped {
            return Err(Error::Stopped);
        }
        counted = Some(read.requests);
    }
    let bound = Bound::of(plan, &intakes, kept.as_deref())?;
    let caches = Caches::of(plan, &intakes);
    let teams = caches.build(plan, &intakes)?;
    let done = match &kept {
        Some(portions) => {
            let mut portions = portions.iter();
            let done = parallel_replay::replay(teams, plan.cores, || {
                read.is_stopped |= watch.stop.load(Ordering::Relaxed);
                Ok::<_, Error>(portions.next().filter(|_| !read.is_stopped).cloned())
            })?;
            if read.is_stopped {
                if rate.is_some() {
                    // Of how many lookups the replayed ones are the sample was not kept with them.
                    return Err(Error::Stopped);
                }
                // FIFO is always there.
                read.requests = done[0].first().map_or(0, |one| one.counts.requests);
            }
            done
        }
        None => {
            let mut pass = Pass::open(open, &mut intakes, watch)?;
            let done = parallel_replay::replay(teams, plan.cores, || pass.next())?;
            read = pass.read;
            done
        }
    };
    read.check(counted)?;
    let mut notes = caches.notes(&intakes);
    let mut rows = caches.rows(&done, &read, &intakes);
    match bound {
        Bound::Wanted(portions) if !read.is_stopped => {
            rows.extend(bounds(plan, &caches, &intakes, portions, &read));
        }
        Bound::LeftOut(why) => notes.push(format!("{} is left out: {why}", Contestant::BOUND)),
        _ => {}
    }
    Ok(Results {
        rows: arrange(plan, &caches.capacities, rows),
        requests: read.requests,
        keys: intakes.keys(),
        rate: intakes.sampler.map(|sampler| sampler.rate()),
        damage: read.damage,
        notes,
        is_stopped: read.is_stopped,
    })
}

/// True where capacities, or how many entries they can be, are only known once all keys are.
fn needs_survey(plan: &Plan) -> bool {
    plan.rules.by == By::Bytes
        || plan.capacities.iter().any(|capacity| matches!(capacity, Capacity::Share(_)))
        || plan
            .contestants
            .iter()
            .any(|contestant| matches!(contestant.entrant, Entrant::Bound { .. }))
}

/// Whether the bound is wanted, and can be had.
enum Bound<'a> {
    Absent,
    LeftOut(&'static str),
    Wanted(&'a [Portion]),
}

impl<'a> Bound<'a> {
    fn of(plan: &Plan, intakes: &Intakes, kept: Option<&'a [Portion]>) -> Result<Self, Error> {
        let wanted = plan.contestants.iter().filter_map(|contestant| match contestant.entrant {
            Entrant::Bound { is_optional } => Some(is_optional),
            _ => None,
        });
        let any = |has: fn(&Intake) -> bool| intakes.teams.iter().any(has);
        let why = match (wanted.min(), kept) {
            (None, _) => return Ok(Bound::Absent),
            _ if plan.rules.by == By::Bytes => "it counts entries, not bytes",
            _ if !plan.rules.fill => "it is known only where every miss stores its key",
            _ if any(Intake::has_ends) => "it is not known where values end by themselves",
            _ if any(Intake::has_stores) => "it is known only for traces of lookups alone",
            (_, None) => {
                "the trace is too large to be kept in memory (1 GiB, 4 bytes a request); simulate a sample"
            }
            (Some(_), Some(kept)) => return Ok(Bound::Wanted(kept)),
        };
        if plan
            .contestants
            .iter()
            .any(|c| matches!(c.entrant, Entrant::Bound { is_optional: false }))
        {
            return Err(Error::Bound(why));
        }
        Ok(Bound::LeftOut(why))
    }
}

/// The caches of a team: policies by capacities, the bound apart.
struct Caches<'a> {
    /// As asked for, and FIFO in any case.
    policies: Vec<&'a Contestant>,
    /// As asked for, without repetitions; of the whole trace.
    capacities: Vec<u64>,
    by: By,
}

/// What others are compared with.
static FIFO: LazyLock<Contestant> = LazyLock::new(|| Contestant::from(Kind::Fifo));

impl<'a> Caches<'a> {
    fn of(plan: &'a Plan, intakes: &Intakes) -> Caches<'a> {
        let is_bound =
            |contestant: &Contestant| matches!(contestant.entrant, Entrant::Bound { .. });
        let mut policies: Vec<&Contestant> =
            plan.contestants.iter().filter(|contestant| !is_bound(contestant)).collect();
        if !policies.iter().any(|policy| policy.name == FIFO.name) {
            policies.push(&FIFO);
        }
        let by = plan.rules.by;
        let total: u64 = match by {
            By::Entries => intakes.keys(),
            By::Bytes => intakes.teams.iter().map(Intake::distinct_bytes).sum(),
        };
        let total = total as f64 / intakes.share() / intakes.teams.len() as f64;
        let mut capacities = Vec::with_capacity(plan.capacities.len());
        for capacity in &plan.capacities {
            let capacity = match *capacity {
                Capacity::Absolute(capacity) => capacity,
                // Of a whole trace the product is what a person would compute, rounded down.
                Capacity::Share(share) => (share * total + 1e-6) as u64,
            };
            if !capacities.contains(&capacity.max(1)) {
                capacities.push(capacity.max(1));
            }
        }
        Caches { policies, capacities, by }
    }

    /// The size of a team's cache.
    fn scaled(&self, capacity: u64, intakes: &Intakes) -> u64 {
        match intakes.sampler {
            None => capacity,
            Some(_) => ((capacity as f64 * intakes.share()).round() as u64).max(1),
        }
    }

    fn build(&self, plan: &Plan, intakes: &Intakes) -> Result<Vec<Vec<Box<dyn Replay>>>, Error> {
        let mut teams = Vec::with_capacity(intakes.teams.len());
        for intake in &intakes.teams {
            let mut team = Vec::with_capacity(self.policies.len() * self.capacities.len());
            for policy in &self.policies {
                for whole in &self.capacities {
                    let capacity = self.scaled(*whole, intakes);
                    let places = match self.by {
                        By::Entries => capacity,
                        By::Bytes => {
                            let entries = capacity / u64::from(intake.bytes_min());
                            entries.clamp(1, intake.keys().max(1) as u64)
                        }
                    };
                    let places = u32::try_from(places).unwrap_or(u32::MAX);
                    let shape = Shape { places, capacity, rules: plan.rules, seed: plan.seed };
                    let failed = |error| {
                        let policy = policy.name.clone();
                        Error::Policy { policy, capacity, error }
                    };
                    team.push(policy.entrant.make(&shape).map_err(failed)?);
                }
            }
            teams.push(team);
        }
        Ok(teams)
    }

    /// Rows in the order of policies and capacities.
    fn rows(&self, done: &[Vec<Done>], read: &Read, intakes: &Intakes) -> Vec<Row> {
        let mut rows = Vec::with_capacity(self.policies.len() * self.capacities.len());
        for policy in &self.policies {
            for capacity in &self.capacities {
                let parts: Vec<Done> = done.iter().map(|team| team[rows.len()]).collect();
                rows.push(row(&policy.name, *capacity, &parts, read, intakes));
            }
        }
        rows
    }

    fn notes(&self, intakes: &Intakes) -> Vec<String> {
        let mut notes = Vec::new();
        if intakes.sampler.is_some() && self.by == By::Entries {
            for capacity in &self.capacities {
                let scaled = self.scaled(*capacity, intakes);
                if scaled < ENTRIES_MIN {
                    notes.push(format!(
                        "capacity {capacity}: a miniature of {scaled} entries is coarse; sample more than \
                         {:.6} of the keys",
                        intakes.share() * SUBSAMPLES as f64
                    ));
                }
            }
        }
        notes
    }
}

impl Entrant {
    fn make(&self, shape: &Shape) -> Result<Box<dyn Replay>, larder::Error> {
        match self {
            Entrant::Named(kind) => kind.build(shape.places, shape.seed, *shape),
            Entrant::Own(make) => make(shape),
            Entrant::Bound { .. } => {
                unreachable!("the bound has no cache; it is not among the caches")
            }
        }
    }
}

impl Visitor for Shape {
    type Output = Box<dyn Replay>;

    fn visit<P: Replacement + Send + 'static>(self, policy: P) -> Box<dyn Replay> {
        self.simulate(policy)
    }
}

/// What became of a policy at a capacity, from its cache in each team.
fn row(policy: &str, capacity: u64, parts: &[Done], read: &Read, intakes: &Intakes) -> Row {
    let sum = |of: fn(&Counts) -> u64| parts.iter().map(|part| of(&part.counts)).sum::<u64>();
    let replayed = sum(|counts| counts.requests);
    let ran_ns: u64 = parts.iter().map(|part| part.ran_ns).sum();
    let ratio = |hits: u64, of: u64| (of > 0).then(|| hits as f64 / of as f64);
    let mut row = Row {
        policy: policy.to_owned(),
        capacity,
        requests: sum(|counts| counts.gets),
        hits: sum(|counts| counts.hits),
        hit_ratio: ratio(sum(|counts| counts.hits), sum(|counts| counts.gets)),
        byte_hit_ratio: ratio(sum(|counts| counts.hit_bytes), sum(|counts| counts.get_bytes)),
        miss_reduction_vs_fifo: None,
        ns_per_request: ran_ns as f64 / replayed.max(1) as f64,
        hit_ratio_error: None,
        bypassed: sum(|counts| counts.bypassed),
    };
    if let Some(sampler) = intakes.sampler {
        let misses = |of: fn(&Counts) -> u64, total: u64| -> Option<Estimate> {
            let parts: Vec<u64> = parts.iter().map(|part| of(&part.counts)).collect();
            let parts = parts.try_into().ok()?;
            (total > 0).then(|| miss_ratio(&parts, total, sampler.rate()))
        };
        let estimate = misses(|counts| counts.gets - counts.hits, read.gets);
        let bytes = misses(|counts| counts.get_bytes - counts.hit_bytes, read.get_bytes);
        row.requests = read.gets;
        row.hit_ratio = estimate.map(|misses| 1.0 - misses.value);
        row.hits = (row.hit_ratio.unwrap_or(0.0) * read.gets as f64).round() as u64;
        row.byte_hit_ratio = bytes.map(|misses| 1.0 - misses.value);
        row.hit_ratio_error = estimate.map(|misses| misses.error);
    }
    row
}

/// The bound at each capacity.
fn bounds(
    plan: &Plan,
    caches: &Caches<'_>,
    intakes: &Intakes,
    portions: &[Portion],
    read: &Read,
) -> Vec<Row> {
    let mut teams: Vec<Vec<u32>> = vec![Vec::new(); intakes.teams.len()];
    for (team, batch) in portions {
        teams[*team].extend_from_slice(&batch.ids);
    }
    let tasks: Vec<(u64, &[u32])> = caches
        .capacities
        .iter()
        .flat_map(|capacity| teams.iter().map(|ids| (*capacity, ids.as_slice())))
        .collect();
    let hits = parallel_replay::each(&tasks, plan.cores, |(capacity, ids)| {
        belady(ids, caches.scaled(*capacity, intakes))
    });
    let has_sizes = intakes.teams.iter().any(Intake::has_sizes);
    let mut rows = Vec::with_capacity(caches.capacities.len());
    for (tasks, hits) in tasks.chunks(teams.len()).zip(hits.chunks(teams.len())) {
        let part = |((_, ids), (hits, ran_ns)): (&(u64, &[u32]), &(u64, u64))| {
            let gets = ids.len() as u64;
            let counts = Counts {
                requests: gets,
                gets,
                hits: *hits,
                get_bytes: gets,
                hit_bytes: *hits,
                ..Counts::default()
            };
            Done { counts, ran_ns: *ran_ns }
        };
        let parts: Vec<Done> = tasks.iter().zip(hits).map(part).collect();
        let row = row(Contestant::BOUND, tasks[0].0, &parts, read, intakes);
        let byte_hit_ratio = row.byte_hit_ratio.filter(|_| !has_sizes);
        rows.push(Row { byte_hit_ratio, ..row });
    }
    rows
}

/// The rows asked for in the order asked for, each compared with FIFO's at its capacity.
fn arrange(plan: &Plan, capacities: &[u64], rows: Vec<Row>) -> Vec<Row> {
    let find = |policy: &str, capacity: u64| {
        rows.iter().find(|row| row.policy == policy && row.capacity == capacity)
    };
    let misses = |row: &Row| row.hit_ratio.map(|hits| 1.0 - hits);
    let mut arranged = Vec::with_capacity(rows.len());
    for contestant in &plan.contestants {
        for capacity in capacities {
            let Some(row) = find(&contestant.name, *capacity) else { continue };
            let fifo = find(&FIFO.name, *capacity).and_then(misses);
            let reduction = fifo.zip(misses(row)).map(|(fifo, own)| (fifo - own) / fifo);
            // Without a miss of FIFO's there is nothing to reduce.
            let miss_reduction_vs_fifo = reduction.filter(|reduction| reduction.is_finite());
            arranged.push(Row { miss_reduction_vs_fifo, ..row.clone() });
        }
    }
    arranged
}
