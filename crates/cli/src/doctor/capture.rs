//! Checks for `larder annotate`: interfaces, the right to capture, directories and space.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use larder_io::disk;
use larder_io::live::{Live, LiveOptions};
use larder_settings::amounts::size;

use super::serving::of_others;
use super::{Finding, IS_LINUX};
use crate::settings::Annotate;

/// Memory that the settings ask for: names, flows, rings, packets on their way to the disk.
pub fn memory_bytes(settings: &Annotate) -> u64 {
    let rings = settings.capture.ring_size.saturating_mul(settings.capture.rings as u64);
    let names = settings.limits.names_budget;
    let stored = if settings.store.store.is_some() { settings.store.store_memory } else { 0 };
    names.saturating_add(rings).saturating_add(stored)
}

/// All checks. `dir`: where something will be written, and `store` how much.
pub fn checks(settings: &Annotate, dir: Option<&Path>, store: Option<u64>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let named = settings.input.interface.to_vec();
    let all = interfaces();
    let wanted: Vec<String> = match named.is_empty() {
        false => named,
        true => {
            all.iter().filter(|it| it.is_up && it.name != "lo").map(|it| it.name.clone()).collect()
        }
    };
    if wanted.is_empty() && IS_LINUX {
        findings.push(Finding::failed(
            "interfaces",
            "none is up but lo; name one with -i, or bring one up: ip link set IFACE up",
        ));
    }
    for name in &wanted {
        findings.push(of_interface(name, &all, settings));
    }
    if let Some(dir) = dir {
        findings.push(of_directory(dir, store));
    } else if let Some(bytes) = store {
        findings.push(of_directory(Path::new("."), Some(bytes)));
    }
    let (store, metrics) = (&settings.store, &settings.operation.metrics);
    let others = [("ui", &store.ui), ("serve", &store.serve), ("metrics", metrics)];
    findings.extend(of_others("annotate", others));
    findings
}

/// An interface as the kernel shows it.
struct Interface {
    name: String,
    is_up: bool,
    has_carrier: bool,
}

fn interfaces() -> Vec<Interface> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut all: Vec<Interface> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let flags = fs::read_to_string(entry.path().join("flags")).ok()?;
            let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
            let carrier = fs::read_to_string(entry.path().join("carrier"));
            let has_carrier = carrier.is_ok_and(|text| text.trim() == "1");
            // IFF_UP.
            Some(Interface { name, is_up: flags & 1 != 0, has_carrier })
        })
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn of_interface(name: &str, all: &[Interface], settings: &Annotate) -> Finding {
    let about = format!("interface {name}");
    if name != "any" && IS_LINUX {
        let Some(found) = all.iter().find(|it| it.name == name) else {
            let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
            let text = format!("there is none; name one of {}", names.join(", "));
            return Finding::failed(&about, text);
        };
        if !found.is_up {
            return Finding::failed(&about, format!("it is down; ip link set {name} up"));
        }
        if !found.has_carrier {
            return Finding::limited(
                &about,
                "it has no carrier; check the cable, or the switch's port",
            );
        }
    }
    let options = LiveOptions {
        interfaces: vec![name.to_owned()],
        rings: 1,
        ring_bytes: settings.capture.ring_size,
        is_promiscuous: false,
        ..LiveOptions::default()
    };
    match Live::open(&options) {
        Ok(_) => Finding::fine(&about, "up, and this user may capture from it"),
        Err(error) => Finding::failed(&about, error.to_string()),
    }
}

/// A directory that is to be written, and the space that its budget needs.
fn of_directory(dir: &Path, store: Option<u64>) -> Finding {
    let about = format!("directory {}", dir.display().to_string().escape_debug());
    let at = match existing(dir) {
        Some(at) => at,
        None => return Finding::failed(&about, "no part of the path exists; correct it"),
    };
    if !at.is_dir() {
        let what = at.display().to_string();
        return Finding::failed(
            &about,
            format!("{} is no directory; name another", what.escape_debug()),
        );
    }
    if let Err(error) = tempfile_in(&at) {
        return Finding::failed(
            &about,
            match error.kind() {
                std::io::ErrorKind::PermissionDenied => format!(
                    "this user cannot write there ({error}); chown it, or run larder as its owner"
                ),
                _ => format!("nothing can be written there ({error}); make room, or name another"),
            },
        );
    }
    let free = match disk::space(&at) {
        Ok(space) => space.free_bytes,
        Err(error) => return Finding::limited(&about, format!("its space is not known ({error})")),
    };
    match store {
        Some(wanted) if wanted > free => Finding::failed(
            &about,
            format!(
                "{} are free, less than the {} of --store; lower it, or make room",
                size(free),
                size(wanted)
            ),
        ),
        _ => Finding::fine(&about, format!("writable, {} free", size(free))),
    }
}

/// The nearest directory of the path that exists.
fn existing(dir: &Path) -> Option<PathBuf> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let found = dir.ancestors().find(|it| it.symlink_metadata().is_ok());
    match found {
        Some(found) => Some(found.to_owned()),
        None if dir.is_relative() => Some(PathBuf::from(".")),
        None => None,
    }
}

/// Makes a file with a byte and removes it: modes do not tell what a file system permits, and a full disk
/// takes files without bytes.
fn tempfile_in(dir: &Path) -> std::io::Result<()> {
    let path = dir.join(format!(".larder-doctor-{}", std::process::id()));
    let mut file = fs::File::create_new(&path)?;
    let written = file.write_all(b"\n").and_then(|()| file.sync_data());
    fs::remove_file(&path)?;
    written
}
