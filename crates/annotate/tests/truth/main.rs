//! Names and flows in real captures, against what `tshark` says of the same captures.
//!
//! Two other opinions are asked. A folder `truth` beside the captures holds, a JSON file a capture, the flows as `tshark` splits them, the name that each states itself, and the name that
//! DNS gives it by the same rules as ours (`dns_d`). And `tshark` itself, where it is installed,
//! reads the DNS messages. Where we differ, the packets decide; what is then left to differ stands
//! here with its reason, and both a difference without one and a reason without a difference fail.
//!
//! | module | compares |
//! |---|---|
//! | [`names`] | the name of each flow, by DNS and by what it says itself |
//! | [`flows`] | which packets make a flow, who began it, and when |
//! | [`answers`] | what each DNS message teaches |
//! | [`open`] | nothing: the captures, our runs and the folder `truth`, read once |
//!
//! The recordings in `tests/captures` run every test here, with the opinions that `truth.py` wrote.
//! Public captures are read as well where they are.

mod answers;
mod flows;
mod names;
mod open;
