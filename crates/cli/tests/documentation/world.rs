//! The environment of a page: directories, a network and programs as its reader has them.
//!
//! ```text
//! lo    127.0.0.1  origins; what the page starts
//!       9.9.9.9, 149.112.112.112, 10.0.0.1, 10.0.0.2  unbound, which has a few names
//! eth0  192.0.2.1, 192.0.2.10, 2001:db8::1
//! net0  the other end of eth0; `replay` sends recordings through it
//! ```
//!
//! `/etc`, `/run`, `/var/lib` and `/var/log` are the page's own, and are removed with it, as is its
//! working directory.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Run, TestCapture};
use crate::page::root;
use crate::pages::Page;

/// System directories that pages write to or read from.
const SPACES: &str = "
    cp -a /etc own-etc
    mount --bind own-etc /etc
    rm -f /etc/resolv.conf
    echo nameserver 9.9.9.9 > /etc/resolv.conf
    mkdir -p /etc/larder
    for folder in /run /var/lib /var/log; do mount -t tmpfs none $folder; mkdir $folder/larder; done
";

const NETWORK: &str = "
    ip link set lo up
    for address in 9.9.9.9 149.112.112.112 10.0.0.1 10.0.0.2; do ip address add $address/32 dev lo; done
    ip link add eth0 numrxqueues 4 numtxqueues 4 type veth peer name net0 numrxqueues 4 numtxqueues 4
    echo 1 > /proc/sys/net/ipv6/conf/net0/disable_ipv6
    ip link set net0 up
    ip address add 192.0.2.1/24 dev eth0
    ip address add 192.0.2.10/24 dev eth0
    ip address add 2001:db8::1/64 dev eth0 nodad
    ip link set eth0 up
";

/// Settings of servers, and logs of other programs.
const FILES: [(&str, &str); 6] = [
    ("unbound.conf", UNBOUND),
    ("upstream.conf", UPSTREAM),
    ("resolver.conf", RESOLVER),
    (
        "dns.log",
        "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tdns\n\
         #fields\tts\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\trtt\tquery\tqtype\trcode\tanswers\tTTLs\n\
         #types\ttime\taddr\tport\taddr\tport\tenum\tinterval\tstring\tcount\tcount\tvector[string]\tvector[interval]\n\
         1793527199.0\t192.0.2.1\t4000\t192.0.2.53\t53\tudp\t-\twww.example\t1\t0\t203.0.113.1\t60.0\n",
    ),
    (
        "ssl.log",
        "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tssl\n\
         #fields\tts\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tserver_name\n\
         #types\ttime\taddr\tport\taddr\tport\tstring\n\
         1793527200.0\t192.0.2.1\t4001\t203.0.113.1\t443\twww.example\n",
    ),
    (
        "eve.json",
        "{\"timestamp\":\"2026-11-21T21:37:12Z\",\"event_type\":\"alert\",\"src_ip\":\"192.0.2.10\",\"src_port\":5,\
         \"dest_ip\":\"203.0.113.10\",\"dest_port\":443,\"proto\":\"TCP\"}\n",
    ),
];

/// The resolver of the page's network.
const UNBOUND: &str = r#"server:
    interface: 9.9.9.9
    interface: 149.112.112.112
    interface: 10.0.0.1
    interface: 10.0.0.2
    interface: 127.0.0.1@5399
    access-control: 0.0.0.0/0 allow
    chroot: ""
    username: ""
    pidfile: ""
    directory: "."
    do-daemonize: no
    use-syslog: no
    verbosity: 0
    local-zone: "." refuse
    local-zone: "example.com." redirect
    local-data: "example.com. 3600 A 192.0.2.7"
    local-zone: "example.org." redirect
    local-data: "example.org. 3600 A 192.0.2.8"
    local-zone: "test.example." redirect
    local-data: "test.example. 300 A 192.0.2.7"
    local-data: "test.example. 300 AAAA 2001:db8::7"
    local-data: "test.example. 300 TXT hello"
remote-control:
    control-enable: no
"#;

/// The upstream of the resolver in a comparison.
const UPSTREAM: &str = r#"server:
    interface: 127.0.0.1@5302
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    local-zone: example. redirect
    local-data: "example. 60 A 192.0.2.8"
remote-control:
    control-enable: no
"#;

/// The resolver in a comparison. It runs in the page's directory, which has the socket.
const RESOLVER: &str = r#"server:
    interface: 127.0.0.1@5301
    do-not-query-localhost: no
    module-config: iterator
    chroot: ""
    directory: ""
    username: ""
    pidfile: ""
    use-syslog: no
    local-data: "n7.example. 60 A 192.0.2.99"
forward-zone:
    name: .
    forward-addr: 127.0.0.1@5302
remote-control:
    control-enable: no
dnstap:
    dnstap-enable: yes
    dnstap-bidirectional: yes
    dnstap-socket-path: tap.sock
    dnstap-log-client-query-messages: yes
    dnstap-log-client-response-messages: yes
    dnstap-log-forwarder-query-messages: yes
    dnstap-log-forwarder-response-messages: yes
"#;

/// Stand-ins for programs that the test cannot run, or that would change the machine.
const STAND_INS: [(&str, &str); 4] = [
    // The page's user is already root.
    ("sudo", "exec \"$@\""),
    // Reads packets as `wireshark -k -i -` does, without windows.
    ("wireshark", "exec tshark -l -r -"),
    ("replay", "exec python3 \"$TOOLS/replay.py\" net0 \"$@\""),
    ("origin", "exec python3 \"$TOOLS/origin.py\" \"$@\""),
];

/// See the module.
pub struct World {
    folder: PathBuf,
    /// Files of the test. The page's own directory must be empty at first.
    pub notes: PathBuf,
}

impl World {
    /// Creates the environment; the process is in its own namespaces.
    pub fn new(page: &Page, folder: PathBuf) -> World {
        for name in ["notes", "home", "bin", "page"] {
            std::fs::create_dir_all(folder.join(name)).expect("made");
        }
        // On a terminal curl prints only errors.
        std::fs::write(folder.join("home/.curlrc"), "silent\nshow-error\n").expect("written");
        let notes = folder.join("notes");
        let world = World { folder, notes };
        for (name, line) in STAND_INS {
            world.program(name, line);
        }
        let bin = world.folder.join("bin/larder");
        symlink(env!("CARGO_BIN_EXE_larder"), bin).expect("linked");
        symlink(lab(), world.folder.join("bin/larder-lab")).expect("linked");
        for (name, content) in FILES {
            std::fs::write(world.notes.join(name), content).expect("written");
        }
        std::fs::write(world.notes.join("example.pcap"), example()).expect("written");
        world.make(SPACES);
        world.make(NETWORK);
        let mut unbound = world.bash();
        unbound.args(["-c", "exec unbound -d -c unbound.conf"]).current_dir(&world.notes);
        // unbound ends with the process namespace.
        drop(unbound.stdin(Stdio::null()).spawn().expect("bash runs"));
        world.make("until dig +time=1 +tries=1 @9.9.9.9 example.com; do sleep 0.05; done");
        let mut before = world.bash();
        before.args(["-euo", "pipefail", "-c", page.before]).stdin(Stdio::null());
        let log = std::fs::File::create(world.notes.join("before")).expect("a file");
        before.stdout(log.try_clone().expect("a file")).stderr(log);
        let made = before.status().expect("bash runs").success();
        let log = std::fs::read_to_string(world.notes.join("before")).expect("a log");
        assert!(made, "{}: what the page starts from: {log}", page.file);
        world
    }

    fn program(&self, name: &str, line: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/bash\n{line}\n")).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("set");
    }

    fn make(&self, lines: &str) {
        let mut command = self.bash();
        command.args(["-euc", lines]).current_dir(&self.notes).stdin(Stdio::null());
        let run = Run::of(&mut command);
        assert_eq!(run.code, Some(0), "{run:?}");
    }

    /// The reader's shell, in the page's directory. Its path includes the programs of the test's
    /// environment.
    pub fn bash(&self) -> Command {
        let mut command = Command::new("bash");
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.folder.join("bin");
        let captures = root().join("tests/captures");
        let tools = root().join("crates/cli/tests/documentation");
        command.env_clear().current_dir(self.folder.join("page"));
        command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin:{path}", bin.display()));
        command.env("HOME", self.folder.join("home")).env("LANG", "C.UTF-8").env("TERM", "dumb");
        command.env("CAPTURES", captures).env("TOOLS", tools).env("NOTES", &self.notes);
        command
    }
}

/// `larder-lab`, in the same directory as the program. (`cargo test --workspace` builds both.)
pub fn lab() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_larder")).with_file_name("larder-lab")
}

/// A recording with a lookup of `www.example.com` and a flow to its address.
fn example() -> Vec<u8> {
    let mut capture = TestCapture::new();
    capture.dns_answer(&TestCapture::answer("www.example.com"));
    capture.flow_to([198, 51, 100, 7]);
    capture.bytes
}
