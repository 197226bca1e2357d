//! Checks whether origins respond. The supervisor's loop requests a path from each origin at an
//! interval, over a separate connection.
//!
//! ```text
//! rests -> connects -> asks -> reads headers -> judged -> rests
//!          any: its time is over, an error                judged: failed
//! ```
//!
//! As in Varnish, the last [`WINDOW`] checks count. An origin is up while [`THRESHOLD`] of them
//! succeeded. A check succeeds if a status from 200 to 299 comes within [`CHECK_MS`]. At the start
//! the last [`THRESHOLD`] count as succeeded. Event loops read the result in
//! [`crate::health::Health`].
//!
//! Bounds: one connection an origin, and the bytes of [`INTERIM_MAX`] + 1 headers.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use larder_io::epoll::{Interest, Poller, Watched};
use larder_io::tcp::{self, ConnectOptions};
use larder_serve::log::Log;
use larder_serve::nonblocking::retry;

use crate::health::Health;
use crate::message::{self, FieldRoom, Limits};
use crate::options::{HealthChecks, OriginAddress};
use crate::reload::Config;

/// Checks that count.
pub const WINDOW: u32 = 8;

/// How many of them must succeed.
pub const THRESHOLD: u32 = 3;

/// How long a check may take, milliseconds.
pub const CHECK_MS: u64 = 2_000;

/// Interim headers before the response.
const INTERIM_MAX: u32 = 16;

/// Bytes read at once.
const READ_BYTES: usize = 4 << 10;

/// All checks.
#[derive(Debug)]
pub(super) struct Checks {
    every_ms: u64,
    limits: Limits,
    first_token: u64,
    origins: Vec<Check>,
    /// The health of the same origins. After a reload the numbers of this `Health` may mean other
    /// origins.
    health: Arc<Health>,
}

#[derive(Debug)]
struct Check {
    origin: OriginAddress,
    request: Vec<u8>,
    /// The last checks, the newest in the lowest bit; a set bit is a check that succeeded.
    window: u32,
    /// When the next check begins; while a check runs, when its time is over.
    due_ms: u64,
    probe: Option<Probe>,
}

/// A check under way.
#[derive(Debug)]
struct Probe {
    socket: Watched<TcpStream>,
    is_connected: bool,
    sent: usize,
    head: Vec<u8>,
    interim: u32,
}

impl Checks {
    /// Checks of these origins. The caller passes tokens from `first_token` on, one an origin, to
    /// [`Checks::handle`].
    pub fn new(
        options: &HealthChecks,
        origins: &[OriginAddress],
        health: Arc<Health>,
        limits: Limits,
        first_token: u64,
    ) -> Checks {
        let check = |origin: &OriginAddress| {
            Check {
            request: format!(
                "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: larder-health\r\nConnection: close\r\n\r\n",
                options.path, origin.name
            )
            .into_bytes(),
            origin: origin.clone(),
            window: (1 << THRESHOLD) - 1,
            // Each connection verifies its certificate; a check without TLS would show nothing.
            due_ms: if origin.is_secure { u64::MAX } else { 0 },
            probe: None,
        }
        };
        let origins = origins.iter().map(check).collect();
        Checks { every_ms: options.every_ms.max(1), limits, first_token, origins, health }
    }

    /// The checks in the settings in force, if there are any.
    pub fn of(config: &Config, first_token: u64) -> Option<Checks> {
        let options = &config.options;
        let checks = options.health_checks.as_ref()?;
        let health = config.health.clone();
        Some(Checks::new(checks, &options.origins, health, options.limits, first_token))
    }

    /// Takes over the results of checks with the same request. Checks that run are started again.
    pub fn take_over(&mut self, before: &Checks, now_ms: u64) {
        for check in self.origins.iter_mut().filter(|check| !check.origin.is_secure) {
            let was = before
                .origins
                .iter()
                .find(|was| was.request == check.request && was.origin == check.origin);
            if let Some(was) = was {
                check.window = was.window;
                let due_ms = if was.probe.is_some() { now_ms } else { was.due_ms };
                check.due_ms = due_ms.min(now_ms + self.every_ms);
            }
        }
    }

    /// Milliseconds until [`Checks::tick`] has something to do.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.origins.iter().map(|check| check.due_ms.saturating_sub(now_ms)).min()
    }

    /// Begins checks that are due, and ends those whose time is over.
    pub fn tick(&mut self, poller: &Poller, now_ms: u64, log: &Log) {
        for at in 0..self.origins.len() {
            let check = &mut self.origins[at];
            if now_ms < check.due_ms {
                continue;
            }
            if check.probe.is_some() {
                self.judge(at, Err("it took too long".to_owned()), now_ms, log);
                continue;
            }
            check.due_ms = now_ms + CHECK_MS;
            let token = self.first_token + at as u64;
            let begun = tcp::connect(check.origin.address, &ConnectOptions::default())
                .map(Watched::new)
                .and_then(|socket| poller.add(&socket, token, Interest::WRITE).map(|()| socket));
            match begun {
                Ok(socket) => {
                    let probe = Probe {
                        socket,
                        is_connected: false,
                        sent: 0,
                        head: Vec::new(),
                        interim: 0,
                    };
                    check.probe = Some(probe);
                }
                Err(error) => self.judge(at, Err(error.to_string()), now_ms, log),
            }
        }
    }

    /// Continues a check whose socket is ready.
    pub fn handle(&mut self, token: u64, poller: &Poller, now_ms: u64, log: &Log) {
        let at = token.wrapping_sub(self.first_token) as usize;
        let Some(check) = self.origins.get_mut(at) else { return };
        let Some(probe) = &mut check.probe else { return };
        match probe.go_on(&check.request, poller, token, &self.limits) {
            Ok(None) => {}
            Ok(Some(200..=299)) => self.judge(at, Ok(()), now_ms, log),
            Ok(Some(status)) => {
                self.judge(at, Err(format!("it answered {status}")), now_ms, log);
            }
            Err(error) => self.judge(at, Err(error.to_string()), now_ms, log),
        }
    }

    fn judge(&mut self, at: usize, result: Result<(), String>, now_ms: u64, log: &Log) {
        let check = &mut self.origins[at];
        check.probe = None;
        check.due_ms = now_ms + self.every_ms;
        check.window = (check.window << 1 | u32::from(result.is_ok())) & ((1 << WINDOW) - 1);
        let good = check.window.count_ones();
        if self.health.set_down(at, good < THRESHOLD) {
            let line = match &result {
                Ok(()) => log.info("origin up"),
                Err(why) => log.warn("origin down").text("error", why),
            };
            line.text("origin", &check.origin.name).number("checks", WINDOW).number("good", good);
        }
    }
}

impl Probe {
    /// Connects, sends the request and reads, as far as the socket allows. Returns the status, if
    /// it is known.
    fn go_on(
        &mut self,
        request: &[u8],
        poller: &Poller,
        token: u64,
        limits: &Limits,
    ) -> io::Result<Option<u16>> {
        if !self.is_connected {
            if let Some(error) = tcp::take_error(&self.socket)? {
                return Err(error);
            }
            self.is_connected = true;
        }
        while self.sent < request.len() {
            match retry(|| (&*self.socket).write(&request[self.sent..]))? {
                None => return Ok(None),
                Some(bytes) => self.sent += bytes,
            }
            if self.sent == request.len() {
                poller.modify(&self.socket, token, Interest::READ)?;
            }
        }
        loop {
            let start = self.head.len();
            self.head.resize(start + READ_BYTES, 0);
            let read = retry(|| (&*self.socket).read(&mut self.head[start..]));
            self.head.truncate(start + read.as_ref().map_or(0, |bytes| bytes.unwrap_or(0)));
            match read? {
                None => return Ok(None),
                Some(0) => {
                    return Err(io::Error::other("it closed the connection without an answer"));
                }
                Some(_) => {}
            }
            loop {
                let mut room = FieldRoom::new();
                let interim_bytes = match message::response(&self.head, &mut room, "GET", limits) {
                    Ok(Some(head)) if head.status < 200 => head.head_bytes,
                    Ok(Some(head)) => return Ok(Some(head.status)),
                    Ok(None) => break,
                    Err(_) => return Err(io::Error::other("its answer is no HTTP")),
                };
                self.head.drain(..interim_bytes);
                self.interim += 1;
                if self.interim > INTERIM_MAX {
                    // An endless series of them would keep the supervisor here.
                    return Err(io::Error::other("it says that it will answer, and does not"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::time::{Duration, Instant};

    use larder_io::epoll::Events;
    use larder_serve::log::{Format, Level};

    use super::*;

    /// A check whose time the test sets.
    struct World {
        poller: Poller,
        checks: Checks,
        now_ms: u64,
        log: Log,
    }

    impl World {
        fn new(address: std::net::SocketAddr) -> World {
            let origins =
                [OriginAddress { address, name: "a.test:80".to_owned(), is_secure: false }];
            let options = HealthChecks { path: "/alive?x".to_owned(), every_ms: 10_000 };
            let health = Arc::new(Health::new(&origins));
            World {
                poller: Poller::new().unwrap(),
                checks: Checks::new(&options, &origins, health, Limits::default(), 7),
                now_ms: 0,
                log: Log::new("http", Level::Info, Format::Text),
            }
        }

        /// Runs one check to its end, or until its time is over.
        fn check(&mut self, is_slow: bool) {
            let start = Instant::now();
            let World { poller, checks, now_ms, log } = self;
            *now_ms += checks.wait_ms(*now_ms).unwrap();
            checks.tick(poller, *now_ms, log);
            if is_slow {
                assert_eq!(checks.wait_ms(*now_ms), Some(CHECK_MS));
                *now_ms += CHECK_MS;
                checks.tick(poller, *now_ms, log);
            }
            let mut events = Events::new(4);
            while checks.origins[0].probe.is_some() {
                assert!(start.elapsed() < Duration::from_secs(60));
                poller.wait(&mut events, Some(10)).unwrap();
                for event in events.iter() {
                    checks.handle(event.token, poller, *now_ms, log);
                }
            }
            assert_eq!(checks.wait_ms(*now_ms), Some(10_000));
        }

        fn is_well(&self) -> bool {
            self.checks.health.is_good(0, self.now_ms)
        }
    }

    /// An origin is down when fewer than three of eight checks succeeded, for any reason, and up
    /// again after three that did. Each change is logged once.
    #[test]
    fn origins_fall_and_rise() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let status = Arc::new(AtomicU16::new(204));
        let says = status.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut head = String::new();
                let mut input = BufReader::new(stream.try_clone().unwrap());
                while !head.ends_with("\r\n\r\n") && input.read_line(&mut head).unwrap_or(0) > 0 {}
                assert!(head.starts_with("GET /alive?x HTTP/1.1\r\nHost: a.test:80\r\n"), "{head}");
                let early = "HTTP/1.1 103 Early Hints\r\n\r\n";
                let status = says.load(Ordering::Relaxed);
                let _ = match status {
                    0 => stream.write_all(b"no HTTP"),
                    1 => Ok(()),
                    2 => stream.write_all((early.repeat(40) + "HTTP/1.1 200 X\r\n\r\n").as_bytes()),
                    _ => stream.write_all(format!("{early}HTTP/1.1 {status} X\r\n\r\n").as_bytes()),
                };
            }
        });
        let mut world = World::new(address);
        world.check(false);
        assert!(world.is_well());
        for (at, failure) in [500, 0, 1, 302, 2, 500].into_iter().enumerate() {
            status.store(failure, Ordering::Relaxed);
            world.check(false);
            assert_eq!(world.is_well(), at < 5, "{failure}");
        }
        let line =
            r#"warn http: origin down error="it answered 500" origin=a.test:80 checks=8 good=2"#;
        assert_eq!(world.log.take(), [line]);
        status.store(200, Ordering::Relaxed);
        world.check(false);
        assert!(!world.is_well());
        while !world.is_well() {
            world.check(false);
        }
        assert_eq!(world.log.take(), ["info http: origin up origin=a.test:80 checks=8 good=3"]);
        assert_eq!(world.checks.origins[0].window & 7, 7);
    }

    /// A check without a response in time fails, and so does one whose connection is refused.
    #[test]
    fn silence_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut world = World::new(listener.local_addr().unwrap());
        (0..5).for_each(|_| world.check(true));
        assert!(world.is_well());
        drop(listener);
        world.check(false);
        assert!(!world.is_well());
        let lines = world.log.take();
        assert!(lines[0].ends_with(" checks=8 good=2"), "{lines:?}");
        assert!(lines[0].to_lowercase().contains("refused"), "{lines:?}");
    }

    /// An origin over TLS is never checked, also after a reload: a check without TLS would show
    /// nothing.
    #[test]
    fn origins_over_tls_are_left_alone() {
        let origins = [OriginAddress {
            address: "127.0.0.1:9".parse().unwrap(),
            name: "a.test".to_owned(),
            is_secure: true,
        }];
        let options = HealthChecks { path: "/".to_owned(), every_ms: 1 };
        let health = Arc::new(Health::new(&origins));
        let checks = || Checks::new(&options, &origins, health.clone(), Limits::default(), 0);
        let (before, mut after) = (checks(), checks());
        after.take_over(&before, 5);
        let poller = Poller::new().unwrap();
        let log = Log::new("http", Level::Info, Format::Text);
        (5..20).for_each(|now_ms| after.tick(&poller, now_ms, &log));
        assert_eq!(log.take(), [""; 0]);
        assert!(after.origins[0].probe.is_none());
        assert_eq!(after.origins[0].window, before.origins[0].window);
    }
}
