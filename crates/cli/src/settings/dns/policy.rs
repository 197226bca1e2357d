//! Rows of the policy of `larder dns`: access, views, local data, blocking.

use larder_settings::row::{List, Text};
use larder_settings::settings;
use larder_settings::table::Setting;

const POLICY: Setting = Setting::lasting("Policy").live();

settings! {
    /// Access, views, local data, blocking.
    pub struct Policy {
        pub access: List = POLICY.list().many().default("none")
            .value("NETWORK=ACTION")
            .help("Allow, refuse or drop queries from a network")
            .more("Actions: allow, refuse, drop. The longest matching network applies.")
            .why("By default only local networks are served: an open resolver is used to flood other networks."),
        pub view: List = POLICY.list().many().default("none")
            .value("NETWORK=VIEW")
            .needs(&["hosts", "local-data", "blocklist", "allowlist", "rpz"])
            .help("Assign clients of a network to a view")
            .more("The longest matching network applies. Other clients are in the view default.")
            .why("Lists and local data can apply to some views only, as in kids+guests:FILE."),
        pub hosts: List = POLICY.list().many().default("none")
            .value("[VIEWS:]FILE")
            .help("Serve the names and addresses of these hosts files")
            .more("The format is that of /etc/hosts. Names are served in both directions."),
        pub local_data: List = POLICY.list().many().default("none")
            .value("[VIEWS:]FILE")
            .help("Serve the records and zones of these files")
            .more("Lines are 'NAME TTL TYPE DATA' or 'zone NAME ACTION'; # begins a comment. Actions: \
                static, transparent, redirect, refuse, nxdomain."),
        pub blocklist: List = POLICY.list().many().default("none")
            .value("[VIEWS:]FILE")
            .help("Block the domains of these files and all names below them")
            .more("Formats: domains, hosts files with 0.0.0.0, and rules ||domain^. larder skips and \
                counts other lines."),
        pub block_answer: &'static str = POLICY.choice(&["nxdomain", "zero", "refused"])
            .default("nxdomain")
            .value("ANSWER")
            .needs(&["blocklist"])
            .help("Set the response for blocked names")
            .more("nxdomain: the name does not exist. zero: the addresses 0.0.0.0 and ::. refused: REFUSED.")
            .why("After REFUSED some programs query another resolver."),
        pub block_reason: &'static str = POLICY.choice(&["blocked", "filtered"]).default("blocked")
            .value("REASON")
            .needs(&["blocklist"])
            .help("Set the extended error code of blocked names (RFC 8914)")
            .more("blocked: by the operator. filtered: at the request of the client.")
            .why("Clients that support it show the reason to their users."),
        pub allowlist: List = POLICY.list().many().default("none")
            .value("[VIEWS:]FILE")
            .needs(&["blocklist", "rpz"])
            .help("Exempt the domains of these files from blocking")
            .more("They override blocklists and response policy zones.")
            .why("Use it for domains that a public list blocks by mistake."),
        pub rpz: List = POLICY.list().many().default("none")
            .value("[VIEWS:]ORIGIN=FILE")
            .help("Apply these response policy zones (RPZ)")
            .more("Give the name of the zone and its zone file. larder applies the rules for query \
                names in the order of the zones. It skips and counts other rules."),
        pub version_text: Option<Text> = POLICY.word().none("none")
            .value("TEXT")
            .help("Return this text for version.bind in class CHAOS")
            .more("Without it the query is refused.")
            .why("It is useful for counting your own servers."),
        pub id_text: Option<Text> = POLICY.word().none("none")
            .value("TEXT")
            .help("Return this text for id.server in class CHAOS (RFC 4892)")
            .more("Without it the query is refused.")
            .why("It distinguishes servers that share an address."),
    }
}
