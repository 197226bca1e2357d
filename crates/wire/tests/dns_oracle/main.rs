//! A second implementation for DNS messages: hickory-proto reads (and writes) the same messages as
//! larder.
//!
//! | part | contents |
//! |---|---|
//! | [`view`] | both readings of a message in one plain form |
//! | [`model`] | what a response teaches, by a slow and simple model of hickory's reading |
//! | [`generated`] | messages that proptest generates and hickory encodes, then cut and mutated |
//! | [`rendered`] | queries read; responses cached and written for another client |
//! | [`captures`] | every DNS message of the recordings, and of the public captures if they exist |

mod captures;
mod generated;
mod model;
mod rendered;
mod view;
