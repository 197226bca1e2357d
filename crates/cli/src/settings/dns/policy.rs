//! Rows of the policy of `larder dns`: access, views, local data, blocking.

use larder_settings::table::{Kind, Setting};

use super::LASTING;

const POLICY: Setting = Setting { group: "Policy", is_live: true, ..LASTING };
const POLICY_LIST: Setting = Setting { kind: Kind::List, many: true, default: "none", ..POLICY };

pub(super) const ROWS: [Setting; 11] = [
    Setting {
        name: "access",
        value_name: "NETWORK=ACTION",
        help: "Whom to serve: allow, refuse or drop questions of a network; the longest network counts",
        why: "Local networks only unless told otherwise; a resolver for all the world floods others.",
        ..POLICY_LIST
    },
    Setting {
        name: "view",
        value_name: "NETWORK=VIEW",
        help: "Put clients of a network into a view; the longest network counts, the others are in 'default'",
        why: "Lists and local data may be for some views only, as in kids+guests:FILE.",
        ..POLICY_LIST
    },
    Setting {
        name: "hosts",
        value_name: "[VIEWS:]FILE",
        help: "Files of addresses and names, as /etc/hosts, to answer from",
        why: "Names are answered in both directions.",
        ..POLICY_LIST
    },
    Setting {
        name: "local-data",
        value_name: "[VIEWS:]FILE",
        help: "Files of lines 'NAME TTL TYPE DATA' or 'zone NAME ACTION', to answer from",
        why: "An action is static, transparent, redirect, refuse or nxdomain; # begins a comment.",
        ..POLICY_LIST
    },
    Setting {
        name: "blocklist",
        value_name: "[VIEWS:]FILE",
        help: "Files of domains that are blocked with all below them",
        why: "Domains, hosts files of 0.0.0.0 and rules ||domain^ are read; other lines are skipped and counted.",
        ..POLICY_LIST
    },
    Setting {
        name: "block-answer",
        value_name: "ANSWER",
        kind: Kind::Choice(&["nxdomain", "zero", "refused"]),
        default: "nxdomain",
        help: "What to say of blocked names: that they do not exist, the addresses 0.0.0.0 and ::, or REFUSED",
        why: "Some programs ask another resolver after REFUSED.",
        ..POLICY
    },
    Setting {
        name: "block-reason",
        value_name: "REASON",
        kind: Kind::Choice(&["blocked", "filtered"]),
        default: "blocked",
        help: "Who wants names blocked: the operator, or those who ask (RFC 8914)",
        why: "Clients that understand it tell their users.",
        ..POLICY
    },
    Setting {
        name: "allowlist",
        value_name: "[VIEWS:]FILE",
        help: "Files of domains that no blocklist and no policy zone counts for",
        why: "For what a list of others blocks in error.",
        ..POLICY_LIST
    },
    Setting {
        name: "rpz",
        value_name: "[VIEWS:]ORIGIN=FILE",
        help: "Response policy zones, as zone files, by the name of their zone",
        why: "Rules for names asked are followed, in the order of the zones; others are skipped and counted.",
        ..POLICY_LIST
    },
    Setting {
        name: "version-text",
        value_name: "TEXT",
        kind: Kind::Word,
        default: "none",
        help: "What to answer to version.bind of class CHAOS; it is refused without",
        why: "Nobody needs to know, but who counts servers of his own.",
        ..POLICY
    },
    Setting {
        name: "id-text",
        value_name: "TEXT",
        kind: Kind::Word,
        default: "none",
        help: "What to answer to id.server of class CHAOS (RFC 4892); it is refused without",
        why: "Tells servers behind one address apart.",
        ..POLICY
    },
];
