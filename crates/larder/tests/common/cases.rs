//! The number of cases of property tests.

use proptest::test_runner::Config as ProptestConfig;

/// `few` cases, or as many as `PROPTEST_CASES` states.
pub fn cases(few: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        config
    } else {
        ProptestConfig { cases: few, ..config }
    }
}
