//! Counters of a resolver.

larder_serve::counters! {
    /// Counts since the start.
    Counts {
        "recursion_packets_total" "Queries to name servers over UDP" { packets }
        "recursion_streams_total" "Queries to name servers over TCP" { streams }
        "recursion_referrals_total" "Referrals to zones" { referrals }
        "recursion_lame_total" "Servers found not to serve their zone (lame)" { lame }
        "recursion_timeouts_total" "Queries to name servers that timed out" { timeouts }
        "recursion_misfits_total" "Packets that matched no query" { misfits }
        "recursion_failures_total" "Queries of clients that found no response" { failures }
        "recursion_crowded_total" "Queries of clients refused because too many of their zone were in flight" { crowded }
    }
}
