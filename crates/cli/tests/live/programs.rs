//! larder captures the traffic of other programs: unbound, nginx, dig, curl, a browser. tshark
//! reads the stored packets.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::process::Command;

use serde_json::Value;

use larder_testkit::process::{Program, Run};
use larder_testkit::skip::has;
use larder_testkit::wait::until;

use crate::world::{DNS, World};

const UNBOUND: &str = r#"server:
    interface: 10.77.0.53
    access-control: 10.77.0.0/16 allow
    chroot: ""
    username: ""
    pidfile: ""
    directory: "."
    do-daemonize: no
    use-syslog: no
    verbosity: 1
    local-zone: "." refuse
    local-zone: "lab.example." static
    local-data: "one.lab.example. 300 A 10.77.0.1"
    local-data: "two.lab.example. 300 A 10.77.0.1"
    local-data: "page.lab.example. 300 A 10.77.0.1"
    local-data: "image.lab.example. 300 A 10.77.0.3"
    local-data: "secret.lab.example. 300 A 10.77.0.3"
remote-control:
    control-enable: no
"#;

const NGINX: &str = r#"daemon off;
master_process off;
pid nginx.pid;
error_log stderr notice;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen 80;
        server_name page.lab.example;
        location = / {
            default_type text/html;
            return 200 "<html><body>page<img src='http://image.lab.example/image.svg'></body></html>";
        }
    }
    server {
        listen 80 default_server;
        location / { return 200 "$host\n"; }
        location = /film { root .; }
        location = /image.svg {
            default_type image/svg+xml;
            return 200 "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>";
        }
    }
    server {
        listen 443 ssl;
        server_name secret.lab.example;
        ssl_certificate certificate.pem;
        ssl_certificate_key key.pem;
        location / { return 200 "$host by TLS\n"; }
    }
}
"#;

/// unbound and nginx on the outer side of the environment.
fn servers(world: &World) -> [Program; 2] {
    let scratch = &world.scratch;
    scratch.write("unbound.conf", UNBOUND);
    scratch.write("nginx.conf", NGINX);
    let certificate = "req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=secret.lab.example -keyout key.pem -out certificate.pem";
    let run = Run::of(here(world, "openssl").args(certificate.split(' ')));
    assert_eq!(run.code, Some(0), "{run:?}");
    let mut unbound = Program::start(here(world, "unbound").args(["-d", "-c", "unbound.conf"]));
    unbound.wait_for("start of service");
    let folder = scratch.path("").display().to_string();
    let nginx = Program::start(here(world, "nginx").args([
        "-p",
        &folder,
        "-c",
        "nginx.conf",
        "-e",
        "stderr",
    ]));
    until("nginx", || TcpStream::connect("10.77.0.1:443").ok());
    [unbound, nginx]
}

/// A program on the outer side.
fn here(world: &World, program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(world.scratch.path(""));
    command
}

/// Runs a program on the client side, and returns its output.
fn inside(world: &World, program: &str, line: &str) -> String {
    let run = Run::of(world.inside(program).args(line.split(' ')));
    assert_eq!(run.code, Some(0), "{program} {line}: {run:?}");
    run.out
}

/// The source ports of the log's flows to a port, and the names of their destinations.
fn named(log: &[Value], port: u64) -> BTreeMap<u64, Option<String>> {
    let flows = log.iter().filter(|flow| flow["destination.port"] == port);
    let named = flows.map(|flow| {
        let source = flow["source.port"].as_u64().expect("a port");
        (source, flow["destination.domain"].as_str().map(str::to_owned))
    });
    named.collect()
}

/// dig, curl over HTTP and over TLS, two names of one address. In the log of a live capture each
/// flow has the name that its program requested. For that name larder find returns the packets of
/// these flows, no more and no fewer. tshark reads every segment and finds as many packets as
/// larder reports. larder's log of the segments equals the log that it wrote live, byte by byte.
/// (That excludes flows that end for idleness: live, they end by the clock, and in files by the
/// next packet.)
#[test]
fn real_programs() {
    const TEST: &str = "real_programs";
    let needed = ["unbound", "nginx", "openssl", "dig", "curl", "tshark", "capinfos"];
    if !needed.iter().all(|program| has(TEST, program)) {
        return;
    }
    let Some(world) = World::new(TEST) else { return };
    let _servers = servers(&world);
    let times = "--linger 10m --udp-idle 10m";
    let capture =
        world.capture(&format!("-w kept --store 64MiB --segment 64KiB --cores 2 -d made {times}"));

    let mut expected = BTreeMap::new();
    let mut expected_tls = BTreeMap::new();
    let curl = |line: &str| {
        let out = inside(&world, "curl", &format!("-sS -w \\n%{{local_port}} {line}"));
        let (body, port) = out.rsplit_once('\n').expect("a body and a port");
        (body.trim_end().to_owned(), port.parse::<u64>().expect("a port"))
    };
    for name in ["one", "two", "one", "two", "two", "one"] {
        let name = format!("{name}.lab.example");
        let (body, port) = curl(&format!("http://{name}/"));
        assert_eq!(body, name);
        expected.insert(port, Some(name));
    }
    for _ in 0..3 {
        let (body, port) = curl("-k https://secret.lab.example/");
        assert_eq!(body, "secret.lab.example by TLS");
        expected_tls.insert(port, Some("secret.lab.example".to_owned()));
    }
    // Enough packets for several segments.
    let film = vec![b'f'; 300 << 10];
    world.scratch.write("film", &film);
    let (body, port) = curl("http://one.lab.example/film");
    assert!(body.as_bytes() == film);
    expected.insert(port, Some("one.lab.example".to_owned()));
    // A lookup by dig names the flow of a program that uses only the address.
    let digged = inside(&world, "dig", "+short -b 10.77.0.2#40053 image.lab.example");
    assert_eq!(digged.trim(), "10.77.0.3");
    let (_, port) = curl("http://10.77.0.3/");
    expected.insert(port, Some("image.lab.example".to_owned()));

    let (code, said) = capture.stop();
    assert_eq!(code, Some(0), "{said}");
    let log = world.log();
    assert_eq!(named(&log, 80), expected);
    assert_eq!(named(&log, 443), expected_tls);
    assert!(named(&log, 53).contains_key(&40053), "{log:?}");

    let packets: u64 = world.segments("kept").iter().map(|path| read_by_others(path)).sum();
    let stats = std::fs::read_to_string(world.scratch.path("made/stats.json")).expect("written");
    let stats: Value = serde_json::from_str(&stats).expect("JSON");
    assert_eq!((&stats["packets"], &stats["kept"]["packets"]), (&packets.into(), &packets.into()));
    let counted: u64 =
        log.iter().map(|flow| flow["network.packets"].as_u64().expect("a count")).sum();
    // ARP packets are in no flow.
    assert!(packets >= counted && counted > 100, "{packets} {counted}");
    assert!(world.segments("kept").len() > 1, "the capture is one segment alone");

    for name in ["one", "two", "secret", "image"].map(|name| format!("{name}.lab.example")) {
        let flows = log.iter().filter(|flow| flow["destination.domain"] == name.as_str());
        let of_flows: u64 =
            flows.map(|flow| flow["network.packets"].as_u64().expect("a count")).sum();
        let run = world.scratch.run(&format!("find --dir kept {name} -w found.pcapng"));
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!(read_by_others(&world.scratch.path("found.pcapng")), of_flows, "{name}");
    }

    let mut replay = world.scratch.larder();
    replay.args(["annotate", "--quiet", "--format", "ecs"]).args(times.split(' '));
    replay.arg("-r").args(world.segments("kept"));
    let replay = Run::of(&mut replay);
    let live = std::fs::read_to_string(world.scratch.path("log")).expect("a log");
    assert_eq!(replay.code, Some(0), "{replay:?}");
    assert_eq!(replay.out, live);
}

/// The number of packets in a segment; tshark and capinfos must accept it, and count the same.
fn read_by_others(path: &std::path::Path) -> u64 {
    let tshark = Run::of(Command::new("tshark").args(["-n", "-r"]).arg(path).args([
        "-T",
        "fields",
        "-e",
        "frame.number",
    ]));
    assert_eq!(tshark.code, Some(0), "{tshark:?}");
    let packets = tshark.out.lines().count();
    let capinfos = Run::of(Command::new("capinfos").args(["-Mc"]).arg(path));
    assert_eq!(capinfos.code, Some(0), "{capinfos:?}");
    let line =
        capinfos.out.lines().find(|line| line.starts_with("Number of packets")).expect("told");
    assert_eq!(line.split_whitespace().last(), Some(packets.to_string().as_str()), "{capinfos:?}");
    packets as u64
}

/// A browser loads a page with an image of another server. The flows to both servers have the names
/// that the page uses.
#[test]
fn a_page_in_a_browser() {
    const TEST: &str = "a_page_in_a_browser";
    if !["unbound", "nginx", "openssl", "chromium"].iter().all(|program| has(TEST, program)) {
        return;
    }
    let Some(world) = World::new(TEST) else { return };
    let _servers = servers(&world);
    let capture = world.capture("");
    let profile = world.scratch.path("profile").display().to_string();
    let page = inside(
        &world,
        "chromium",
        &format!(
            "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir={profile} --timeout=20000 --dump-dom http://page.lab.example/"
        ),
    );
    assert!(page.contains("page<img"), "{page}");
    let (code, said) = capture.stop();
    assert_eq!(code, Some(0), "{said}");
    let log = world.log();
    for (address, name) in [("10.77.0.1", "page.lab.example"), ("10.77.0.3", "image.lab.example")] {
        let flows: Vec<&Value> = log
            .iter()
            .filter(|flow| flow["destination.ip"] == address && flow["destination.port"] == 80)
            .collect();
        assert!(!flows.is_empty(), "no flow to {address}, asked of {DNS}: {log:?}");
        assert!(flows.iter().all(|flow| flow["destination.domain"] == name), "{flows:?}");
    }
}
