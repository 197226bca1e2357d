//! Hit ratios before a purchase: traces replayed against policies, sizes and ways to share.
//!
//! ```text
//! trace    files, generators   -> requests, in order, damage counted
//! intern                       -> dense numbers of keys, once for all replayed caches
//! replay   requests, a policy  -> hits; many policies and sizes in one pass, on all cores
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`request`] | one request, and what a run of them is |
//! | [`trace`] | readers of trace files, and generators |
//! | [`belady`] | the bound of hits, with the future known |
//! | [`figure`] | charts of lines and bars as SVG |
//! | [`sync`] | caches that several cores share, by how they share them |
//! | [`lengths`] | lengths of names, and what a split by length costs |
//! | [`paper`] | the experiments of the paper that larder began with, as a report |
//! | [`model`] | what a hit ratio is worth to a DNS server |
//! | [`policy`] | names of policies; the engine's own, and references to compare them with |
//! | [`intern`] | keys to dense numbers, once for all replayed caches |
//! | [`replay`] | one simulated cache |
//! | [`sample`] | a trace in miniature, and how far off that may be |
//! | [`hit_ratio`] | one trace against many policies and sizes, on all cores |
//! | [`report`] | hit ratios as table, CSV, JSON |
//!
//! Policies are [`larder::policy::Replacement`]: what is simulated here is what the engine runs, not a copy.
//! Everything is a function of its input and a seed; no result depends on the number of cores.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod belady;
pub mod figure;
pub mod hit_ratio;
pub mod intern;
pub mod lengths;
pub mod model;
pub mod paper;
mod parallel_replay;
mod pass;
mod plan;
pub mod policy;
pub mod replay;
pub mod report;
pub mod request;
pub mod sample;
pub mod sync;
pub mod trace;
