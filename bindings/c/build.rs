//! Names the shared library by the version of its interface, so that programs find one that fits.

fn main() {
    println!("cargo:rerun-if-changed=include/larder.h");
    let header = std::fs::read_to_string("include/larder.h").unwrap_or_default();
    let version = header.lines().find_map(|line| line.strip_prefix("#define LARDER_ABI_VERSION "));
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux")
        && let Some(version) = version
    {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblarder.so.{version}");
        // A thread keeps the time until the process ends: its code must not be unmapped.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
