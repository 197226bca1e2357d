//! Figures that need a process of their own: what a cache takes of memory, and its hits at a given size.
//!
//! Allocators keep what was given back, so a contestant measured after another would look smaller than it
//! is. The program therefore runs itself again for each contestant (`--alone memory --only moka`), and reads
//! back three numbers.

use std::process::Command;

use larder_bench::contest::{Entrant, footprint, hit_ratio};

/// Memory that contestants may take when hits are compared.
pub const HITS_RESIDENT_BYTES: u64 = 60 << 20;
/// Different keys that are asked for then.
pub const HITS_IDS: usize = 5_000_000;

/// Does in this process what [`memory`] and [`hits`] ask for; the line to print.
pub fn answer(
    task: &str,
    entrant: &Entrant,
    entries: usize,
    ids: usize,
    requests: usize,
) -> Result<String, String> {
    match task {
        "memory" => {
            let footprint = footprint(entrant, entries)?;
            let own = footprint.own.map_or("-".to_owned(), |own| own.to_string());
            Ok(format!("{} {own} {}", footprint.resident, footprint.resident_bytes))
        }
        "hits" => {
            let (share, bytes) = hit_ratio(entrant, entries, ids, requests)?;
            Ok(format!("{share} - {bytes}"))
        }
        _ => Err(format!("--alone wants memory or hits, not '{task}'")),
    }
}

/// What a contestant answered.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// Bytes an entry above its payload, or the share of hits.
    pub figure: f64,
    /// The same by the contestant's own count.
    pub own: Option<f64>,
    /// Bytes by which its process grew.
    pub resident_bytes: u64,
}

/// Bytes an entry, measured in a process of its own.
pub fn memory(name: &str, entries: usize) -> Result<Answer, String> {
    ask(&["--alone", "memory", "--only", name, "--entries", &entries.to_string()])
}

/// The share of hits with as many entries as keep the process within `bytes`, found in a few tries, and that
/// number. `ids` keys by Zipf's law; the first half of the requests warms up.
pub fn hits(
    name: &str,
    bytes: u64,
    ids: usize,
    requests: usize,
) -> Result<(Answer, usize), String> {
    let try_entries = |entries: usize, requests: usize| {
        let (entries, ids) = (entries.to_string(), ids.to_string());
        let requests = requests.to_string();
        ask(&[
            "--alone",
            "hits",
            "--only",
            name,
            "--entries",
            &entries,
            "--ids",
            &ids,
            "--requests",
            &requests,
        ])
    };
    let mut entries = (bytes / 100) as usize;
    for _ in 0..4 {
        let answer = try_entries(entries, 2)?;
        let share = bytes as f64 / answer.resident_bytes.max(1) as f64;
        if (0.99..1.01).contains(&share) {
            break;
        }
        entries = ((entries as f64 * share) as usize).max(1);
    }
    Ok((try_entries(entries, requests)?, entries))
}

fn ask(arguments: &[&str]) -> Result<Answer, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output =
        Command::new(program).args(arguments).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace();
    let mut next = || words.next().and_then(|word| word.parse::<f64>().ok());
    match (next(), next(), next()) {
        (Some(figure), own, Some(bytes)) => {
            Ok(Answer { figure, own, resident_bytes: bytes as u64 })
        }
        _ => Err(format!("{arguments:?} answered '{}'", text.trim())),
    }
}
