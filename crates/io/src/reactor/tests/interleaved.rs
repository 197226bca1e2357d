//! Any order of operations: each side receives all bytes of the other, in order.

use std::net::Shutdown;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    TheySay {
        bytes: usize,
    },
    TheyReceive {
        bytes: usize,
    },
    WeSay {
        bytes: usize,
    },
    Pause,
    Resume,
    /// Pauses, and reads directly when it is ready.
    ReadDirectly {
        bytes: usize,
    },
    Turn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..200_000).prop_map(|bytes| Step::TheySay { bytes }),
        3 => (1usize..300_000).prop_map(|bytes| Step::TheyReceive { bytes }),
        3 => (1usize..300_000).prop_map(|bytes| Step::WeSay { bytes }),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        2 => (1usize..50_000).prop_map(|bytes| Step::ReadDirectly { bytes }),
        5 => Just(Step::Turn),
    ]
}

/// Both ends of a connection, and how many bytes each has sent and received: all send the same
/// endless row of bytes, so counts and a comparison are sufficient.
struct Connection {
    theirs: TcpStream,
    ours: OwnedFd,
    token: u64,
    they_said: usize,
    they_received: usize,
    we_said: usize,
    we_received: usize,
    is_sending: bool,
    /// Bytes to read directly, where that is being waited for.
    direct: Option<usize>,
    is_finished: bool,
}

const ROW_BYTES: usize = 1 << 20;

fn row() -> Vec<u8> {
    bytes(ROW_BYTES, 77)
}

/// Whether bytes are those of the row from `at` on.
fn is_of_row(row: &[u8], at: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(index, byte)| *byte == row[(at + index) % ROW_BYTES])
}

fn from_row(row: &[u8], at: usize, bytes: usize) -> Vec<u8> {
    (at..at + bytes).map(|index| row[index % ROW_BYTES]).collect()
}

impl Connection {
    fn new(token: u64) -> Connection {
        let (theirs, ours) = pair();
        theirs.set_nonblocking(true).unwrap();
        let (they_said, they_received, we_said, we_received) = (0, 0, 0, 0);
        let (is_sending, direct, is_finished) = (false, None, false);
        Connection {
            theirs,
            ours,
            token,
            they_said,
            they_received,
            we_said,
            we_received,
            is_sending,
            direct,
            is_finished,
        }
    }

    fn they_receive(&mut self, row: &[u8], bytes: usize) {
        let mut room = vec![0; bytes];
        let Ok(count) = tcp::read_into(&self.theirs, &mut room) else { return };
        assert!(is_of_row(row, self.they_received, &room[..count]));
        self.they_received += count;
    }

    fn act(&mut self, reactor: &mut Reactor, row: &[u8], step: &Step) {
        match *step {
            Step::TheySay { bytes } => {
                let sent = from_row(row, self.they_said, bytes);
                self.they_said += tcp::write(&self.theirs, &sent).unwrap_or(0);
            }
            Step::TheyReceive { bytes } => self.they_receive(row, bytes),
            Step::WeSay { bytes } if !self.is_sending => {
                let sent = from_row(row, self.we_said, bytes);
                self.we_said += bytes;
                match reactor.send(&self.ours, self.token, sent) {
                    Sending::Done => {}
                    Sending::Later => self.is_sending = true,
                    Sending::Failed(error) => panic!("{error}"),
                }
            }
            Step::Pause => reactor.pause(&self.ours, self.token),
            // A socket that is read directly does not receive.
            Step::Resume if self.direct.is_none() => {
                reactor.receive(&self.ours, self.token).unwrap();
            }
            Step::ReadDirectly { bytes } => {
                reactor.pause(&self.ours, self.token);
                reactor.watch(&self.ours, self.token, Interest::READ).unwrap();
                self.direct = Some(bytes);
            }
            Step::WeSay { .. } | Step::Resume | Step::Turn => {}
        }
    }

    fn receive(&mut self, row: &[u8], seen: Seen) {
        match seen {
            Seen::Received(_, bytes) => {
                assert!(is_of_row(row, self.we_received, &bytes));
                self.we_received += bytes.len();
            }
            Seen::Ready(..) => {
                let mut room = vec![0; self.direct.take().expect("it is asked for")];
                let Ok(count) = tcp::read_into(&self.ours, &mut room) else { return };
                assert!(is_of_row(row, self.we_received, &room[..count]));
                self.we_received += count;
            }
            Seen::Sent(_) => assert!(std::mem::take(&mut self.is_sending)),
            Seen::Finished(_) => assert!(!std::mem::replace(&mut self.is_finished, true)),
            seen => panic!("{seen:?}"),
        }
    }
}

fn run(options: &Options, steps: &[(usize, Step)]) {
    let row = row();
    let mut all = Loop::new(options);
    let mut connections: Vec<Connection> = (0..3).map(Connection::new).collect();
    for (which, step) in steps {
        connections[*which].act(&mut all.reactor, &row, step);
        if let Step::Turn = step {
            for seen in all.turn(Duration::from_millis(1)) {
                let token = token_of(&seen);
                connections[token].receive(&row, seen);
            }
        }
    }
    for connection in &mut connections {
        connection.theirs.shutdown(Shutdown::Write).unwrap();
        if connection.direct.take().is_some() {
            all.reactor.unwatch(&connection.ours, connection.token);
        }
        all.reactor.receive(&connection.ours, connection.token).unwrap();
    }
    let start = Instant::now();
    while !connections.iter().all(|of| of.is_finished && of.they_received == of.we_said) {
        assert!(start.elapsed() < LONG, "it does not come");
        connections.iter_mut().for_each(|connection| connection.they_receive(&row, ROW_BYTES));
        for seen in all.turn(Duration::from_millis(1)) {
            let token = token_of(&seen);
            connections[token].receive(&row, seen);
        }
    }
    for connection in connections {
        assert_eq!(connection.we_received, connection.they_said);
        all.reactor.close(connection.ours, connection.token);
    }
    all.stays_silent();
}

fn token_of(seen: &Seen) -> usize {
    match seen {
        Seen::Received(token, _)
        | Seen::Finished(token)
        | Seen::Ready(token, ..)
        | Seen::Sent(token)
        | Seen::Failed(token, _)
        | Seen::Accepted(token, _) => *token as usize,
        Seen::Woken => panic!("nobody wakes"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Three connections send and receive, pause and resume, read directly, in any order and with
    /// few buffers: all bytes arrive, in order, and then the end.
    #[test]
    fn interleaved(steps in prop::collection::vec((0usize..3, step()), 1..120)) {
        by_each_way(|options| run(&Options { buffers: 4, ..options }, &steps));
    }
}
