//! Gives the shared library its soname, and the tests of this package its number. Its symbols get their versions
//! when it is installed: see workshop/package/src/install/relink.rs.

include!("soname.rs");
/// The version of the first release with this soname.
const SINCE: &str = "0.1.0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=soname.rs");
    println!("cargo:rustc-env=PAGEPOOL_SONAME_NUMBER={SONAME_NUMBER}");
    println!("cargo:rustc-env=PAGEPOOL_SONAME_SINCE={SINCE}");
    println!("cargo:rustc-env=PAGEPOOL_SONAME=libpagepool.so.{SONAME_NUMBER}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpagepool.so.{SONAME_NUMBER}");
}
