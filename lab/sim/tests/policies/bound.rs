//! No policy has more hits than one that knows the future.

use larder_sim::belady::belady;
use larder_sim::policy::Kind;
use proptest::prelude::*;

use super::{Hits, stream, with_cache};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// On random streams no policy has more hits than the bound, which a larger cache never lowers.
    #[test]
    fn no_policy_is_above(ids in prop::collection::vec(0..50u32, 0..500), capacity in 1..30u32) {
        let most = belady(&ids, capacity.into());
        prop_assert!(most <= belady(&ids, u64::from(capacity) + 1));
        for kind in Kind::ALL {
            let hits = with_cache(kind, capacity, Hits(&ids));
            prop_assert!(hits <= most, "{} has {}, the bound is {}", kind, hits, most);
        }
    }
}

/// On a stream with popular keys and scans, too; and with room for all keys, all reach the bound.
#[test]
fn no_policy_is_above_on_a_long_stream() {
    let ids = stream(20_000);
    for capacity in [10, 100, 1_000, 20_000] {
        let most = belady(&ids, capacity.into());
        for kind in Kind::ALL {
            let hits = with_cache(kind, capacity, Hits(&ids));
            assert!(hits <= most && (hits == most) == (capacity == 20_000), "{kind} {capacity}");
        }
    }
}
