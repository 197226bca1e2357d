//! `larder http` over TLS: larder requests from larder, curl uses HTTP/2. A build without the
//! feature reports that.
#![cfg(target_os = "linux")]

mod common;

/// A build without the feature names the setting, and the feature to build with.
#[cfg(not(feature = "encrypted"))]
#[test]
fn a_build_without_it_says_so() {
    for line in
        ["--listen-tls 127.0.0.1:0 --origin http://127.0.0.1:9", "--origin https://127.0.0.1:9"]
    {
        let run = common::Scratch::new().run(&format!("http --listen 127.0.0.1:0 {line}"));
        run.refused(&[line.split(' ').next().expect("a flag"), "--features encrypted"]);
    }
}

#[cfg(feature = "encrypted")]
mod whole {
    use std::process::Command;

    use larder_testkit::http::{Origin, answer, fetch};
    use larder_testkit::process::value;
    use larder_testkit::skip::skip;
    use larder_testkit::tls;

    use super::common::Scratch;
    use super::common::server::Server;

    /// An origin whose response body is the scheme in X-Forwarded-Proto.
    fn origin() -> Origin {
        let origin = Origin::new();
        origin.answers_by(|head| {
            answer("200 OK", &[], head.field("x-forwarded-proto").unwrap_or_default())
        });
        origin
    }

    fn write_certificate(scratch: &Scratch) {
        tls::write_certificate(&scratch.path(""), "http.example");
    }

    fn serve(scratch: &Scratch, line: &str) -> Server {
        let mut command = scratch.larder();
        command.args(["http", "--listen", "127.0.0.1:0"]).args(line.split_whitespace());
        Server::spawn(&mut command)
    }

    const LISTEN: &str = "--listen-tls 127.0.0.1:0 --tls-cert chain.pem --tls-key key.pem";

    /// The URL in a server's log line for HTTPS.
    fn url(server: &mut Server) -> String {
        value(&server.wait_for("transport=https"), "address").to_owned()
    }

    fn request(server: &Server) -> (u16, String) {
        let response = fetch(server.address, "/");
        (response.status(), response.text().to_owned())
    }

    /// larder requests from larder over TLS, through both complete programs. A replaced certificate
    /// applies from the next connection on.
    #[test]
    fn larder_fetches_from_larder() {
        let scratch = Scratch::new();
        write_certificate(&scratch);
        let origin = origin();
        let mut far = serve(&scratch, &format!("{LISTEN} --origin http://{}", origin.address));
        let near = format!("--origin-ca chain.pem --origin {}", url(&mut far));
        let before = serve(&scratch, &near);
        assert_eq!(request(&before), (200, "https".to_owned()));
        write_certificate(&scratch);
        let other = serve(&scratch, &near);
        assert_eq!(request(&other).0, 502, "the old one is not vouched for");
        far.signal("-HUP");
        far.wait_for("certificate reloaded");
        let renewed = serve(&scratch, &near);
        assert_eq!(request(&renewed), (200, "https".to_owned()));
        let (code, said) = far.stop();
        assert_eq!(code, Some(0), "{said}");
    }

    /// An error in the settings does not prevent the reload of a certificate, by ctl or by SIGHUP.
    /// `larder ctl reload` reports both.
    #[test]
    fn certificates_beside_a_slip() {
        let scratch = Scratch::new();
        write_certificate(&scratch);
        scratch.write("larder.toml", "");
        let origin = origin();
        let line = format!("{LISTEN} --ctl ctl --origin http://{}", origin.address);
        let mut server = serve(&scratch, &line);
        let url = url(&mut server);
        write_certificate(&scratch);
        scratch.write("larder.toml", "[http]\norigins = 'a'");
        let said = ["certificate reloaded", "did you mean 'origin'"];
        scratch.run("ctl reload --socket ctl").refused(&said);
        server.signal("-HUP");
        let line = server.wait_for("reload failed");
        assert!(line.contains("certificate reloaded"), "{line}");
        std::fs::write(scratch.path("key.pem"), "").expect("written");
        scratch.run("ctl reload --socket ctl").refused(&["certificate unchanged", said[1]]);
        scratch.write("larder.toml", "");
        let run = scratch.run("ctl reload --socket ctl");
        assert_eq!(run.code, Some(0));
        assert!(run.out.contains("certificate unchanged"), "{}", run.out);
        // The server presents the certificate that it loaded last, and the client trusts it.
        let near = format!("--origin-ca chain.pem --origin {url}");
        assert_eq!(request(&serve(&scratch, &near)), (200, "https".to_owned()));
    }

    /// curl trusts the certificate and uses HTTP/2, or HTTP/1.1 with a flag; the log shows the
    /// version.
    #[test]
    fn curl_fetches_from_larder() {
        let version = Command::new("curl").arg("--version").output();
        if !version.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("HTTP2")) {
            return skip("curl_fetches_from_larder", "no curl with HTTP/2 here");
        }
        let scratch = Scratch::new();
        write_certificate(&scratch);
        let origin = origin();
        let line = format!("{LISTEN} --access-log log --origin http://{}", origin.address);
        let mut server = serve(&scratch, &line);
        let url = url(&mut server);
        for (how, says) in [("--http2", "https 2"), ("--http1.1", "https 1.1")] {
            let mut curl = Command::new("curl");
            curl.args(["-s", how, "-w", " %{http_version}", "--cacert"]);
            curl.arg(scratch.path("chain.pem")).arg(&url);
            let output = curl.output().expect("it runs");
            assert_eq!(String::from_utf8_lossy(&output.stdout), says);
        }
        let (code, said) = server.stop();
        assert_eq!(code, Some(0), "{said}");
        let log = std::fs::read_to_string(scratch.path("log")).expect("the log");
        assert!(log.contains("\"GET / HTTP/2.0\" 200 5"), "{log}");
        assert!(log.contains("\"GET / HTTP/1.1\" 200 5"), "{log}");
    }

    /// Missing or invalid settings are reported before larder serves.
    #[test]
    fn wrong_settings() {
        let scratch = Scratch::new();
        std::fs::write(scratch.path("empty.pem"), "").expect("written");
        for (line, words) in [
            ("--listen-tls 127.0.0.1:0 --origin http://127.0.0.1:9", "--tls-cert FILE"),
            (
                "--listen-tls 127.0.0.1:0 --tls-cert empty.pem --tls-key empty.pem --origin http://127.0.0.1:9",
                "there is no certificate in PEM",
            ),
            (
                "--origin https://127.0.0.1:9 --origin-ca empty.pem",
                "there is no certificate in PEM",
            ),
        ] {
            scratch.run(&format!("http --listen 127.0.0.1:0 {line}")).refused(&[words]);
        }
    }
}
