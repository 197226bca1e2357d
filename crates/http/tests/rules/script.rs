//! The lines of a scenario, read into steps.
//!
//! ```text
//! # comment; indented lines belong to the line above
//! server KEY VALUE                  before everything else: `setting`
//!
//! client N requests METHOD PATH [on loop L]
//!   NAME: VALUE                     a field
//!   body TEXT                       a body of this length
//! client N gets STATUS              its next response has this status
//!   NAME: VALUE | no NAME           this field, or not this field
//!   body TEXT | so far TEXT         this body in full, or this much of it yet
//! client N then gets TEXT           more of the body; `client N gets the end`
//! client N is cut off               the body failed
//! client N stops reading | reads on | leaves
//!
//! origin gets METHOD PATH           the next request to the origin
//!   NAME: VALUE | no NAME
//! origin answers STATUS [to PATH]   the last request that it got, or the last for this path
//!   NAME: VALUE
//!   body TEXT | chunk TEXT          a body in full, or the first chunk of one without a length
//! origin sends TEXT [to PATH]       another chunk; `origin ends`
//! origin breaks off | is held up    in the midst of a body; `is held up`: no more of it is taken
//! origin fails STATUS [to PATH]     there is no response: what clients get instead
//! the fetch is aborted              no client wants the body
//!
//! the server drains
//! after N s
//! purge TAG | soft purge TAG
//! nothing is in flight
//!
//! TEXT   a word, or a length such as `300 KiB`
//! ```

use larder_http::options::{Abandoned, Options};

/// A scenario.
pub struct Script {
    pub settings: Options,
    pub steps: Vec<(usize, Step)>,
}

/// A step, in words, and the lines below it.
#[derive(Debug)]
pub struct Step {
    pub words: Vec<String>,
    pub fields: Vec<(String, String)>,
    pub absent: Vec<String>,
    pub content: Option<(String, Vec<u8>)>,
}

/// Reads a scenario; the error begins with its line.
pub fn read(text: &str) -> Result<Script, String> {
    let mut settings = Options::new(Vec::new(), Vec::new());
    settings.memory.records_bytes = 4 << 20;
    settings.memory.bodies_bytes = 32 << 20;
    let mut steps: Vec<(usize, Step)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let fault = |why: &str| format!("line {}: {why}", at + 1);
        let is_below = line.starts_with(' ');
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if words[0] == "server" {
            setting(&mut settings, &words).ok_or_else(|| fault("no such setting"))?;
        } else if is_below {
            let (_, step) = steps.last_mut().ok_or_else(|| fault("no line above"))?;
            below(step, line).ok_or_else(|| fault("neither a field nor a body"))?;
        } else {
            let step = Step { words, fields: Vec::new(), absent: Vec::new(), content: None };
            steps.push((at + 1, step));
        }
    }
    Ok(Script { settings, steps })
}

fn setting(options: &mut Options, words: &[String]) -> Option<()> {
    let value = words.get(2)?.as_str();
    let rules = &mut options.rules;
    match words[1].as_str() {
        "loops" => options.loops = value.parse().ok()?,
        "stale-if-error" => rules.stale_if_error_s = value.parse().ok()?,
        "heuristic-share" => rules.heuristic_share = value.parse().ok()?,
        "guesses-with-cookies" => rules.guesses_with_cookies = value == "yes",
        "heeds-clients" => rules.heeds_clients = value == "yes",
        "status" => rules.statuses.add(value.parse().ok()?, words.get(3)?.parse().ok()?),
        "unshared" => options.unshared_s = value.parse().ok()?,
        "bodies-memory" => options.memory.bodies_bytes = length(&words[2..])? as u64,
        "window" => options.window_bytes = length(&words[2..])? as u64,
        "abandoned" if value == "drop" => options.abandoned = Abandoned::Drop,
        "purge-from" => options.purge_from.push(value.parse().ok()?),
        _ => return None,
    }
    Some(())
}

fn below(step: &mut Step, line: &str) -> Option<()> {
    for word in ["body", "so far", "chunk"] {
        if let Some(text) = line.strip_prefix(word).and_then(|rest| rest.strip_prefix(' ')) {
            step.content = Some((word.to_owned(), bytes(text)));
            return Some(());
        }
    }
    if let Some(name) = line.strip_prefix("no ") {
        step.absent.push(name.to_owned());
        return Some(());
    }
    let (name, value) = line.split_once(": ")?;
    step.fields.push((name.to_owned(), value.to_owned()));
    Some(())
}

/// A text, or as many bytes as it says.
pub fn bytes(text: &str) -> Vec<u8> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    match length(&words) {
        Some(count) => (0..count).map(|at| b'a' + (at % 23) as u8).collect(),
        None => text.as_bytes().to_vec(),
    }
}

fn length(words: &[String]) -> Option<usize> {
    let [number, unit] = words else { return None };
    let unit = match unit.as_str() {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    Some(number.parse::<usize>().ok()? * unit)
}
