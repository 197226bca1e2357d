//! The common parts of all servers: dns, http and annotate use them.
//!
//! | module | duty |
//! |---|---|
//! | [`supervisor`] | the calling thread of a server: signals, reloads, drain, end |
//! | [`start`] | why a server does not start, and how it ended |
//! | [`console`] | control socket, metrics and service manager, in one event loop |
//! | [`worker_threads`], [`lifecycle`] | the threads of the cores; how far a server's life has come |
//! | [`watch`] | a value that is replaced while event loops use it |
//! | [`reload`], [`changes`] | settings that are read again; which have changed, and which need a restart |
//! | [`control`] | the control socket: requests of operators over a Unix socket |
//! | [`http_server`] | a small HTTP/1 server, in an event loop of others |
//! | [`http_client`] | a GET of another such server |
//! | [`authorize`] | which of its requests are served: host, origin, token |
//! | [`pages`] | a page for a browser: one HTML document, and its content security policy |
//! | [`page_server`], [`page_thread`] | the server of a page without packets; the thread that takes its samples |
//! | [`server_page`] | what the pages of dns and http have in common |
//! | [`history`], [`recent`], [`saved`] | samples of thirty days, bounded tables of the last hour, and their file |
//! | [`sampling`] | the events that workers note for a page: all, or a random part |
//! | [`metrics_http`] | `GET /metrics` by it, in the supervisor's loop |
//! | [`mod@counters`], [`metrics`] | what worker threads count; metrics for Prometheus and `larder ctl stats` |
//! | [`histogram`] | percentiles of any number of values |
//! | [`durations`] | the same in coarse buckets, for counters and Prometheus |
//! | [`connection_limit`] | how many connections there may be, in all and of one client |
//! | [`record_channel`], [`writer`] | records from the cores to a thread that writes them |
//! | [`log`] | what a program writes about itself: `level component: event key=value` |
//! | [`log_file`], [`rolling`] | the file of a log; a log that is cut, compressed and bounded by a budget |
//! | [`mailbox`] | messages from any thread to one that sleeps in the kernel |
//! | [`notify`] | messages to the service manager (sd_notify) |
//! | [`nonblocking`] | reads and writes that never wait |
//!
//! Below the supervisor no module has its own loop or clock: the supervisor's loop calls the
//! modules, and passes the time.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod authorize;
pub mod changes;
pub mod connection_limit;
pub mod console;
pub mod control;
pub mod counters;
pub mod durations;
pub mod histogram;
pub mod history;
pub mod http_client;
pub mod http_server;
pub mod lifecycle;
pub mod log;
pub mod log_file;
pub mod mailbox;
pub mod metrics;
pub mod metrics_http;
pub mod nonblocking;
pub mod notify;
pub mod page_server;
pub mod page_thread;
pub mod pages;
pub mod recent;
pub mod record_channel;
pub mod reload;
pub mod rolling;
pub mod sampling;
pub mod saved;
pub mod server_page;
pub mod start;
pub mod supervisor;
mod sync;
pub mod watch;
pub mod worker_threads;
pub mod writer;
