//! Gives the shared library its soname, and the tests of this package its number. Its symbols get their versions
//! when it is installed: see workshop/package/src/install/relink.rs.

include!("soname.rs");

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=soname.rs");
    print_variables();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpagepool.so.{SONAME_NUMBER}");
}
