//! Files, pipes, decompression, sockets, waiting: where larder meets the kernel.
//!
//! | module | duty |
//! |---|---|
//! | [`input`] | opens what is to be read: a mapped file, or a stream to be decoded |
//! | [`mapped`] | a file in memory that may shrink without killing the process |
//! | [`decode`] | gzip, zstd and xz, found by their first bytes |
//! | [`frame_filter`] | takes packets of files by a filter of tcpdump's language |
//! | [`batch`] | cuts input into batches of records, the same whatever it came from |
//! | `damage` | what is wrong with an input, where no batch can tell |
//! | `stream`, `pool` | the thread that reads a stream; the memory of batches |
//! | [`merge`] | several captures as one, in order of time |
//! | [`disk`] | a file that is written from leased memory, in order, a few writes at a time |
//! | [`output`] | a file or standard output that loses nothing in silence |
//! | [`live`], [`privileges`] | frames of interfaces as they pass; the right to see them, given back |
//! | [`frame_streams`], [`sender`] | frames of dnstap; programs that connect to a socket of ours to write them |
//! | [`udp`] | sockets whose messages come and go in batches |
//! | `xdp` | frames of an interface without the kernel's network, by feature |
//! | [`tcp`] | listening, accepting, connecting without waiting |
//! | [`epoll`], [`signals`] | waiting for many descriptors, being woken; signals as events |
//! | [`table`] | connections by number, in lists ordered by time |
//! | [`reactor`] | the loop of a core that serves many TCP connections by few system calls |
//! | [`timer`] | many short timers, without a clock |
//! | [`access`] | who may read what is written |
//! | [`activation`] | sockets that a service manager opened for us |
//! | [`clock`] | time that never steps |
//! | [`cores`], [`netns`], [`random`] | pinned threads; a private network; numbers nobody can foresee |
//! | `socket` | options and addresses of sockets |
//!
//! A server's loop is made of these: [`epoll::Poller`] says which sockets are ready, batches of
//! [`udp`] carry what they have, [`timer::Timers`] say how long to wait.
//!
//! Unsafe code is where the kernel is called: memory maps, signals, sockets, events.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod access;
pub mod activation;
pub mod batch;
pub mod clock;
pub mod cores;
mod damage;
pub mod decode;
pub mod disk;
pub mod epoll;
pub mod frame_filter;
pub mod frame_streams;
pub mod input;
pub mod live;
pub mod mapped;
pub mod merge;
pub mod netns;
pub mod output;
mod pool;
pub mod privileges;
pub mod random;
pub mod reactor;
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
#[cfg(feature = "xdp")]
pub mod xdp;
