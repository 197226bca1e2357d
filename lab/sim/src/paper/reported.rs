//! What the paper reports: Han, Guo and Zeng, "Research on Multicore Key-Value Storage System for Domain Name
//! Storage", Applied Sciences 11(16), 7425, 2021. Numbers from its text and tables; what its pictures show
//! and its text does not say is not here.

/// How it is called in notes under figures.
pub const NOTE: &str = "as the paper reports";

/// Where it is cited.
pub const CITATION: &str = "Han, Guo and Zeng, Research on Multicore Key-Value Storage System for Domain Name \
    Storage, Applied Sciences 11(16), 7425, 2021";

/// Section 4.1 and Figures 7 to 9: time of an insert into a full table.
#[derive(Debug, Clone, Copy)]
pub struct Insert {
    /// Figure.
    pub figure: u8,
    /// Cores at work.
    pub cores: usize,
    /// Nanoseconds with LRU.
    pub lru_ns: f64,
    /// With FIFO.
    pub fifo_ns: f64,
    /// With its own replacement.
    pub own_ns: f64,
}

/// Its three.
pub const INSERTS: [Insert; 3] = [
    Insert { figure: 7, cores: 1, lru_ns: 1_198.0, fifo_ns: 143.0, own_ns: 167.0 },
    Insert { figure: 8, cores: 4, lru_ns: 5_991.0, fifo_ns: 165.0, own_ns: 324.0 },
    Insert { figure: 9, cores: 8, lru_ns: 141_181.0, fifo_ns: 1_688.0, own_ns: 3_636.0 },
];

/// Table 1.
#[derive(Debug, Clone, Copy)]
pub struct Sync {
    /// As the table calls it.
    pub name: &'static str,
    /// Operations a second.
    pub operations: u64,
    /// Share of hits.
    pub hit_ratio: f64,
}

/// Its three: synchronous, asynchronous, each core by itself.
pub const SYNCS: [Sync; 3] = [
    Sync { name: "one main, synchronous", operations: 10_691_274, hit_ratio: 0.6804 },
    Sync { name: "one main, asynchronous", operations: 27_460_288, hit_ratio: 0.6838 },
    Sync { name: "single operation", operations: 75_897_206, hit_ratio: 0.1432 },
];

/// Table 2, cited by the paper from others apart from the first.
#[derive(Debug, Clone, Copy)]
pub struct System {
    /// Which.
    pub name: &'static str,
    /// Share of gets, in percent.
    pub get_percent: u8,
    /// Cores, or what it ran on.
    pub cores: &'static str,
    /// Million operations a second.
    pub mops: f64,
}

/// All its rows.
pub const SYSTEMS: [System; 6] = [
    System { name: "the paper's", get_percent: 30, cores: "8", mops: 27.2 },
    System { name: "MICA", get_percent: 50, cores: "8", mops: 32.8 },
    System { name: "MemC3", get_percent: 85, cores: "8", mops: 4.8 },
    System { name: "LaKe", get_percent: 100, cores: "FPGA", mops: 13.1 },
    System { name: "Masstree", get_percent: 100, cores: "16", mops: 9.93 },
    System { name: "Cavast", get_percent: 0, cores: "6", mops: 4.2 },
];

/// Memory of the hit ratio tests, GB.
pub const MEMORY_GB: u32 = 8;

/// Distinct names of the hit ratio tests, GB.
pub const NAMES_GB: u32 = 17;

/// Sizes of memory in Figure 13.
pub const SIZES: u32 = 9;
