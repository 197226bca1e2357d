//! Calls of the kernel: files, pipes, decompression, sockets, waiting.
//!
//! | module | duty |
//! |---|---|
//! | [`input`] | opens an input: a mapped file, or a stream to be decoded |
//! | [`mapped`] | a file in memory that may shrink without killing the process |
//! | [`decode`] | gzip, zstd and xz, found by their first bytes |
//! | [`frame_filter`] | selects packets of files by a filter in tcpdump's language |
//! | [`batch`] | cuts input into batches of records, the same for every kind of input |
//! | `damage` | damage of an input that no batch can report |
//! | `stream`, `batch_memory` | the thread that reads a stream; the memory of batches |
//! | [`merge`] | several captures as one, in order of time |
//! | [`disk`] | a file that is written from leased memory, in order, a few writes at a time |
//! | [`over_tcp`] | captures as byte streams over TCP, to and from other programs |
//! | [`output`] | a file or standard output that reports every error |
//! | [`live`], [`privileges`] | frames captured from interfaces; capabilities, dropped after the start |
//! | [`frame_streams`], [`sender`] | frames of dnstap; programs that connect to our socket to write them |
//! | [`udp`] | sockets that receive and send messages in batches |
//! | `xdp` | frames of an interface without the kernel's network stack, by feature |
//! | [`tcp`] | listening, accepting, connecting without waiting |
//! | [`epoll`], [`signals`] | waiting for many descriptors, waking the wait; signals as events |
//! | [`table`] | connections by number, in lists ordered by time |
//! | [`reactor`] | the event loop of a core that serves many TCP connections by few system calls |
//! | [`timer`] | many short timers, without a clock |
//! | [`zstd_frames`] | compressed files of which parts are read |
//! | [`access`] | mode and group of files |
//! | [`program`] | a program that runs next to larder, with a time limit |
//! | [`activation`] | sockets that a service manager passed |
//! | [`clock`] | time that never steps |
//! | [`cores`], [`netns`], [`random`] | pinned threads; a private network; unpredictable numbers |
//! | `socket` | options and addresses of sockets |
//!
//! An event loop uses these modules: [`epoll::Poller`] reports ready sockets, batches of [`udp`]
//! carry messages, [`timer::Timers`] give the time to wait.
//!
//! Unsafe code is only where larder calls the kernel: memory maps, signals, sockets, events.
//!
//! larder is made for Linux. What differs on other systems is in a submodule: `system` has Linux, and
//! `portable` (of [`epoll`]: `poll`) has the rest of Unix. The feature `portable` has Linux use the
//! second where it can, so that tests run it. [`live`], [`netns`], [`cores`] and [`privileges`] need
//! Linux: elsewhere they return errors.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod access;
pub mod activation;
mod ahead;
pub mod batch;
mod batch_memory;
pub mod clock;
#[cfg_attr(not(target_os = "linux"), path = "cores/portable.rs")]
pub mod cores;
mod damage;
pub mod decode;
pub mod disk;
pub mod epoll;
pub mod frame_filter;
pub mod frame_streams;
pub mod input;
#[cfg_attr(not(target_os = "linux"), path = "live/portable.rs")]
pub mod live;
pub mod mapped;
pub mod merge;
#[cfg_attr(not(target_os = "linux"), path = "netns/portable.rs")]
pub mod netns;
pub mod output;
pub mod over_tcp;
pub mod privileges;
pub mod program;
pub mod random;
pub mod reactor;
pub mod reading;
pub mod selection;
pub mod sender;
pub mod signals;
mod socket;
mod stream;
pub mod table;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod timer;
pub mod udp;
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub mod xdp;
pub mod zstd_frames;
