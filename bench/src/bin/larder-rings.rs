//! `larder-rings`: queues between cores, as a table in Markdown.
//!
//! ```text
//! larder-rings [--items N] [--rounds N] [--producers 1,2,4]
//! ```

use std::process::ExitCode;

use larder_bench::sample::Median;
use larder_peers::args::Args;
use larder_peers::rings::Queue;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("larder-rings: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let args = Args::from_process(&["items", "rounds", "producers"], &[])?;
    let items = args.number("items", 1_000_000usize)?.max(1024);
    let rounds = args.number("rounds", 11usize)?.max(1);
    println!("| queue | producers | items a message | ns an item | 95 % | of rtrb | 95 % |");
    println!("|---|--:|--:|--:|---|--:|---|");
    for producers in args.numbers("producers", &[1, 2, 4])? {
        table::<1>(producers, items, rounds)?;
        table::<32>(producers, items, rounds)?;
    }
    Ok(())
}

/// The rows of one setting: every queue once a round, in rotated order.
fn table<const N: usize>(producers: usize, items: usize, rounds: usize) -> Result<(), String> {
    let count = Queue::ALL.len();
    let mut figures = vec![Vec::with_capacity(rounds); count];
    for round in 0..=rounds {
        for turn in 0..count {
            let at = (turn + round) % count;
            let figure = (Queue::ALL[at].run::<N>(producers, items))
                .map_err(|error| format!("{}: {error}", Queue::ALL[at].name()))?;
            // The first round warms up.
            if round > 0 {
                figures[at].push(figure);
            }
        }
    }
    for (queue, of_queue) in Queue::ALL.iter().zip(&figures) {
        let time = Median::of(of_queue);
        let ratio = Median::of_ratios(of_queue, &figures[0]);
        println!(
            "| {} | {producers} | {N} | {:.1} | {:.1} to {:.1} | {:.2} | {:.2} to {:.2} |",
            queue.name(),
            time.value,
            time.low,
            time.high,
            ratio.value,
            ratio.low,
            ratio.high
        );
    }
    Ok(())
}
