//! `larder top`: the names or flows with the most traffic, while `larder annotate` runs.
//!
//! It queries the control socket once a second. Rates are differences of totals. On a terminal it uses the
//! alternate screen, and restores the terminal at any end; otherwise it prints one report.
//!
//! Names come from packets. The server escapes them, and this module replaces all but printable ASCII again.

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use larder_serve::control::Fields;
use larder_serve::control::client;
use larder_settings::exit::{self, Failure, Outcome};
use rustix::termios::{self, OptionalActions, Termios};
use serde_json::Value;

use crate::settings::Top;

const EVERY: Duration = Duration::from_secs(1);
/// Columns at most, and without a terminal.
const WIDTH: usize = 100;
/// Lines above the rows.
const HEAD_LINES: usize = 7;

/// The rows of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Names,
    Flows,
}

/// Runs the command.
pub fn top(settings: &Top) -> Outcome {
    let mut by = if settings.by == "flows" { By::Flows } else { By::Names };
    let exchange = || exchange(&settings.socket);
    let first = exchange()?;
    let is_alone = settings.once || !io::stdout().is_terminal();
    if is_alone {
        // The server samples batches from the first request on, second by second.
        let begun = Instant::now();
        thread::sleep(EVERY * 2);
        let picture = picture(&first, &exchange()?, begun.elapsed(), by, settings.rows, WIDTH);
        larder_settings::terminal::print(&picture)?;
        return Ok(exit::DONE);
    }
    let screen = Screen::take().map_err(|error| {
        Failure::file("the terminal", &error, "use --once, or another terminal")
    })?;
    let keys = keys();
    let (mut before, mut since) = (first, Instant::now());
    loop {
        match keys.recv_timeout(EVERY) {
            Ok(b'q' | 3 | 4) => break,
            Ok(b'n') => by = By::Names,
            Ok(b'f') => by = By::Flows,
            Ok(_) => continue,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(EVERY),
        }
        let now = exchange()?;
        let (rows, width) = screen.size();
        let rows = rows.saturating_sub(HEAD_LINES);
        let text = picture(&before, &now, since.elapsed(), by, rows, width.min(2 * WIDTH));
        screen.draw(&text).map_err(|error| Failure::stdout(&error))?;
        (before, since) = (now, Instant::now());
    }
    Ok(exit::DONE)
}

fn exchange(path: &Path) -> Result<Fields, Failure> {
    client::exchange(path, "{\"command\":\"top\"}", |_| Ok(())).map_err(|error| {
        let next = match error {
            client::Error::Unreachable(..) | client::Error::Foreign | client::Error::Refused(_) => {
                format!("; larder top shows larder annotate -i IFACE --ctl {}", path.display())
            }
            _ => String::new(),
        };
        Failure::usage(format!("{error}{next}"))
    })
}

/// A channel of pressed keys.
fn keys() -> Receiver<u8> {
    let (sender, receiver) = mpsc::channel();
    // The thread waits in its read until the process ends.
    let _ = thread::Builder::new().name("keys".to_owned()).spawn(move || {
        let mut key = [0];
        while let Ok(1) = io::stdin().read(&mut key) {
            if sender.send(key[0]).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The terminal, without echo and with a screen of its own.
struct Screen {
    before: Option<Termios>,
}

impl Screen {
    fn take() -> io::Result<Screen> {
        let before = match termios::tcgetattr(io::stdin()) {
            Ok(before) => {
                let mut raw = before.clone();
                raw.make_raw();
                termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
                Some(before)
            }
            // Standard input is not a terminal: there are no keys, and Ctrl-C sends SIGINT.
            Err(_) => None,
        };
        let mut out = io::stdout();
        write!(out, "\x1b[?1049h\x1b[?25l")?;
        out.flush()?;
        Ok(Screen { before })
    }

    fn size(&self) -> (usize, usize) {
        match termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 => (size.ws_row.into(), size.ws_col.into()),
            _ => (24, 80),
        }
    }

    fn draw(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(on_screen(text).as_bytes())?;
        out.flush()
    }
}

/// The bytes that replace the screen by `text`. The last line has no line feed: on a full screen it would scroll.
fn on_screen(text: &str) -> String {
    let lines = text.trim_end_matches('\n').replace('\n', "\x1b[K\r\n");
    format!("\x1b[H{lines}\x1b[K\x1b[J")
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write!(io::stdout(), "\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
        if let Some(before) = &self.before {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn number(fields: &Fields, name: &str) -> f64 {
    match fields.get(name) {
        Some(Value::Object(of)) => of.values().filter_map(Value::as_f64).sum(),
        Some(value) => value.as_f64().unwrap_or(0.0),
        None => 0.0,
    }
}

/// A number as people read it: `12.3 M`.
fn scaled(value: f64) -> String {
    let units = ["", " k", " M", " G", " T"];
    let (mut value, mut at) = (value.max(0.0), 0);
    while value >= 1_000.0 && at + 1 < units.len() {
        value /= 1_000.0;
        at += 1;
    }
    let digits = if at == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$}{}", units[at])
}

fn share(part: f64, of: f64) -> String {
    if of > 0.0 { format!("{:.1} %", part / of * 100.0) } else { "-".to_owned() }
}

/// The text in printable ASCII, cut to `width` columns.
fn clean(text: &str, width: usize) -> String {
    let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    let mut clean: String = text.chars().take(width).map(printable).collect();
    if text.chars().count() > width {
        clean.truncate(width.saturating_sub(1));
        clean.push('~');
    }
    clean
}

/// The report of two responses that are `elapsed` apart.
fn picture(
    before: &Fields,
    now: &Fields,
    elapsed: Duration,
    by: By,
    rows: usize,
    width: usize,
) -> String {
    use std::fmt::Write;
    let seconds = elapsed.as_secs_f64().max(0.001);
    let rate = |name| (number(now, name) - number(before, name)) / seconds;
    let total = |name| number(now, name);
    let mut text = String::new();
    let mut line = |line: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", clean(&line, width));
    };
    line(format!(
        "larder annotate, up {:.0} s: {} packets/s, {}bit/s",
        total("uptime_seconds"),
        scaled(rate("packets")),
        scaled(rate("input_bytes") * 8.0),
    ));
    line(format!(
        "drops  {}/s, {} in total by the kernel; {} damaged; {} packets not stored",
        scaled(rate("kernel_dropped")),
        total("kernel_dropped"),
        total("damaged"),
        total("store_packets_dropped") + total("store_packets_lost"),
    ));
    line(format!(
        "flows  {} now, {}/s end, {} evicted; named {} of {} nameable",
        scaled(total("flows")),
        scaled(rate("flows_ended")),
        total("flows_evicted"),
        share(total("flows_named"), total("flows_nameable")),
        scaled(total("flows_nameable")),
    ));
    line(format!(
        "names  {} known, {}/s learned, {} evicted",
        scaled(total("names")),
        scaled(rate("answers")),
        total("names_evicted"),
    ));
    line(format!(
        "delay  {} batches between names and flows, {:.0} ms to the log",
        total("batches_behind"),
        total("behind_seconds") * 1e3,
    ));
    line(String::new());
    list(now, by, rows, &mut line);
    text
}

/// The names or flows with the most traffic.
fn list(now: &Fields, by: By, rows: usize, line: &mut impl FnMut(String)) {
    let list = |name| now.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let word =
        |row: &Value, name| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let field = |row: &Value, name| row.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let (title, list) = match by {
        By::Names => ("NAME", list("parties")),
        By::Flows => ("FLOW", list("talk")),
    };
    line(format!("{:>10} {:>10}  {title}", "bit/s", "packets/s"));
    for row in list.iter().take(rows) {
        let what = match by {
            By::Names => word(row, "name"),
            By::Flows => {
                let (from, to) = (word(row, "source"), word(row, "destination"));
                format!("{from} > {to}  {}", word(row, "name"))
            }
        };
        line(format!(
            "{:>10} {:>10}  {what}",
            scaled(field(row, "bytes") * 8.0),
            scaled(field(row, "packets")),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report that fills the screen does not scroll it: it has one line feed less than lines.
    #[test]
    fn a_full_screen_does_not_scroll() {
        let rows: Vec<Value> = (0..50)
            .map(|n| serde_json::json!({"name": format!("h{n}.example"), "bytes": 1}))
            .collect();
        let fields = Fields::from_iter([("parties".to_owned(), Value::from(rows))]);
        let height = 24;
        let rows = height - HEAD_LINES;
        let text = picture(&fields, &fields, Duration::from_secs(1), By::Names, rows, 60);
        assert_eq!(text.lines().count(), height);
        let screen = on_screen(&text);
        assert_eq!(screen.matches('\n').count(), height - 1);
        assert!(screen.starts_with("\x1b[Hlarder annotate") && screen.contains("h16.example"));
    }

    /// Totals become rates, labelled figures a sum. No byte of a name that moves the cursor reaches the terminal.
    #[test]
    fn a_picture() {
        let fields = |packets: u64, name: &str| {
            let text = format!(
                r#"{{"packets":{packets},"kernel_dropped":{{"eth0":3,"eth1":4}},"flows_named":3,
                "flows_nameable":4,"parties":[{{"name":{},"bytes":1500,"packets":2}}],
                "talk":[{{"source":"10.0.0.1:5","destination":"10.0.0.2:443","name":"a.example","bytes":10,"packets":1}}]}}"#,
                Value::from(name)
            );
            serde_json::from_str::<Fields>(&text).expect("an object")
        };
        let (before, now) = (fields(1_000, "x"), fields(25_000, "evil\x1b[2J\u{9b}.example"));
        let of = |by| picture(&before, &now, Duration::from_secs(2), by, 10, 60);
        let names = of(By::Names);
        assert!(names.contains("12.0 k packets/s"), "{names}");
        assert!(
            names.contains("7 in total by the kernel") && names.contains("named 75.0 %"),
            "{names}"
        );
        assert!(names.contains("   12.0 k          2  evil?[2J?.example"), "{names}");
        assert!(names.bytes().all(|byte| byte == b'\n' || (32..127).contains(&byte)));
        assert!(of(By::Flows).contains("10.0.0.1:5 > 10.0.0.2:443  a.example"));
        assert!(of(By::Flows).lines().all(|line| line.len() <= 60));
    }
}
