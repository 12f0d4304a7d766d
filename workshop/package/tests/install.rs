//! The install command: its settings, and the files that it lays out.

use std::fs;
use std::path::Path;
use std::process::Command;

use pagepool_lab::{TempFolder, has_tool as has, run};

use crate::installed::prefix;

const SONAME: &str = env!("PAGEPOOL_SONAME");

#[test]
fn the_layout_is_what_packages_expect() {
    let lib = prefix().join("lib");
    for header in ["pagepool.h", "pagepool_skb.h", "pagepool.hpp", "pagepool_skb.hpp"] {
        assert!(prefix().join("include").join(header).is_file(), "{header}");
    }
    assert!(lib.join("libpagepool.a").is_file());
    assert_eq!(fs::read_link(lib.join("libpagepool.so")).unwrap(), Path::new(SONAME));
    let version = env!("CARGO_PKG_VERSION");
    let versioned = format!("libpagepool.so.{version}");
    assert_eq!(fs::read_link(lib.join(SONAME)).unwrap(), Path::new(&versioned));
    let pc = fs::read_to_string(lib.join("pkgconfig/pagepool.pc")).unwrap();
    assert!(pc.contains("prefix=/opt/pagepool\n") && pc.contains(&format!("Version: {version}\n")), "{pc}");
    assert!(!pc.contains('@'), "{pc}");
    if has("readelf") {
        let dynamic = run(Command::new("readelf").arg("-d").arg(lib.join(versioned)));
        let dynamic = String::from_utf8(dynamic.stdout).unwrap();
        assert!(dynamic.contains(&format!("soname: [{SONAME}]")), "{dynamic}");
    }
}

#[test]
fn an_argument_that_is_no_setting_is_refused() {
    let install = env!("CARGO_BIN_EXE_pagepool-install");
    let refused = |argument: &str, why: &str| {
        let done = Command::new(install).arg(argument).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.starts_with("pagepool: ") && said.contains(why), "{argument}: {said}");
        assert_eq!(done.status.code(), Some(1));
    };
    refused("--help", "only PREFIX=");
    refused("PREFIX=here", "must be an absolute path");
    refused("PARTS=header", "the parts are library and command");
}

#[test]
fn without_objcopy_install_warns_and_keeps_the_archive() {
    if !has("cc") {
        return;
    }
    let folder = TempFolder::new("pagepool-no-objcopy").expect("a temporary folder");
    let destdir = folder.path();
    let mut install = Command::new(env!("CARGO_BIN_EXE_pagepool-install"));
    install.env("DESTDIR", destdir).env("PREFIX", "/opt").env("PARTS", "library").env_remove("LIBDIR");
    let done = run(install.env("OBJCOPY", "/nowhere/objcopy"));
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(text.contains("warning: all symbols of Rust's") && text.contains("/nowhere/objcopy"), "{text}");
    assert!(fs::metadata(destdir.join("opt/lib/libpagepool.a")).unwrap().len() > 0);
    if has("nm") {
        let mut nm = Command::new("nm");
        let listed = run(nm.args(["-D", "--defined-only"]).arg(destdir.join("opt/lib/libpagepool.so")));
        let version = concat!(" PAGEPOOL_", env!("PAGEPOOL_SONAME_NUMBER"));
        assert!(String::from_utf8_lossy(&listed.stdout).lines().any(|line| line.ends_with(version)));
    }
}
