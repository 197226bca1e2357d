//! Rows that several servers have.

use std::path::PathBuf;

use larder_settings::row::{List, Row, Text};
use larder_settings::table::Setting;

const SERVER: Setting = Setting::lasting("Server");
/// Each command has a heading of its own for these.
const TLS: Setting = Setting::lasting("TLS");
const OPERATION: Setting = Setting::lasting("Operation");

pub(super) const REUSE_PORT: Row<bool> = SERVER
    .switch()
    .help("Share the addresses with other processes of this user")
    .more("Without it a second server at an address in use is refused.")
    .why(
        "Use it for a handover: start the new server with this setting, then stop the old one. \
        The old server needs --cores of at least 2, or this setting.",
    );

pub(super) const TLS_CERT: Row<Option<PathBuf>> = TLS
    .word()
    .none("none")
    .value("FILE")
    .help("Use this certificate chain, in PEM")
    .more("The file has the server's certificate and its issuers.")
    .why("SIGHUP loads the certificate and the key again; open connections continue.");

pub(super) const TLS_KEY: Row<Option<PathBuf>> = TLS
    .word()
    .none("none")
    .value("FILE")
    .help("Use this private key for the certificate, in PEM")
    .why("Only the server's user should be able to read it.");

pub(super) const CTL: Row<Option<PathBuf>> = OPERATION
    .word()
    .none("none")
    .value("PATH")
    .help("Create a control socket for larder ctl")
    .more("Its directory must exist.")
    .why("larder ctl connects to /run/larder/ctl by default.");

pub(super) const CTL_MODE: Row<Text> = OPERATION
    .word()
    .default("0600")
    .value("OCTAL")
    .help("Set the file mode of the control socket")
    .why("File permissions decide which users may connect: 0660 admits the group.");

pub(super) const LOG_LEVEL: Row<&'static str> = OPERATION
    .choice(&["error", "warn", "info", "debug"])
    .default("info")
    .live()
    .value("LEVEL")
    .help("Log events of this level and more important ones")
    .more("larder logs to standard error: level component: event key=value ...");

pub(super) const LOG_FORMAT: Row<&'static str> = OPERATION
    .choice(&["text", "json"])
    .default("text")
    .live()
    .help("Choose the format of the log")
    .more("json has one object per line, with time, level, component, event and the keys.")
    .why("The text has no time: the service manager adds it.");

pub(super) const METRICS: Row<Option<Text>> = OPERATION
    .word()
    .none("none")
    .value("ADDR:PORT")
    .help("Serve Prometheus metrics over HTTP at /metrics")
    .why("There is no password, so listen only where authorized clients can connect.");

pub(super) const UI_TOKEN: Row<Option<PathBuf>> = OPERATION
    .word()
    .none("none")
    .value("FILE")
    .help("Require this file's token from clients of --ui")
    .more("Clients send it as Authorization: Bearer TOKEN. The page has a field for it.")
    .why("The token crosses the network in the clear, because --ui has no TLS.");

pub(super) const UI_HOSTS: Row<List> = OPERATION
    .list()
    .default("none")
    .value("NAME,..")
    .help("Accept requests of --ui for these host names")
    .why("larder refuses requests for other hosts: a web page may have caused them by DNS rebinding.");

pub(super) const UI_HISTORY: Row<Option<PathBuf>> = OPERATION
    .word()
    .none("none")
    .value("FILE")
    .help("Keep the history of the --ui page in this file")
    .more("larder writes it once a minute and at the end. Without it the history begins again at each start.")
    .why("Charts of thirty days need a file that outlives a restart.");
