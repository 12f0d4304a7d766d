//! Gives the shared library its soname. Its symbols get their versions when it is installed: see
//! src/bin/install/relink.rs.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpagepool.so.0");
}
