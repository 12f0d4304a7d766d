//! The example answers the packets that its XDP program redirects, and no others.

use std::path::Path;
use std::process::Command;

fn answers(arguments: &[&str]) {
    match lab::echo::ask(Path::new(env!("CARGO_BIN_EXE_pagepool-with-aya")), arguments) {
        Ok(others) => assert_eq!(others, 0, "port 9 belongs to the kernel"),
        Err(error) if error.is::<lab::Skip>() => println!("SKIP aya: {error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn with_the_committed_object() {
    answers(&[]);
}

#[test]
fn with_an_object_from_source() {
    let can = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|done| done.status.success())
    };
    let source = "test -e $(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library";
    if !can("bpf-linker", &["--version"]) || !can("sh", &["-c", source]) {
        return println!("SKIP with_an_object_from_source: no bpf-linker, or no nightly with rust-src");
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("udp_port_7.o");
    let object = object.to_str().expect("the path is UTF-8");
    let built = Command::new(here.join("build-xdp")).arg(object).output().expect("build-xdp runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    answers(&[object]);
}
