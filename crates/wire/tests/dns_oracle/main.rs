//! A second opinion on DNS messages: hickory-proto reads (and writes) them beside us.
//!
//! | part | holds |
//! |---|---|
//! | [`view`] | both readings of a message in one plain form |
//! | [`model`] | what an answer teaches, slowly and obviously, from hickory's reading |
//! | [`generated`] | messages that proptest makes and hickory writes, then cut and mutated |
//! | [`rendered`] | questions read, answers kept and written for another client |
//! | [`captures`] | every DNS message of the recordings, and of the public captures where they are |

mod captures;
mod generated;
mod model;
mod rendered;
mod view;
