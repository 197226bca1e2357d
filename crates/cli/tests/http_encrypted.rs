//! `larder http` over TLS as it is run: larder asks larder, curl asks by HTTP/2, and a build without the feature says so.
#![cfg(target_os = "linux")]

mod common;

/// A build without the feature names the setting, and what to build.
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
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::process::Command;

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::common::Scratch;
    use super::common::server::{PATIENCE, Server};

    /// An origin that answers each request with the scheme that it is told of.
    fn origin() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("it is bound");
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || answer_all(stream));
            }
        });
        address
    }

    fn answer_all(stream: TcpStream) {
        let mut writer = stream.try_clone().expect("a descriptor");
        let mut scheme = String::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(word) = line.strip_prefix("X-Forwarded-Proto: ") {
                word.clone_into(&mut scheme);
            }
            if line.is_empty() {
                let length = scheme.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{scheme}");
                if writer.write_all(head.as_bytes()).is_err() {
                    return;
                }
            }
        }
    }

    fn write_certificate(scratch: &Scratch) {
        let names = ["http.example".to_owned(), "127.0.0.1".to_owned()];
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(names).expect("a certificate");
        std::fs::write(scratch.path("chain.pem"), cert.pem()).expect("written");
        std::fs::write(scratch.path("key.pem"), signing_key.serialize_pem()).expect("written");
    }

    fn serve(scratch: &Scratch, line: &str) -> Server {
        let mut command = scratch.larder();
        command.args(["http", "--listen", "127.0.0.1:0"]).args(line.split_whitespace());
        Server::spawn_http(&mut command)
    }

    const LISTEN: &str = "--listen-tls 127.0.0.1:0 --tls-cert chain.pem --tls-key key.pem";

    /// Where a server said that it serves over TLS.
    fn url(server: &mut Server) -> String {
        let line = server.hear("over TLS");
        line.split_whitespace().last().expect("a URL").to_owned()
    }

    fn ask(server: &Server) -> String {
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// larder asks larder over TLS, through both programs whole; a certificate that is replaced counts from the next connection on.
    #[test]
    fn larder_asks_larder() {
        let scratch = Scratch::new();
        write_certificate(&scratch);
        let mut far = serve(&scratch, &format!("{LISTEN} --origin http://{}", origin()));
        let near = format!("--origin-ca chain.pem --origin {}", url(&mut far));
        let before = serve(&scratch, &near);
        assert!(ask(&before).ends_with("\r\n\r\nhttps"));
        write_certificate(&scratch);
        let other = serve(&scratch, &near);
        assert!(ask(&other).starts_with("HTTP/1.1 502 "), "the old one is not vouched for");
        far.signal("-HUP");
        far.hear("certificate loaded anew");
        let renewed = serve(&scratch, &near);
        assert!(ask(&renewed).ends_with("\r\n\r\nhttps"));
        far.signal("-TERM");
        let (code, said) = far.end();
        assert_eq!(code, Some(0), "{said}");
    }

    /// A slip in the settings keeps no certificate from being read anew, whoever asks for it, and `larder ctl reload` tells of both.
    #[test]
    fn certificates_beside_a_slip() {
        let scratch = Scratch::new();
        write_certificate(&scratch);
        scratch.write("larder.toml", "");
        let line = format!("{LISTEN} --ctl ctl --origin http://{}", origin());
        let mut server = serve(&scratch, &line);
        let url = url(&mut server);
        write_certificate(&scratch);
        scratch.write("larder.toml", "[http]\norigins = 'a'");
        let said = ["certificate loaded anew; settings stay as they were", "did you mean 'origin'"];
        scratch.run("ctl reload --socket ctl").refused(&said);
        server.signal("-HUP");
        server.hear("certificate loaded anew");
        server.hear("settings stay as they were");
        std::fs::write(scratch.path("key.pem"), "").expect("written");
        scratch.run("ctl reload --socket ctl").refused(&["the certificate stays", said[1]]);
        scratch.write("larder.toml", "");
        let run = scratch.run("ctl reload --socket ctl");
        assert_eq!(run.code, Some(0));
        assert!(run.out.contains("the certificate stays"), "{}", run.out);
        // It is what came first, and is believed.
        let near = format!("--origin-ca chain.pem --origin {url}");
        assert!(ask(&serve(&scratch, &near)).ends_with("\r\n\r\nhttps"));
    }

    /// curl believes the certificate and asks by HTTP/2, and by HTTP/1.1 where it is told to; the log knows one from the other.
    #[test]
    fn curl_asks_larder() {
        let version = Command::new("curl").arg("--version").output();
        if !version.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("HTTP2")) {
            eprintln!("SKIP curl_asks_larder: no curl with HTTP/2 here");
            return;
        }
        let scratch = Scratch::new();
        write_certificate(&scratch);
        let line = format!("{LISTEN} --access-log log --origin http://{}", origin());
        let mut server = serve(&scratch, &line);
        let url = url(&mut server);
        for (how, says) in [("--http2", "https 2"), ("--http1.1", "https 1.1")] {
            let mut curl = Command::new("curl");
            curl.args(["-s", how, "-w", " %{http_version}", "--cacert"]);
            curl.arg(scratch.path("chain.pem")).arg(&url);
            let output = curl.output().expect("it runs");
            assert_eq!(String::from_utf8_lossy(&output.stdout), says);
        }
        server.signal("-TERM");
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{said}");
        let log = std::fs::read_to_string(scratch.path("log")).expect("the log");
        assert!(log.contains("\"GET / HTTP/2.0\" 200 5"), "{log}");
        assert!(log.contains("\"GET / HTTP/1.1\" 200 5"), "{log}");
    }

    /// What is missing or wrong is said before anything is served.
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
