//! `larder sim`: what a cache is worth, before one buys it.
//!
//! | module | command |
//! |---|---|
//! | [`hit_ratio`] | `larder sim hit-ratio` |

pub mod hit_ratio;

pub use hit_ratio::sim_hit_ratio;
