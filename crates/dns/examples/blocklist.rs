//! The cost of a blocklist: bytes for a name, and time to look up a name that is on it, below it,
//! or not on it.
//!
//! ```text
//! cargo run --release -p larder-dns --example blocklist -- 1000000
//! ```
//!
//! Names are made up, of 3 labels, and 28 bytes in wire form for a million names. Times are medians
//! of nine rounds of 200,000 lookups, in an order that caches cannot predict.

use std::time::Instant;

use larder_dns::policy::{Builder, List};

const ROUNDS: usize = 9;
const LOOKUPS: usize = 200_000;

/// A step of a generator of numbers (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn name(number: u64) -> String {
    format!("ads{}.tracker{:x}.example", number % 97, number)
}

fn question(name: &str) -> Vec<u8> {
    let labels =
        name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0, 0, 1, 0, 1]).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse::<u64>())?.max(1);
    let file: String = (0..count).map(|number| name(number) + "\n").collect();
    let start = Instant::now();
    let mut builder = Builder::new(1, &[7; 16]);
    let loaded = builder.blocklist(List::default(), "made up", file.as_bytes())?;
    let policy = builder.build()?;
    let (names, bytes) = policy.blocked();
    println!("{names} names ({} covered) in {:?}", loaded.covered, start.elapsed());
    println!(
        "{:.1} octets a name, of {:.1} in the file",
        bytes as f64 / names as f64,
        file.len() as f64 / names as f64
    );

    let mut state = 1;
    for kind in ["on it", "two labels below it", "not on it"] {
        let mut spell = || {
            let number = next(&mut state) % count;
            match kind {
                "on it" => name(number),
                "not on it" => format!("www.other{number}.example"),
                _ => format!("a.www.{}", name(number)),
            }
        };
        let questions: Vec<_> = (0..LOOKUPS).map(|_| question(&spell())).collect();
        let mut answer = Vec::with_capacity(512);
        let mut times: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                let found = questions.iter().filter(|question| {
                    std::hint::black_box(policy.local(0, question, &mut answer)).is_some()
                });
                let found = found.count();
                assert!(found == 0 || found == LOOKUPS);
                start.elapsed().as_nanos() as f64 / LOOKUPS as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let (least, median) = (times[0], times[ROUNDS / 2]);
        println!("{kind}: {median:.0} ns a question (least {least:.0})");
    }
    Ok(())
}
