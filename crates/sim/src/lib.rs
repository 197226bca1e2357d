//! What a cache is worth, before one buys it: traces replayed against policies, sizes and ways to share.
//!
//! ```text
//! trace    files, generators   -> requests, in order, damage counted
//! intern                       -> dense numbers of keys, once for all who replay
//! replay   requests, a policy  -> hits; many policies and sizes in one pass, on all cores
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`request`] | one request, and what a run of them is |
//! | [`trace`] | readers of trace files, and generators |
//! | [`figure`] | charts of lines and bars as SVG |
//! | [`model`] | what a hit ratio is worth to a DNS server |
//! | [`policy`] | names of policies; the engine's own, and references beside them |
//!
//! Policies are [`larder::policy::Replacement`]: what is simulated here is what the engine runs, not a copy.
//! Everything is a function of its input and a seed; no result depends on the number of cores.
#![forbid(unsafe_code)]

mod crew;
pub mod figure;
pub mod hit_ratio;
pub mod intern;
pub mod model;
mod pass;
pub mod policy;
pub mod replay;
pub mod report;
pub mod sample;

pub mod request;
pub mod trace;

// Until the module of that name is here.
mod belady {
    pub fn belady(_ids: &[u32], _capacity: u64) -> u64 {
        0
    }
}
