//! Runs a page: a shell for each of its blocks, as in a terminal; servers as in other terminals.
//!
//! A server runs until the next one begins, or the page ends. Then the test stops it by Ctrl-C, and
//! checks its exit status and all its lines that the page shows.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_testkit::wait::PATIENCE;

use crate::output::{self, Rule};
use crate::page::{Command as Shown, blocks, text};
use crate::pages::{Note, Page};
use crate::world::World;

/// Runs all commands of a page. The process is in its own namespaces.
pub fn run(page: &Page, folder: PathBuf) {
    let world = World::new(page, folder);
    let mut session =
        Session { world, page, outputs: Vec::new(), servers: Vec::new(), wrong: Vec::new() };
    for block in blocks(&text(page.file)) {
        let mut shell = Shell::new(&session.world);
        for command in &block {
            session.command(&mut shell, command);
        }
        shell.end();
    }
    session.end_all();
    assert!(session.wrong.is_empty(), "{}", session.wrong.join("\n\n"));
}

struct Session<'a> {
    world: World,
    page: &'a Page,
    /// The output file of each command so far.
    outputs: Vec<PathBuf>,
    servers: Vec<Server>,
    /// The errors found.
    wrong: Vec<String>,
}

struct Server {
    child: Child,
    line: String,
    place: String,
    output: PathBuf,
    shown: Vec<String>,
    rule: Rule,
}

impl Session<'_> {
    fn command(&mut self, shell: &mut Shell, command: &Shown) {
        let place = format!("{}:{}: {}", self.page.file, command.line, command.text);
        let mut notes = Vec::new();
        for (begin, of) in self.page.notes {
            if command.text.starts_with(begin) {
                notes.extend_from_slice(of);
            }
        }
        if notes.iter().any(|note| note.prevents()) {
            return;
        }
        eprintln!("{place}");
        let says = notes.iter().find_map(|note| match note {
            Note::Server(says) => Some(*says),
            _ => None,
        });
        let says = says.or_else(|| begins_to_serve(&command.text));
        if says.is_some() && !notes.contains(&Note::Beside) {
            self.end_all();
        }
        self.others(shell, &place, &notes, |note| match note {
            Note::First(line) => Some(line),
            _ => None,
        });
        match says {
            Some(says) if !command.text.ends_with('&') => self.serve(command, says, &notes, &place),
            says => self.finish(shell, command, says, &notes, &place),
        }
        self.others(shell, &place, &notes, |note| match note {
            Note::Then(line) => Some(line),
            _ => None,
        });
    }

    /// Runs what the reader or others do next to the command.
    fn others(
        &mut self,
        shell: &mut Shell,
        place: &str,
        notes: &[Note],
        which: fn(&Note) -> Option<&str>,
    ) {
        for line in notes.iter().filter_map(which) {
            let (status, output) = self.run(shell, line);
            if status != 0 {
                self.wrong.push(format!("{place}: beside it: {line}: {output}"));
            }
        }
    }

    /// Runs a command to its end; one with `&`, if it is a server, until it serves.
    fn finish(
        &mut self,
        shell: &mut Shell,
        command: &Shown,
        says: Option<&str>,
        notes: &[Note],
        place: &str,
    ) {
        let before = self.lengths();
        let (status, came) = self.run(shell, &command.text);
        let expected = notes.iter().find_map(|note| match note {
            Note::Ends(status) => Some(*status),
            _ => None,
        });
        // The shell reports a missing program this way.
        if status == 127 && came.contains("command not found") {
            return crate::skip("documentation", format_args!("{place}: not installed"));
        }
        if status != expected.unwrap_or(command.status()) {
            return self.wrong.push(format!("{place}: ended with {status}\n{came}"));
        }
        let own = self.outputs.last().expect("it has one").clone();
        let begun = Instant::now();
        // After `kill`, the output comes from other commands, and with a delay.
        let answers = command.text.starts_with("kill ");
        loop {
            let came = if answers { self.since(&before) } else { read(&own) };
            let found = match says {
                Some(says) if !came.contains(says) => Err("does not serve".to_owned()),
                _ if command.shown.is_empty() => Ok(()),
                _ => output::compare(&command.shown, &came, rule(notes)),
            };
            match found {
                Ok(()) => return,
                Err(_) if (answers || says.is_some()) && begun.elapsed() < PATIENCE / 4 => {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return self.wrong.push(format!("{place}\n{error}\n{came}")),
            }
        }
    }

    /// Runs a line to its end, and returns its status and output.
    fn run(&mut self, shell: &mut Shell, line: &str) -> (i32, String) {
        let name = self.world.notes.join(format!("{}", self.outputs.len()));
        self.outputs.push(name.with_extension("out"));
        shell.run(line, &name)
    }

    /// Starts a server, and waits until it serves.
    fn serve(&mut self, command: &Shown, says: &str, notes: &[Note], place: &str) {
        let output = self.world.notes.join(format!("{}.out", self.outputs.len()));
        self.outputs.push(output.clone());
        let file = std::fs::File::create(&output).expect("a file");
        let error = file.try_clone().expect("a file");
        let mut shell = self.world.bash();
        shell.args(["-c", &command.text]).stdin(Stdio::null()).stdout(file).stderr(error);
        let mut child = shell.process_group(0).spawn().expect("bash runs");
        let begun = Instant::now();
        while !read(&output).contains(says) {
            let ended = child.try_wait().expect("a child").is_some();
            if ended || begun.elapsed() > PATIENCE {
                let _ = child.kill();
                return self.wrong.push(format!("{place}: does not serve\n{}", read(&output)));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let (line, place) = (command.text.clone(), place.to_owned());
        let rule = Rule { excerpt: true, ..rule(notes) };
        let shown = command.shown.iter().filter(|line| *line != "^C").cloned().collect();
        self.servers.push(Server { child, line, place, output, shown, rule });
    }

    fn end_all(&mut self) {
        while let Some(server) = self.servers.pop() {
            self.end(server);
        }
    }

    /// Stops a server, as Ctrl-C in its terminal does.
    fn end(&mut self, mut server: Server) {
        let place = &server.place;
        let group = format!("-{}", server.child.id());
        let requested = Command::new("kill").args(["-INT", "--", &group]).status();
        if !requested.is_ok_and(|status| status.success()) {
            let said = read(&server.output);
            return self.wrong.push(format!("{place}: has ended before\n{said}"));
        }
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = server.child.try_wait().expect("a child") {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "{place}: does not end");
            thread::sleep(Duration::from_millis(20));
        };
        let said = read(&server.output);
        if !in_order(status, &server.line) {
            self.wrong.push(format!("{place}: {status:?}\n{said}"));
        }
        if let Err(error) = output::compare(&server.shown, &said, server.rule) {
            self.wrong.push(format!("{place}\n{error}\n{said}"));
        }
    }

    /// The length of each command's output so far.
    fn lengths(&self) -> Vec<usize> {
        self.outputs.iter().map(|path| read(path).len()).collect()
    }

    /// The output of all commands since then.
    fn since(&self, before: &[usize]) -> String {
        let new =
            self.outputs.iter().zip(before).map(|(path, length)| read(path)[*length..].to_owned());
        new.collect()
    }
}

fn rule(notes: &[Note]) -> Rule {
    let has = |note: Note| notes.contains(&note);
    Rule { figures: has(Note::Figures), timed: has(Note::Timed), excerpt: has(Note::Excerpt) }
}

/// Servers of larder end with 0; other programs as Ctrl-C ends them.
fn in_order(status: ExitStatus, line: &str) -> bool {
    let interrupted = status.signal() == Some(2) || status.code() == Some(130);
    // A tshark (4.0.17) that reads one more packet after an interrupt ends with 2.
    let read_on = status.code() == Some(2) && line.contains("wireshark");
    status.success() || (interrupted || read_on) && begins_to_serve(line).is_none()
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// The text that a line's program logs when it serves; `None` if the program ends by itself.
fn begins_to_serve(line: &str) -> Option<&'static str> {
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    // It captures first.
    if line.starts_with("larder annotate -i") && line.contains(" --serve ") {
        return Some("store: listening ");
    }
    [
        ("larder dns --shadow", "dns: comparison started "),
        ("larder dns", "dns: listening "),
        ("larder http", "http: listening "),
        ("larder annotate -i", "capture: started "),
    ]
    .into_iter()
    .find_map(|(begin, says)| line.starts_with(begin).then_some(says))
}

/// A shell that runs all lines of a block, and so keeps jobs and variables.
struct Shell {
    child: Child,
    input: ChildStdin,
}

impl Shell {
    fn new(world: &World) -> Shell {
        let mut child = world.bash().stdin(Stdio::piped()).spawn().expect("bash runs");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(b"set -o pipefail\n").expect("bash reads");
        Shell { child, input }
    }

    /// Runs a line from `name`.line; writes its output to `name`.out, its status to `name`.status.
    fn run(&mut self, line: &str, name: &Path) -> (i32, String) {
        let file = |end: &str| name.with_extension(end);
        std::fs::write(file("line"), format!("{line}\n")).expect("written");
        let name = name.display();
        let run = format!(
            ". {name}.line < /dev/null > {name}.out 2>&1; echo $? > {name}.part; mv {name}.part {name}.status\n"
        );
        self.input.write_all(run.as_bytes()).expect("bash reads");
        let begun = Instant::now();
        loop {
            if let Ok(status) = read(&file("status")).trim().parse() {
                return (status, read(&file("out")));
            }
            let output = read(&file("out"));
            assert!(begun.elapsed() < PATIENCE, "{line}: does not end: {output}");
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "{line}: has ended the shell: {output}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the shell and its jobs, and waits for them.
    fn end(mut self) {
        self.input
            .write_all(
                b"jobs=$(jobs -p); [ -z \"$jobs\" ] || kill $jobs 2> /dev/null; wait; exit 0\n",
            )
            .expect("bash reads");
        let _ = self.child.wait();
    }
}
