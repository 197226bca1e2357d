//! `larder dns` over TLS, HTTPS and QUIC: larder queries larder, other programs query it. A build
//! without the feature reports that.
#![cfg(target_os = "linux")]

mod common;

/// A build without the feature names the setting, and the feature to build with.
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
    use std::net::SocketAddr;
    use std::process::Command;

    use larder_testkit::process::value;
    use larder_testkit::skip::skip;
    use larder_testkit::{dns, tls};

    use super::common::Scratch;
    use super::common::server::Server;

    /// The address in a server's log line with `what`.
    fn at(server: &mut Server, what: &str) -> SocketAddr {
        let line = server.wait_for(what);
        let word =
            value(&line, "address").trim_start_matches("https://").trim_end_matches("/dns-query");
        word.parse().expect("an address")
    }

    fn write_certificate(scratch: &Scratch) {
        tls::write_certificate(&scratch.path(""), "dns.example");
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

    /// larder queries larder over each transport, through both complete programs. A replaced
    /// certificate applies from the next connection on.
    #[test]
    fn larder_queries_larder() {
        let scratch = Scratch::new();
        write_certificate(&scratch);
        let upstream = dns::Server::of_address([198, 51, 100, 7]);
        let upstream_at = upstream.address.to_string();
        let mut far =
            Server::start(&scratch, [&LISTEN[..], &["--upstream", &upstream_at]].concat());
        let urls = [
            format!("tls://{}#dns.example", at(&mut far, "transport=tls")),
            format!("https://{}/dns-query", at(&mut far, "transport=https")),
            format!("quic://{}#dns.example", at(&mut far, "transport=quic")),
        ];
        let near =
            |url: &str| Server::start(&scratch, ["--upstream", url, "--upstream-ca", "chain.pem"]);
        for (at, url) in urls.iter().enumerate() {
            let answer = near(url).query(&format!("n{at}"));
            assert!(answer.ends_with(&[198, 51, 100, 7]), "{url}: {answer:?}");
        }
        write_certificate(&scratch);
        assert_eq!(
            near(&urls[0]).query("other")[3] & 15,
            2,
            "the old certificate is not vouched for"
        );
        far.signal("-HUP");
        far.wait_for("certificate reloaded");
        assert!(near(&urls[0]).query("renewed").ends_with(&[198, 51, 100, 7]));
    }

    /// kdig trusts the certificate, and reads responses over TLS and HTTPS, padded because it pads.
    #[test]
    fn kdig_queries_larder() {
        if Command::new("kdig").arg("--version").output().is_err() {
            return skip("kdig_queries_larder", "no kdig here");
        }
        let scratch = Scratch::new();
        write_certificate(&scratch);
        let upstream = dns::Server::of_address([198, 51, 100, 7]);
        let upstream_at = upstream.address.to_string();
        let mut server =
            Server::start(&scratch, [&LISTEN[..], &["--upstream", &upstream_at]].concat());
        let (tls, https) = (at(&mut server, "transport=tls"), at(&mut server, "transport=https"));
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

    /// Missing or invalid settings are reported before larder serves.
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
