//! Rows of the policy of `larder dns`: access, views, local data, blocking.

use larder_settings::table::{Kind, Setting};

use super::LASTING;

const POLICY: Setting = Setting { group: "Policy", is_live: true, ..LASTING };
const POLICY_LIST: Setting = Setting { kind: Kind::List, many: true, default: "none", ..POLICY };

pub(super) const ROWS: [Setting; 11] = [
    Setting {
        name: "access",
        value_name: "NETWORK=ACTION",
        help: "Allow, refuse or drop queries from a network",
        more: "Actions: allow, refuse, drop. The longest matching network applies.",
        why: "By default only local networks are served: an open resolver is used to flood other networks.",
        ..POLICY_LIST
    },
    Setting {
        name: "view",
        value_name: "NETWORK=VIEW",
        help: "Assign clients of a network to a view",
        more: "The longest matching network applies. Other clients are in the view default.",
        why: "Lists and local data can apply to some views only, as in kids+guests:FILE.",
        ..POLICY_LIST
    },
    Setting {
        name: "hosts",
        value_name: "[VIEWS:]FILE",
        help: "Serve the names and addresses of these hosts files",
        more: "The format is that of /etc/hosts. Names are served in both directions.",
        ..POLICY_LIST
    },
    Setting {
        name: "local-data",
        value_name: "[VIEWS:]FILE",
        help: "Serve the records and zones of these files",
        more: "Lines are 'NAME TTL TYPE DATA' or 'zone NAME ACTION'; # begins a comment. Actions: \
            static, transparent, redirect, refuse, nxdomain.",
        ..POLICY_LIST
    },
    Setting {
        name: "blocklist",
        value_name: "[VIEWS:]FILE",
        help: "Block the domains of these files and all names below them",
        more: "Formats: domains, hosts files with 0.0.0.0, and rules ||domain^. larder skips and \
            counts other lines.",
        ..POLICY_LIST
    },
    Setting {
        name: "block-answer",
        value_name: "ANSWER",
        kind: Kind::Choice(&["nxdomain", "zero", "refused"]),
        default: "nxdomain",
        help: "Set the response for blocked names",
        more: "nxdomain: the name does not exist. zero: the addresses 0.0.0.0 and ::. refused: REFUSED.",
        why: "After REFUSED some programs query another resolver.",
        ..POLICY
    },
    Setting {
        name: "block-reason",
        value_name: "REASON",
        kind: Kind::Choice(&["blocked", "filtered"]),
        default: "blocked",
        help: "Set the extended error code of blocked names (RFC 8914)",
        more: "blocked: by the operator. filtered: at the request of the client.",
        why: "Clients that support it show the reason to their users.",
        ..POLICY
    },
    Setting {
        name: "allowlist",
        value_name: "[VIEWS:]FILE",
        help: "Exempt the domains of these files from blocking",
        more: "They override blocklists and response policy zones.",
        why: "Use it for domains that a public list blocks by mistake.",
        ..POLICY_LIST
    },
    Setting {
        name: "rpz",
        value_name: "[VIEWS:]ORIGIN=FILE",
        help: "Apply these response policy zones (RPZ)",
        more: "Give the name of the zone and its zone file. larder applies the rules for query \
            names in the order of the zones. It skips and counts other rules.",
        ..POLICY_LIST
    },
    Setting {
        name: "version-text",
        value_name: "TEXT",
        kind: Kind::Word,
        default: "none",
        help: "Return this text for version.bind in class CHAOS",
        more: "Without it the query is refused.",
        why: "It is useful for counting your own servers.",
        ..POLICY
    },
    Setting {
        name: "id-text",
        value_name: "TEXT",
        kind: Kind::Word,
        default: "none",
        help: "Return this text for id.server in class CHAOS (RFC 4892)",
        more: "Without it the query is refused.",
        why: "It distinguishes servers that share an address.",
        ..POLICY
    },
];
