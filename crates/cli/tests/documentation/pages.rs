//! The pages, and the exceptions and preparations of each.

/// An exception or a preparation for commands that begin with this text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Note {
    /// The test does not run it, for this reason.
    NotRun(&'static str),
    /// It needs this feature of the build.
    Feature(&'static str),
    /// It ends with this status, which is neither 0 nor the one of the error shown.
    Ends(i32),
    /// It does not end by itself; it is running when it logs this.
    Server(&'static str),
    /// Numbers in its output depend on the machine, the time or the input.
    Figures,
    /// The last word of a line is a time.
    Timed,
    /// The page shows only some lines of its output.
    Excerpt,
    /// A server next to which the previous server keeps running.
    Beside,
    /// The reader or other programs do this before, as the page describes it.
    First(&'static str),
    /// The reader or other programs do this while the server is running.
    Then(&'static str),
}

impl Note {
    /// True if this build does not run the command.
    pub fn prevents(self) -> bool {
        match self {
            Note::NotRun(_) => true,
            Note::Feature("encrypted") => !cfg!(feature = "encrypted"),
            Note::Feature("recurse") => !cfg!(feature = "recurse"),
            Note::Feature("xdp") => !cfg!(feature = "xdp"),
            Note::Feature(name) => panic!("no feature '{name}' is known here"),
            _ => false,
        }
    }
}

/// A page.
pub struct Page {
    /// Its path in the repository.
    pub file: &'static str,
    /// Lines of bash that create what the page assumes. `$CAPTURES` has the recordings of the
    /// repository, `$NOTES` a recording with www.example.com, and logs of other programs.
    pub before: &'static str,
    pub notes: &'static [(&'static str, &'static [Note])],
}

use Note::{Beside, Ends, Excerpt, Feature, Figures, First, NotRun, Server, Then, Timed};

const IN_CI: &[Note] = &[NotRun("builds larder anew: .ci/run runs this line")];
const BUILDS: &[Note] = &[NotRun("builds larder anew: .ci/run builds with all features")];
const ENCRYPTED: &[Note] = &[Feature("encrypted")];
const BROWSER: &[Note] = &[NotRun("a browser is too much for one page")];

/// Waits until packets of the name are stored. Replays again and again, since packets from before
/// the capture have no name.
const FOUND: &str = "
    replay $NOTES/example.pcap &
    until larder find --dir /var/lib/larder '*.example.com' | grep -q 192.0.2.1; do sleep 0.1; done";

/// One origin fails, recovers, disappears, and returns; then the other hangs.
const ILL: &[Note] = &[
    Then(
        "up() { until larder ctl stats --socket ctl | grep -q origin_up.127.0.0.1:$1' *'$2; do sleep 0.1; done; }",
    ),
    Then("echo 500 > $NOTES/health-9101; up 9101 0"),
    Then("rm $NOTES/health-9101; up 9101 1"),
    Then("kill $(cat $NOTES/9101); up 9101 0"),
    Then("(origin 9101 &); up 9101 1"),
    Then("echo slow > $NOTES/health-9102; up 9102 0"),
];

const TWO_ORIGINS: &str =
    r#"printf '[http]\norigin = "http://127.0.0.1:9101,http://127.0.0.1:9102"\n' > larder.toml"#;

/// Lines are written with a delay.
const TWO_LINES: &str = "
    curl http://127.0.0.1:8080/kept http://127.0.0.1:8080/kept
    until [ $(wc -l < access.log) = 2 ]; do sleep 0.1; done";

/// larder reports lost lines within one second.
const LOST: &str = "
    curl http://127.0.0.1:8080/kept
    until larder ctl stats --socket ctl | grep -q 'log_lines_lost *[1-9]'; do sleep 0.1; done
    sleep 2";

/// Queries of a comparison, until it has once logged its progress.
const REPEATED_QUERIES: &str =
    "for i in {1..13}; do dig @127.0.0.1 -p 5301 n7.example n$i.example; sleep 1; done";

/// Replays until the open segment has packets.
const GROWS: &str = "
    replay $NOTES/example.pcap &
    until curl http://127.0.0.1:8053/ | grep -q grows; do sleep 0.1; done";

/// One response in a hundred is logged.
const QUERIES: &str = "
    until [ -s /var/log/larder/queries ]; do dig -b 10.0.0.1 @127.0.0.1 $(yes www.example.com | head -50); done";

/// The upstream that does not prove its name.
const OTHER: &str = "
    larder dns --listen 127.0.0.1:5391 --upstream 9.9.9.9 --tls-cert chain.pem --tls-key key.pem --listen-tls 127.0.0.1:8853 &
    until kdig @127.0.0.1 -p 8853 +tls example.com; do sleep 0.1; done";

/// A `$` or `#` line without a row is run, must end with 0, and must write the output shown, if
/// any.
pub const PAGES: &[Page] = &[
    Page {
        file: "README.md",
        before: "
            larder annotate -r $CAPTURES/r1-as-asked.pcap -w trace.pcapng -o log
            cp $CAPTURES/r2-pair.pcap monday.pcap
            gzip -c $CAPTURES/r3-newer.pcap > tuesday.pcap.gz
            cp $CAPTURES/quic-v1.pcap some.pcap
            gzip -c $NOTES/dns.log > dns.log.gz
            origin 9000 &
            until curl http://127.0.0.1:9000/; do sleep 0.1; done",
        notes: &[
            ("cargo run --release -- demo", IN_CI),
            ("cargo test --workspace", IN_CI),
            (
                "cargo install --locked --path crates/cli",
                &[NotRun("builds larder anew; the built program is on the path")],
            ),
            ("larder find", &[First(FOUND)]),
            // The line before generates a file of the default size, which takes minutes to measure.
            (
                "larder-lab bench annotate",
                &[First("larder-lab gen capture -r some.pcap -o big.pcap --size 4MiB")],
            ),
        ],
    },
    Page {
        file: "docs/README.md",
        before: "
            larder annotate -r $CAPTURES/r1-as-asked.pcap -w trace.pcapng -o log
            origin 9000 &
            until curl http://127.0.0.1:9000/; do sleep 0.1; done",
        notes: &[
            (
                "cargo install --locked --path crates/cli",
                &[NotRun("builds larder anew; the built program is on the path")],
            ),
            ("larder find", &[First(FOUND)]),
            ("cargo run -p larder --example embed", &[NotRun("builds larder anew")]),
            ("bash .ci/run", &[NotRun("runs this test among all others")]),
        ],
    },
    Page {
        file: "docs/guide/annotate.md",
        before: "
            larder annotate -r $CAPTURES/r1-as-asked.pcap -w trace.pcapng -o log
            mkdir monday tuesday
            gzip -c $CAPTURES/r2-pair.pcap > monday/1.pcap.gz
            gzip -c $CAPTURES/r3-newer.pcap > tuesday/1.pcap.gz
            cp $CAPTURES/r1-as-asked.pcap trace.pcap
            cp $CAPTURES/r2-pair.pcap morning.pcap
            cp $CAPTURES/r3-newer.pcap noon.pcap
            cp $CAPTURES/r2-pair.pcap resolver.pcap
            cp $CAPTURES/r7-late.pcap border.pcap
            cp $CAPTURES/r2-pair.pcap day.pcap
            cp $CAPTURES/dnstap-unbound.fstrm resolver.dnstap
            cp $CAPTURES/quic-v1.pcap some.pcap
            cp $CAPTURES/r1-as-asked.pcap dns.pcap
            cp $CAPTURES/../exports/r1-as-asked.ipfix.pcap exports.pcap
            cp $NOTES/dns.log $NOTES/ssl.log $NOTES/eve.json .
            replay $NOTES/example.pcap &",
        notes: &[
            ("tshark", &[Excerpt]),
            ("larder-lab gen capture", &[NotRun("1,500 MiB: README's line makes them")]),
            (
                "larder-lab bench annotate",
                &[First("larder-lab gen capture -r some.pcap -o big.pcap --size 4MiB")],
            ),
        ],
    },
    Page {
        file: "docs/guide/fields.md",
        before: "cp $CAPTURES/r2-pair.pcap office.pcap",
        notes: &[],
    },
    Page {
        file: "docs/guide/dns-encrypted.md",
        before: "
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 \\
                -nodes -keyout corp.key -out corp.pem -subj /CN=corp.example",
        notes: &[
            ("cargo build", BUILDS),
            ("larder dns", &[Feature("encrypted")]),
            ("kdig", &[Feature("encrypted"), Figures]),
            (
                "larder dns --upstream 'tls://127.0.0.1:8853#other.example'",
                &[First(OTHER), Then("dig +time=1 +tries=1 @127.0.0.1 example.com || true")],
            ),
        ],
    },
    Page {
        file: "docs/guide/dns-recursion.md",
        before: "",
        notes: &[("cargo build", BUILDS), ("larder dns --recurse --listen", &[Feature("recurse")])],
    },
    Page {
        file: "docs/guide/dns-rules.md",
        before: "",
        notes: &[("cargo test", &[NotRun("a test of the workspace, which README's line runs")])],
    },
    Page {
        file: "docs/guide/dns-shadow.md",
        before: "
            unbound -d -c $NOTES/upstream.conf &
            unbound -d -c $NOTES/resolver.conf &",
        notes: &[
            ("larder dns --shadow 127.0.0.1:5301", &[Figures, Then(REPEATED_QUERIES)]),
            (
                "tcpdump",
                &[Server("dns: comparison started "), Then("dig @9.9.9.9 example.com; sleep 1")],
            ),
        ],
    },
    Page {
        file: "docs/guide/dns-xdp.md",
        before: "",
        notes: &[("cargo build", BUILDS), ("sudo larder dns", &[Feature("xdp")])],
    },
    Page {
        file: "docs/guide/dns.md",
        before: "",
        notes: &[
            ("tail -1 /var/log/larder/queries", &[Figures, First(QUERIES)]),
            ("larder dns --config", &[First("touch larder.toml")]),
            ("sudo larder dns --listen 127.0.0.1:53", &[Figures]),
            ("dig www", &[Figures, Excerpt, First("echo nameserver 127.0.0.1 > /etc/resolv.conf")]),
            ("kdig", &[Figures, Excerpt]),
            ("dnsperf", &[Figures, Excerpt, First("seq -f '%g.test.example A' 1000 > names")]),
        ],
    },
    Page {
        file: "docs/guide/cache-c-go.md",
        before: "",
        notes: &[
            ("bindings/c/install", &[NotRun("builds the library: bindings/check does")]),
            ("cc names.c", &[NotRun("needs the library: bindings/check compiles and runs it")]),
        ],
    },
    Page {
        file: "docs/guide/python.md",
        before: "",
        notes: &[(
            "bindings/python/install",
            &[NotRun("builds the package: bindings/check does, and runs the page's Python")],
        )],
    },
    Page { file: "docs/guide/http-from.md", before: "", notes: &[] },
    Page {
        file: "docs/guide/http.md",
        before: "
            for port in 9000 9101 9102; do
                origin $port & echo $! > $NOTES/$port
                until curl http://127.0.0.1:$port/; do sleep 0.1; done
            done",
        notes: &[
            ("curl -i http://127.0.0.1:8080/a", &[Figures, First("curl http://127.0.0.1:8080/a")]),
            ("curl -si http://127.0.0.1:8080/none", &[Figures]),
            ("kill %1", &[Figures]),
            ("cat larder.toml", &[First(TWO_ORIGINS)]),
            ("larder http --origin http://127.0.0.1:9101,http://127.0.0.1:9102", ILL),
            // Undoes the error in the file.
            (
                "larder http --origin http://127.0.0.1:9101 --access-log access.log",
                &[First("rm larder.toml")],
            ),
            ("tail -2 access.log", &[Figures, First(TWO_LINES)]),
            ("larder ctl stats --socket ctl | grep log_", &[Figures, First(LOST)]),
            (
                "larder http --origin http://127.0.0.1:9101 --snapshot",
                &[
                    Figures,
                    Then("for path in kept a kept a; do curl http://127.0.0.1:8080/$path; done"),
                ],
            ),
            ("curl -si http://127.0.0.1:8080/kept", &[Figures]),
            ("larder http --listen 127.0.0.1:8080 --listen-tls", ENCRYPTED),
            // Whether a miss has an age of 0 depends on whether its body came with its headers.
            ("curl -i --cacert", &[Feature("encrypted"), Figures, Excerpt]),
            ("curl -i --http1.1", &[Feature("encrypted"), Figures]),
            ("h2load -n", ENCRYPTED),
            ("h2load --h1 -n 100", ENCRYPTED),
            ("curl -sS", ENCRYPTED),
            ("larder http --listen 127.0.0.1:8081", &[Feature("encrypted"), Beside]),
            ("curl http://127.0.0.1:8081", ENCRYPTED),
            ("wrk", &[Figures, Excerpt]),
            ("h2load", &[Figures, Excerpt]),
            ("chromium", BROWSER),
        ],
    },
    Page {
        file: "docs/guide/logs.md",
        before: "
            origin 9000 &
            until curl http://127.0.0.1:9000/; do sleep 0.1; done",
        notes: &[],
    },
    Page {
        file: "docs/guide/live.md",
        before: "
            ip link add eth1 type veth peer name net1
            ip link set eth1 up
            ip link set net1 up
            cp $CAPTURES/r1-as-asked.pcap .
            echo secret > token
            cp token /etc/larder/token
            cp /bin/true /etc/larder/upload",
        notes: &[
            ("larder find --dir", &[First(FOUND)]),
            ("larder find -d pk www", &[Figures]),
            ("larder find -d pk '*", &[Excerpt]),
            (
                "larder annotate -i eth0 -w /var/lib/larder --store 50GiB --serve",
                &[First("rm -rf /var/lib/larder/*")],
            ),
            ("curl -s http", &[Figures, First(GROWS)]),
            ("curl -sN", &[Server("UDP"), Beside]),
            ("larder top", &[NotRun("draws on a terminal until it is told to end")]),
        ],
    },
    Page { file: "docs/guide/monitoring.md", before: "", notes: &[] },
    Page {
        file: "docs/guide/model.md",
        before: r"
            {
                cat $NOTES/dns.log
                for i in {1..2000}; do
                    printf '%d.0\t192.0.2.1\t4000\t192.0.2.53\t53\tudp\t-\tn%d.example\t1\t0\t203.0.113.1\t60.0\n' \
                        $((1793527200 + i)) $((i * i % 397))
                done
            } | gzip > dns.log.gz",
        notes: &[
            ("larder-lab model --trace", &[Figures]),
            (
                "larder-lab model --measure",
                &[NotRun("takes dnsdist, and half a minute; tests/model.rs has a shorter one")],
            ),
        ],
    },
    Page {
        file: "docs/guide/sim.md",
        before: "
            printf '0 1 10\\n1 2\\n2 5 big\\n3 1 10\\n' > odd.trace
            for i in {1..300}; do echo $((i * i % 97)) 3 0 $i; done | gzip > arc-OLTP.lis.zst",
        notes: &[
            ("larder-lab sim hit-ratio --trace zipf:0.9 ", &[Timed]),
            (
                "larder-lab sim hit-ratio --trace zipf:0.9:2000000",
                &[NotRun("takes minutes in a build for tests")],
            ),
            ("larder-lab sim hit-ratio --trace arc", &[Figures]),
            ("larder-lab sim hit-ratio --trace odd", &[Ends(1)]),
            ("cargo bench", &[NotRun("builds larder anew, optimised")]),
        ],
    },
];
