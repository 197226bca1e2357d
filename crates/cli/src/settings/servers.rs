//! Rows that several servers have.

use larder_settings::table::{Kind, ROW, Reach, SWITCH, Setting};

const LASTING: Setting = Setting { reach: Reach::Lasting, ..ROW };
const OPERATION: Setting = Setting { group: "Operation", default: "none", ..LASTING };

pub(super) const REUSE_PORT: Setting = Setting {
    name: "reuse-port",
    group: "Server",
    reach: Reach::Lasting,
    help: "Share the addresses with other processes of this user",
    more: "Without it a second server at an address in use is refused.",
    why: "Use it for a handover: start the new server with this setting, then stop the old one. \
        The old server needs --cores of at least 2, or this setting.",
    ..SWITCH
};

pub(super) const TLS_CERT: Setting = Setting {
    name: "tls-cert",
    value_name: "FILE",
    kind: Kind::Word,
    default: "none",
    help: "Use this certificate chain, in PEM",
    more: "The file has the server's certificate and its issuers.",
    why: "SIGHUP loads the certificate and the key again; open connections continue.",
    ..LASTING
};

pub(super) const TLS_KEY: Setting = Setting {
    name: "tls-key",
    value_name: "FILE",
    kind: Kind::Word,
    default: "none",
    help: "Use this private key for the certificate, in PEM",
    why: "Only the server's user should be able to read it.",
    ..LASTING
};

pub(super) const CTL: Setting = Setting {
    name: "ctl",
    value_name: "PATH",
    help: "Create a control socket for larder ctl",
    more: "Its directory must exist.",
    why: "larder ctl connects to /run/larder/ctl by default.",
    ..OPERATION
};

pub(super) const CTL_MODE: Setting = Setting {
    name: "ctl-mode",
    value_name: "OCTAL",
    default: "0600",
    help: "Set the file mode of the control socket",
    why: "File permissions decide which users may connect: 0660 admits the group.",
    ..OPERATION
};

pub(super) const METRICS: Setting = Setting {
    name: "metrics",
    value_name: "ADDR:PORT",
    help: "Serve Prometheus metrics over HTTP at /metrics",
    why: "There is no password, so listen only where authorized clients can connect.",
    ..OPERATION
};
