//! Runs the built program in an empty directory with an empty environment, so that no file or
//! variable of the machine decides a test.

#[allow(dead_code)]
pub mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed at the end of a test.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new empty directory.
    pub fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("the scratch directory can be made");
        Scratch(path)
    }

    /// Path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it, with the directories it needs.
    #[allow(dead_code)]
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(&path, content).expect("written");
        path
    }

    /// The program, to be run in it without input.
    pub fn larder(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.current_dir(&self.0).env_clear().stdin(Stdio::null());
        command
    }

    /// Runs the program with `line`, split at spaces.
    #[allow(dead_code)]
    pub fn run(&self, line: &str) -> Run {
        Run::of(self.larder().args(line.split_whitespace()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    /// Runs a command to its end.
    #[allow(dead_code)]
    pub fn of(command: &mut Command) -> Run {
        let Output { status, stdout, stderr } = command.output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Run { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    /// Asserts a usage failure: exit 2, nothing on standard output, each text on standard error.
    #[allow(dead_code)]
    pub fn refused(&self, texts: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.out, "", "results only on standard output");
        for text in texts {
            assert!(self.err.contains(text), "'{text}' is missing from\n{}", self.err);
        }
    }
}

/// A little pcap file, written frame by frame. Its clock moves on by a second a frame.
#[allow(dead_code)]
pub struct TestCapture {
    pub bytes: Vec<u8>,
    frames: u32,
}

#[allow(dead_code)]
impl TestCapture {
    /// An Ethernet capture without packets.
    pub fn new() -> TestCapture {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]);
        TestCapture { bytes, frames: 0 }
    }

    /// Adds a frame.
    pub fn frame(&mut self, frame: &[u8]) {
        self.frames += 1;
        let length = frame.len() as u32;
        for field in [1_700_000_000 + self.frames, 0, length, length] {
            self.bytes.extend(field.to_le_bytes());
        }
        self.bytes.extend_from_slice(frame);
    }

    /// Adds a DNS message from 192.0.2.53 to 192.0.2.1.
    pub fn dns_answer(&mut self, message: &[u8]) {
        self.frame(&TestCapture::udp(53, message));
    }

    /// Adds one packet from 192.0.2.1 to `destination`, port 9999.
    pub fn flow_to(&mut self, destination: [u8; 4]) {
        let mut frame = TestCapture::udp(9999, b"x");
        frame[26..30].copy_from_slice(&[192, 0, 2, 1]);
        frame[30..34].copy_from_slice(&destination);
        frame.swap(34, 36);
        frame.swap(35, 37);
        self.frame(&frame);
    }

    /// An Ethernet frame with a UDP datagram from 192.0.2.53 to 192.0.2.1, port 40000.
    pub fn udp(source_port: u16, payload: &[u8]) -> Vec<u8> {
        let length = payload.len() as u16;
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((28 + length).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 53, 192, 0, 2, 1]);
        frame.extend(source_port.to_be_bytes());
        frame.extend(40_000u16.to_be_bytes());
        frame.extend((8 + length).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend_from_slice(payload);
        frame
    }

    /// An answer: `name` has the address 198.51.100.7.
    pub fn answer(name: &[u8]) -> Vec<u8> {
        let header = b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0";
        let record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc6\x33\x64\x07";
        [header.as_slice(), name, b"\0\x01\0\x01", record].concat()
    }
}
