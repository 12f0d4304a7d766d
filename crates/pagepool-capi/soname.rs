/// The number of the soname. A release that breaks compiled programs takes the next number, and its own version
/// as `SINCE`: the crate pagepool-header then writes abi.txt and pagepool.map anew.
const SONAME_NUMBER: u32 = 0;
/// The version of the first release with this soname.
const SINCE: &str = "0.1.0";

/// Gives the soname to the code of the package that this is built for.
fn print_variables() {
    println!("cargo:rustc-env=PAGEPOOL_SONAME_NUMBER={SONAME_NUMBER}");
    println!("cargo:rustc-env=PAGEPOOL_SONAME_SINCE={SINCE}");
    println!("cargo:rustc-env=PAGEPOOL_SONAME=libpagepool.so.{SONAME_NUMBER}");
}
