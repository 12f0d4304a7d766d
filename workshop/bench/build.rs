//! Passes on which compiler, and which profile, because a bench without them cannot be compared.

use std::path::Path;
use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok();
    let version = version.and_then(|o| String::from_utf8(o.stdout).ok()).unwrap_or_default();
    println!("cargo:rustc-env=PAGEPOOL_RUSTC={}", version.trim());
    println!("cargo:rustc-env=PAGEPOOL_PROFILE={}", profile());
    println!("cargo:rerun-if-changed=build.rs");
}

/// The profile's own name, from `target/PROFILE/build/PACKAGE/out`: cargo's variable has that of the profile
/// that it inherits from.
fn profile() -> String {
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let build = Path::new(&out).ancestors().find(|folder| folder.ends_with("build"));
    let name = build.and_then(|build| build.parent()?.file_name()?.to_str());
    name.map_or_else(|| std::env::var("PROFILE").unwrap_or_default(), str::to_owned)
}
