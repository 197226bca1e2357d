//! Rows of `larder dns` on cached responses and on limits.

use larder_settings::table::{Kind, Setting};

use super::{LASTING, ON_OFF};

const LIFE: Setting = Setting { group: "Life of an answer", ..LASTING };
const LIMIT: Setting = Setting { group: "Limits", ..LASTING };

pub(super) const ROWS: [Setting; 15] = [
    Setting {
        name: "ttl-min",
        value_name: "TIME",
        kind: Kind::Seconds { min: 0, max: 3_600 },
        default: "0s",
        help: "Hold answers at least this long",
        why: "What says 0 is never held; more than some seconds breaks names that move.",
        ..LIFE
    },
    Setting {
        name: "ttl-max",
        value_name: "TIME",
        kind: Kind::Seconds { min: 1, max: 604_800 },
        default: "86400s",
        help: "Hold answers at most this long",
        why: "As unbound does; RFC 8767 recommends a week at most.",
        ..LIFE
    },
    Setting {
        name: "negative-ttl-max",
        value_name: "TIME",
        kind: Kind::Seconds { min: 1, max: 86_400 },
        default: "3600s",
        help: "Hold answers that there is nothing at most this long",
        why: "As unbound does; RFC 2308 recommends three hours at most.",
        ..LIFE
    },
    Setting {
        name: "failure-ttl",
        value_name: "TIME",
        kind: Kind::Seconds { min: 1, max: 300 },
        default: "5s",
        help: "Do not ask again so soon after no upstream could answer",
        why: "RFC 9520 wants from 1 s to 5 minutes.",
        ..LIFE
    },
    Setting {
        name: "stale",
        value_name: "TIME",
        kind: Kind::Seconds { min: 0, max: 604_800 },
        default: "86400s",
        help: "Serve answers this long past their end where no upstream answers; 0 never",
        why: "RFC 8767 recommends one to three days; a fresh answer is always tried first.",
        ..LIFE
    },
    Setting {
        name: "nxdomain-cut",
        value_name: "WHEN",
        kind: Kind::Choice(&["validated", "always", "never"]),
        default: "validated",
        help: "When a name that does not exist answers for all names below it (RFC 8020)",
        why: "There are servers that deny names with others below; validated needs --trust-ad.",
        ..LIFE
    },
    Setting {
        name: "prefetch",
        value_name: "PERCENT",
        kind: Kind::Count { min: 0, max: 50 },
        default: "10",
        help: "Fetch an answer anew when it is asked for in this last part of its life; 0 never",
        why: "What is asked often never has to be waited for.",
        ..LIFE
    },
    Setting {
        name: "cookies",
        group: "Limits",
        default: "true",
        help: "Give clients cookies, and do not limit those that show one (RFC 7873)",
        why: "Who shows one has received an answer at its address, so it is not forged.",
        ..ON_OFF
    },
    Setting {
        name: "cookie-secret",
        value_name: "HEX",
        kind: Kind::Word,
        default: "random",
        help: "32 hexadecimal digits that cookies are made with, or 'random'",
        why: "Servers behind one address need the same; keep it in the file, as others see a command line.",
        ..LIMIT
    },
    Setting {
        name: "rate-limit",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: "0",
        help: "Answers a second over UDP for a client's network (/24, /56), for each core; 0 no limit",
        why: "For servers that the world can reach; who shows a cookie or comes by TCP is not limited.",
        ..LIMIT
    },
    Setting {
        name: "rate-limit-slip",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 100 },
        default: "2",
        help: "Send every so manieth answer above the limit empty and truncated; 0 none",
        why: "Who is honest then comes by TCP, and who forges addresses sends nothing larger than it sent.",
        ..LIMIT
    },
    Setting {
        name: "streams-max",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "1024",
        help: "TCP connections of clients, for each core",
        why: "Beyond it the one that is idle for longest is closed.",
        ..LIMIT
    },
    Setting {
        name: "streams-per-client",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "64",
        help: "TCP connections of one client (an IPv4 address, a /64), for each core",
        why: "So that one client cannot take them all.",
        ..LIMIT
    },
    Setting {
        name: "questions-max",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "10000",
        help: "Questions in flight, for each core",
        why: "Beyond it clients get what is held past its end, or SERVFAIL.",
        ..LIMIT
    },
    Setting {
        name: "waiters-max",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 10_000_000 },
        default: "30000",
        help: "Clients that wait for answers, for each core",
        why: "Each takes about 600 octets.",
        ..LIMIT
    },
];
