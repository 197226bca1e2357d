//! What a server has for those who operate it, the same for every front end.
//!
//! | module | duty |
//! |---|---|
//! | [`changes`] | what came of reading the configuration again |
//! | [`control`] | what operators ask of a running server, over a Unix socket |
//! | [`crew`] | the threads of the cores |
//! | [`endpoint`] | `GET /metrics`, in the supervisor's loop |
//! | [`figures`] | figures for Prometheus and for `larder ctl stats` |
//! | [`handover`], [`writer`] | records from the cores to a thread that writes them |
//! | [`log_file`] | the file of a log |
//! | [`notify`] | what a service manager is told |
//! | [`rolling`] | a log that is cut, compressed and kept under a budget |
//! | [`nonblocking`] | reads and writes that never wait |
//!
//! None of it has a loop or a clock of its own: a supervisor's loop calls it, and says what time it is.

pub mod changes;
pub mod control;
pub mod crew;
pub mod endpoint;
pub mod figures;
pub mod handover;
pub mod log_file;
pub mod nonblocking;
pub mod notify;
pub mod rolling;
pub mod writer;
