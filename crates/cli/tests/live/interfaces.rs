//! Interfaces that disappear and return, and the rights to capture from them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use larder_testkit::network::{ip, must};
use larder_testkit::process::{Program, Run};
use larder_testkit::skip::has;
use larder_testkit::wait::until;

use crate::world::{Names, World, named};

/// Sends a query and then a flow, which must be in the log with its name.
fn is_named(world: &World, names: &Names, k: u8, port: u16) {
    names.query(k);
    names.send(k, port, b"hello");
    let name = format!("n{k}.example");
    until(&name, || {
        let flows = named(&world.log(), port);
        (flows.get(&k)?.as_deref() == Some(name.as_str())).then_some(())
    });
}

/// The test sets the interface down and up, then deletes and creates it again, during a capture.
/// larder continues, counts it, names later flows as before, and stores their packets.
#[test]
fn interface_comes_and_goes() {
    const TEST: &str = "interface_comes_and_goes";
    for rings in ["1", "2"] {
        let Some(world) = World::new(TEST) else { return };
        let names = world.names();
        let line = format!("--udp-idle 1s --rings {rings} -w kept --store 16MiB");
        let mut capture = world.capture(&line);
        is_named(&world, &names, 1, 7001);

        must(&format!("-n {} link set b0 down", world.name));
        until("down", || (world.count("interface_up") == 0).then_some(()));
        assert_eq!(world.count("interface_downs"), 1);
        world.up();
        until("up", || (world.count("interface_up") == 1).then_some(()));
        is_named(&world, &names, 2, 7002);

        must("link delete a0");
        until("gone", || (world.count("interface_up") == 0).then_some(()));
        world.link();
        until("found again", || (world.count("interface_reopened") == 1).then_some(()));
        until("up", || (world.count("interface_up") == 1).then_some(()));
        is_named(&world, &names, 3, 7003);
        assert_eq!(world.count("interface_downs"), 2);
        assert!(matches!(capture.child.try_wait(), Ok(None)));

        let (code, said) = capture.stop();
        assert_eq!(code, Some(0), "{said}");
        for k in 1..=3 {
            let run = world.scratch.run(&format!("find --dir kept n{k}.example"));
            assert!(run.code == Some(0) && run.out.contains(&format!("700{k}")), "{run:?}");
        }
        drop(names);
    }
}

/// An interface that is created again once more often than there are sockets for it ends the
/// capture. The log has all packets so far, the message names the next step, and the exit status is
/// an error.
#[test]
fn a_capture_that_cannot_go_on_ends() {
    const TEST: &str = "a_capture_that_cannot_go_on_ends";
    let Some(world) = World::new(TEST) else { return };
    let names = world.names();
    let mut capture = world.capture("--rings 2");
    names.query(1);
    names.send(1, 7001, b"hello");
    let mut times = 0;
    let code = until("an end", || {
        must("link delete a0");
        world.link();
        times += 1;
        // larder reports each new interface before the test creates the next; it ends at the last
        // one.
        let said = capture.wait_for("recreated");
        said.contains("cannot be captured from").then(|| capture.child.wait().expect("it ends"))
    });
    assert!(times > 1);
    assert_eq!(code.code(), Some(2));
    assert!(capture.lines_read.last().is_some_and(|line| line.contains("start again")));
    let flows = named(&world.log(), 7001);
    assert_eq!(flows.get(&1), Some(&Some("n1.example".to_owned())), "{flows:?}");
}

/// A folder that every user can read, with the program; deleted when dropped.
struct Open(PathBuf);

impl Open {
    fn new(world: &World) -> Open {
        let folder = std::env::temp_dir().join(&world.name);
        fs::create_dir(&folder).expect("made");
        let open = Open(folder);
        for folder in [open.0.clone(), open.0.join("out")] {
            fs::create_dir_all(&folder).expect("made");
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("ours");
        }
        fs::copy(env!("CARGO_BIN_EXE_larder"), open.0.join("larder")).expect("copied");
        open
    }

    /// The program as user 65534, with only these capabilities.
    fn larder(&self, world: &World, capabilities: &str, line: &str) -> Command {
        let mut command = world.inside("setpriv");
        command.current_dir(self.0.join("out")).args(["--reuid", "65534", "--regid", "65534"]);
        command.args(["--clear-groups", "--bounding-set", capabilities]);
        command.args(["--inh-caps", capabilities, "--ambient-caps", capabilities]);
        command.arg(self.0.join("larder")).args(line.split_whitespace());
        command
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// For a user without rights, the error names the missing right and how to grant it. With
/// CAP_NET_RAW alone larder captures, and then has no capability on any thread: neither effective,
/// permitted, inheritable nor ambient.
#[test]
fn rights() {
    const TEST: &str = "rights";
    if !has(TEST, "setpriv") {
        return;
    }
    let Some(world) = World::new(TEST) else { return };
    let open = Open::new(&world);
    let run = Run::of(&mut open.larder(&world, "-all", "annotate -i b0 -o log"));
    run.refused(&["setcap cap_net_raw+ep", "AmbientCapabilities=CAP_NET_RAW", "as root"]);

    let names = world.names();
    let line = "annotate -i b0 -o log --format ecs --udp-idle 1s --ctl ctl --ctl-mode 0666 --cores 3 \
         -w kept --store 16MiB --serve 10.78.0.2:8053 --metrics 10.78.0.2:9100";
    let capture = Program::start(&mut open.larder(&world, "-all,+net_raw", line));
    let ctl = open.0.join("out/ctl");
    until("a capture", || {
        let command = format!("ctl --socket {} stats", ctl.display());
        (world.scratch.run(&command).code == Some(0)).then_some(())
    });
    names.query(7);
    names.send(7, 7000, b"seen");
    let log = open.0.join("out/log");
    until("its name", || fs::read_to_string(&log).ok()?.contains("\"n7.example\"").then_some(()));
    let threads = fs::read_dir(format!("/proc/{}/task", capture.id())).expect("it lives");
    let mut seen = Vec::new();
    for thread in threads {
        let folder = thread.expect("there").path();
        let name = fs::read_to_string(folder.join("comm")).expect("a name");
        let status = fs::read_to_string(folder.join("status")).expect("a status");
        for line in status.lines() {
            let Some((set @ ("CapInh" | "CapPrm" | "CapEff" | "CapAmb"), value)) =
                line.split_once(':')
            else {
                continue;
            };
            assert_eq!(u64::from_str_radix(value.trim(), 16), Ok(0), "{name} {set}");
        }
        seen.push(name.trim().to_owned());
    }
    for name in ["serve", "store", "operator", "signals"] {
        assert!(seen.iter().any(|other| other == name), "{name} is not among {seen:?}");
    }
    let (code, said) = capture.stop();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(ip("link show a0").code, Some(0));
}
