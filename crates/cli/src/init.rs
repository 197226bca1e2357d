//! `larder init`: a configuration with every setting of a program as a comment, and what to do with it.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::show;
use larder_settings::table::Command;
use larder_settings::terminal::{eprint_quietly, print};

use crate::settings::{ANNOTATE, HTTP, Init, dns};

/// Runs the command.
pub fn init(settings: &Init) -> Outcome {
    let (command, unit) = program(settings.program);
    let text = configuration(settings.program, command);
    if settings.output == Path::new("-") {
        return print(&text);
    }
    let path = settings.output.as_path();
    write_new(path, &text)?;
    let place = path.display().to_string();
    eprint_quietly(&format!(
        "wrote {}; change what differs from the defaults\n{}",
        place.escape_debug(),
        next(settings.program, unit, Path::new("/run/systemd/system").is_dir())
    ));
    Ok(exit::DONE)
}

/// The command of a program, and its unit.
fn program(name: &str) -> (&'static Command, &'static str) {
    match name {
        "dns" => (&dns::DNS, "larder-dns"),
        "http" => (&HTTP, "larder-http"),
        _ => (&ANNOTATE, "larder-annotate@IFACE"),
    }
}

/// Every setting that a file may have, at its default and as a comment, so that a later version's default counts.
fn configuration(program: &str, command: &Command) -> String {
    let mut text = format!(
        "# Settings of larder {program}. Each is shown with its default; remove the # before those that you change.\n\
         # A flag or an environment variable comes before this file: larder show-config prints what applies.\n"
    );
    show::table_of(command, "#", &mut text);
    text
}

/// Writes a file that is not there yet, and the directory for it.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: &io::Error, next: &str| {
        Failure::file(path.display().to_string().escape_debug(), error, next)
    };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let next = "write to another file with -o, or run larder init as root";
        fs::create_dir_all(parent).map_err(|error| failed(&error, next))?;
    }
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => failed(
            &error,
            "it stays as it is: write to another file with -o, or to standard output with -o - and copy the table",
        ),
        _ => failed(&error, "write to another file with -o, or run larder init as root"),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| {
        // A part of it would be a configuration, too.
        let _ = fs::remove_file(path);
        failed(&error, "make room there, or write to another file with -o")
    })
}

/// What to do next.
fn next(program: &str, unit: &str, has_systemd: bool) -> String {
    let flags = if program == "annotate" { " -i IFACE" } else { "" };
    let start = match has_systemd {
        true => format!("systemctl enable --now {unit}\n       systemctl status {unit}"),
        false => format!("larder {program}{flags}"),
    };
    format!("check: larder doctor {program}{flags}\nstart: {start}\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::settings::PROGRAM;

    /// The configuration of each program is one, and with all comments removed it has the defaults.
    #[test]
    fn comments_are_settings() {
        for name in crate::settings::PROGRAMS {
            let (command, unit) = program(name);
            let text = configuration(name, command);
            let active =
                text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
            assert_eq!(active.split_whitespace().collect::<Vec<_>>(), [format!("[{name}]")]);
            let shown: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix('#'))
                .filter(|line| !line.starts_with(' '))
                .collect();
            assert_eq!(shown.len(), command.lasting().count());
            let file = format!("[{name}]\n{}\n", shown.join("\n"));
            let line = ["larder", name];
            let invocation = PROGRAM.parse(line).expect("sound");
            let set = invocation
                .settings_with(&file)
                .unwrap_or_else(|failure| panic!("{}", failure.message));
            let unset = invocation.settings_with("").expect("no file");
            let values = |of: &larder_settings::layers::Resolved| {
                format!("{:?}", of.rows().map(|row| row.1.to_vec()).collect::<Vec<_>>())
            };
            assert_eq!(values(&set), values(&unset), "{name}");
            assert!(next(name, unit, true).contains("systemctl enable --now larder-"));
            assert!(next(name, unit, false).contains(&format!("start: larder {name}")));
        }
    }

    /// A file that is there stays, and a directory that is missing is made.
    #[test]
    fn files_are_not_overwritten() {
        let folder = larder_testkit::scratch::Scratch::within(std::env::temp_dir());
        let path = folder.path("etc/larder.toml");
        write_new(&path, "one").expect("room");
        let failure = write_new(&path, "two").expect_err("it is there");
        assert!(failure.message.contains("it stays as it is"), "{}", failure.message);
        assert_eq!(fs::read_to_string(&path).expect("a file"), "one");
        assert!(write_new(Path::new("/proc/none/larder.toml"), "").is_err());
    }
}
