//! How often properties are tried.

use proptest::test_runner::Config as ProptestConfig;

/// So many cases, or as many as `PROPTEST_CASES` asks for.
pub fn cases(few: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        asked
    } else {
        ProptestConfig { cases: few, ..asked }
    }
}
