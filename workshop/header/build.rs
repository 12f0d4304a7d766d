//! The soname of the C library, which is in the version script and in the list of what programs rely on.

include!("../../crates/pagepool-capi/soname.rs");

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../../crates/pagepool-capi/soname.rs");
    print_variables();
}
