//! The example answers what its XDP part takes, and nothing else.

use std::path::Path;
use std::process::Command;

fn answers(arguments: &[&str]) {
    match lab::echo::ask(Path::new(env!("CARGO_BIN_EXE_pagepool-with-aya")), arguments) {
        Ok(others) => assert_eq!(others, 0, "these are for the kernel"),
        Err(error) if error.is::<lab::Missing>() => println!("SKIP aya: {error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn with_the_object_that_is_here() {
    answers(&[]);
}

#[test]
fn with_one_that_is_built_from_the_source() {
    let can = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|done| done.status.success())
    };
    let source = "test -e $(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library";
    if !can("bpf-linker", &["--version"]) || !can("sh", &["-c", source]) {
        return println!("SKIP with_one_that_is_built: no bpf-linker, or no nightly toolchain with rust-src");
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("udp_port_7.o");
    let object = object.to_str().expect("a path in UTF-8");
    let built = Command::new(here.join("build-xdp")).arg(object).output().expect("it is a program");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    answers(&[object]);
}
