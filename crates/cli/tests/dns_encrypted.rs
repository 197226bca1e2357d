//! `larder dns` over TLS, HTTPS and QUIC as it is run: larder asks larder, other programs ask it, and a build without the
//! feature says so.
#![cfg(target_os = "linux")]

mod common;

/// A build without the feature names the setting, and what to build.
#[cfg(not(feature = "encrypted"))]
#[test]
fn a_build_without_it_says_so() {
    for line in [
        "--listen-tls 127.0.0.1:0",
        "--listen-quic 127.0.0.1:0",
        "--upstream tls://192.0.2.1",
        "--forward corp.example=https://192.0.2.1#dns.example",
    ] {
        let run = common::Scratch::new().run(&format!("dns --listen 127.0.0.1:0 {line}"));
        run.refused(&[line.split(' ').next().expect("a flag"), "--features encrypted"]);
    }
}

#[cfg(feature = "encrypted")]
mod whole {
    use std::io::{BufRead, BufReader};
    use std::net::{SocketAddr, UdpSocket};
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustix::process::{Pid, Signal, kill_process};

    use super::common::Scratch;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// An upstream that gives every name one address.
    fn upstream() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = socket.local_addr().expect("it is bound");
        // It ends with the process.
        std::thread::spawn(move || {
            let mut room = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut room) {
                let question = &room[..length];
                let end = 12 + question[12..].iter().position(|&octet| octet == 0).unwrap_or(0) + 5;
                let mut answer = question[..end].to_vec();
                answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
                answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\xc6\x33\x64\x07");
                let _ = socket.send_to(&answer, from);
            }
        });
        address
    }

    /// The server at work.
    struct Server {
        child: Child,
        lines: Receiver<String>,
        plain: SocketAddr,
    }

    impl Server {
        fn start(scratch: &Scratch, arguments: &[&str]) -> Server {
            let mut command = scratch.larder();
            command.args(["dns", "--listen", "127.0.0.1:0", "--cores", "2"]).args(arguments);
            let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
            let (say, lines) = channel();
            let pipe = BufReader::new(child.stderr.take().expect("piped"));
            std::thread::spawn(move || {
                for line in pipe.lines().map_while(Result::ok) {
                    let _ = say.send(line);
                }
            });
            let mut server = Server { child, lines, plain: SocketAddr::from(([0; 4], 0)) };
            let line = server.hear("answering at ");
            let word = line.split_whitespace().nth(4).expect("an address");
            server.plain = word.parse().expect("an address");
            server
        }

        /// Waits for a line with `text`.
        fn hear(&self, text: &str) -> String {
            loop {
                let line = self.lines.recv_timeout(PATIENCE);
                let line = line.unwrap_or_else(|_| panic!("{text:?} was not said"));
                if line.contains(text) {
                    return line;
                }
            }
        }

        /// Where it said that it answers by `what`.
        fn at(&self, what: &str) -> SocketAddr {
            let line = self.hear(what);
            let word = line.split_whitespace().last().expect("an address");
            let word = word.trim_start_matches("https://").trim_end_matches("/dns-query");
            word.parse().expect("an address")
        }

        /// The answer to a question for an address, over UDP.
        fn ask(&self, label: &str) -> Vec<u8> {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.set_read_timeout(Some(PATIENCE)).expect("a time");
            let mut question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
            question.push(label.len() as u8);
            question.extend(label.bytes());
            question.extend(b"\x07example\x03com\0\0\x01\0\x01");
            socket.send_to(&question, self.plain).expect("sent");
            let mut room = [0; 512];
            let length = socket.recv(&mut room).expect("an answer");
            room[..length].to_vec()
        }

        fn hang_up(&self) {
            let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            kill_process(id.expect("a process"), Signal::HUP).expect("it is told");
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn write_certificate(scratch: &Scratch) {
        let names = ["dns.example".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(names).expect("a certificate");
        std::fs::write(scratch.path("chain.pem"), cert.pem()).expect("written");
        std::fs::write(scratch.path("key.pem"), signing_key.serialize_pem()).expect("written");
    }

    const LISTEN: [&str; 10] = [
        "--listen-tls",
        "127.0.0.1:0",
        "--listen-https",
        "127.0.0.1:0",
        "--listen-quic",
        "127.0.0.1:0",
        "--tls-cert",
        "chain.pem",
        "--tls-key",
        "key.pem",
    ];

    /// larder asks larder over each transport, through both programs whole; a certificate that is replaced counts from the
    /// next connection on.
    #[test]
    fn larder_asks_larder() {
        let scratch = Scratch::new();
        write_certificate(&scratch);
        let upstream = upstream().to_string();
        let far = Server::start(&scratch, &[&LISTEN[..], &["--upstream", &upstream]].concat());
        let urls = [
            format!("tls://{}#dns.example", far.at("over TLS")),
            format!("https://{}/dns-query", far.at("over HTTPS")),
            format!("quic://{}#dns.example", far.at("over QUIC")),
        ];
        let near =
            |url: &str| Server::start(&scratch, &["--upstream", url, "--upstream-ca", "chain.pem"]);
        for (at, url) in urls.iter().enumerate() {
            let answer = near(url).ask(&format!("n{at}"));
            assert!(answer.ends_with(&[198, 51, 100, 7]), "{url}: {answer:?}");
        }
        write_certificate(&scratch);
        assert_eq!(
            near(&urls[0]).ask("other")[3] & 15,
            2,
            "the old certificate is not vouched for"
        );
        far.hang_up();
        far.hear("certificate loaded anew");
        assert!(near(&urls[0]).ask("renewed").ends_with(&[198, 51, 100, 7]));
    }

    /// kdig believes the certificate, and reads answers over TLS and HTTPS, padded as it pads.
    #[test]
    fn kdig_asks_larder() {
        if Command::new("kdig").arg("--version").output().is_err() {
            eprintln!("SKIP kdig_asks_larder: no kdig here");
            return;
        }
        let scratch = Scratch::new();
        write_certificate(&scratch);
        let upstream = upstream().to_string();
        let server = Server::start(&scratch, &[&LISTEN[..], &["--upstream", &upstream]].concat());
        let (tls, https) = (server.at("over TLS"), server.at("over HTTPS"));
        for (at, how) in
            [(tls, &["+tls"][..]), (https, &["+https"]), (https, &["+https", "+https-get"])]
        {
            let mut kdig = Command::new("kdig");
            kdig.args(["@127.0.0.1", "-p", &at.port().to_string()]).args(how);
            kdig.arg(format!("+tls-ca={}", scratch.path("chain.pem").display()));
            kdig.args(["+tls-hostname=dns.example", "www.example.com"]);
            let output = kdig.output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("198.51.100.7") && text.contains("Received 468 B"), "{text}");
        }
    }

    /// What is missing or wrong is said before anything is served.
    #[test]
    fn wrong_settings() {
        let scratch = Scratch::new();
        for (line, words) in [
            ("--listen-tls 127.0.0.1:0", &["--tls-cert FILE"][..]),
            ("--listen-tls 127.0.0.1:0 --tls-cert none.pem --tls-key none.pem", &["none.pem"]),
            ("--upstream https://dns.example/dns-query", &["not looked up"]),
            ("--upstream tls://192.0.2.1/x", &["only https://"]),
            ("--upstream tls://192.0.2.1 --upstream-ca none.pem", &["none.pem"]),
        ] {
            scratch.run(&format!("dns --listen 127.0.0.1:0 {line}")).refused(words);
        }
    }
}
