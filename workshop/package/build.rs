//! The soname of the C library, which is in the names of its files and its packages.

include!("../../crates/pagepool-capi/soname.rs");

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../../crates/pagepool-capi/soname.rs");
    print_variables();
}
