//! The command `guest`: what it refuses, what it skips, and a program in a guest if this machine has a
//! kernel.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use pagepool_lab::TempFolder;
use pagepool_lab::guest::{CASE_GUESTS, CASES, CaseTable, GuestCard, HostTools, SUITES};

fn guest(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_guest"));
    command.args(words);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_machine_without_qemu_skips_and_says_what_to_install() {
    let mut command = guest(&["run", "true"]);
    let output = command.env("PATH", "/nonexistent").env_remove("GUEST_QEMU").output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(77), "{said}");
    assert!(said.starts_with("SKIP guest: ") && said.contains("qemu-system-x86"), "{said}");
}

#[test]
fn what_cannot_be_is_refused_with_its_name() {
    let Ok(tools) = HostTools::find() else {
        println!("SKIP what_cannot_be_is_refused_with_its_name: no QEMU");
        return;
    };
    // A folder is a kernel; this one is never booted.
    let folder = TempFolder::new("guest-kernel").unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("vmlinuz"), "").unwrap();
    let kernel = folder.to_str().unwrap();
    for (words, named) in [
        (&["--nodes", "9", "true"][..], "9 nodes"),
        (&["--nodes", "two", "true"], "--nodes is two"),
        (&["--cpus", "1", "--nodes", "2", "true"], "2 nodes with 1 CPUs"),
        (&["--nic", "ne2000", "true"], "`ne2000`"),
        (&["--iommu", "amd", "true"], "--iommu is amd"),
        (&["--speed", "9", "true"], "--speed"),
        (&["--mem"], "--mem requires a value"),
        (&["--"], "no program"),
        (&["--mem", "64", "true"], "64 MiB"),
        (&["true"], "lib/modules"),
    ] {
        let words: Vec<_> = ["run", "--kernel", kernel].iter().chain(words).copied().collect();
        let output =
            guest(&words).env("GUEST_CACHE", folder).env("GUEST_QEMU", &tools.qemu).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {said}");
        assert!(said.contains(named), "{words:?}: {said}");
    }
}

/// A QEMU that takes its time, and a kernel that has all modules in itself.
#[test]
fn a_late_refusal_of_qemu_is_reported_in_its_own_words() {
    let folder = TempFolder::new("guest-refused").unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("vmlinuz"), "").unwrap();
    std::fs::create_dir_all(at("lib/modules/1")).unwrap();
    let builtin = "kernel/virtio_pci.ko\nkernel/virtio_console.ko\n";
    std::fs::write(at("lib/modules/1/modules.builtin"), builtin).unwrap();
    // By a process of its own: a program that this one has open for writing, or a child that it has just
    // forked on another thread, does not start (ETXTBSY).
    let script =
        r#"printf '#!/bin/sh\nsleep 0.3\necho no such device >&2\nexit 3\n' >"$0" && chmod 755 "$0""#;
    assert!(Command::new("sh").args(["-c", script]).arg(at("qemu")).status().unwrap().success());
    let kernel = folder.path().to_str().unwrap();
    let output = guest(&["run", "--kernel", kernel, "true"]).env("GUEST_QEMU", at("qemu")).output().unwrap();
    let said = said(&output);
    if output.status.code() == Some(77) {
        return println!("SKIP a_late_refusal_of_qemu_is_reported_in_its_own_words: {said}");
    }
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("exit status: 3: no such device"), "{said}");
}

#[test]
fn a_word_that_no_case_has_is_an_error() {
    let output = guest(&["cases", "--only", "no such case"]).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("--only is `no such case`"), "{said}");
}

#[test]
fn a_limit_of_time_leaves_out_what_is_run_by_hand() {
    let by_hand = CASES.iter().find(|case| case.by_hand).expect("there is one");
    let name = format!("{}/{}", by_hand.guest, by_hand.name);
    let output = guest(&["cases", "--only", &name, "--within", "100"]).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(77), "{said}");
    assert!(said.starts_with(&format!("SKIP {name}: ")) && said.lines().count() == 1, "{said}");
}

/// Only with a kernel that is in the cache: a test downloads nothing.
#[test]
fn a_program_runs_as_root_and_its_status_comes_back() {
    let name = "a_program_runs_as_root_and_its_status_comes_back";
    let cached = HostTools::find().ok().and_then(|tools| {
        let has = |suite: &str| tools.cache.join("kernels").join(suite).join("vmlinuz").exists();
        SUITES.iter().find(|(_, suite)| has(suite)).map(|(version, _)| *version)
    });
    let Some(kernel) = cached else {
        println!("SKIP {name}: no QEMU, or no kernel in the cache: `guest fetch {}`", SUITES[1].0);
        return;
    };
    let program = "echo out; echo err >&2; echo left >/out/file; test $(id -u) = 0 && exit 9";
    let folder = TempFolder::new("guest-out").unwrap();
    let out = folder.path();
    let words = ["run", "--kernel", kernel, "--timeout", "200", "--out", out.to_str().unwrap()];
    let output = guest(&words).args(["--", "sh", "-c", program]).output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{}", said(&output));
    assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(std::fs::read_to_string(out.join("file")).unwrap(), "left\n");
}

#[test]
fn the_table_of_the_document_has_the_rows_of_the_list() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guests.md");
    let Ok(document) = std::fs::read_to_string(document) else {
        println!("SKIP the_table_of_the_document_has_the_rows_of_the_list: a package has no docs");
        return;
    };
    let table = CaseTable::of(&document).expect("docs/guests.md has a table");
    let lacks = CASES.iter().filter(|case| table.row_of(case).is_none());
    let lacks: Vec<_> = lacks.map(|case| format!("{}/{}", case.guest, case.name)).collect();
    assert!(
        lacks.is_empty(),
        "docs/guests.md lacks {lacks:?}: cargo run -p pagepool-lab --bin guest -- cases --only NAME --table \
         docs/guests.md"
    );
    assert_eq!(table.rows(), CASES.len(), "docs/guests.md has rows of cases that are not in the list");
    assert_eq!(table.with(&[], ""), document, "the order of the rows is that of the list");
}

#[test]
fn each_case_has_a_guest_and_a_name_of_its_own() {
    let names: BTreeSet<_> = CASES.iter().map(|case| (case.guest, case.name)).collect();
    assert_eq!(names.len(), CASES.len());
    for case in CASES {
        assert!(CASE_GUESTS.iter().any(|guest| guest.name == case.guest), "{case:?}");
    }
    let about: BTreeSet<_> = CASE_GUESTS.iter().map(|guest| (guest.kernel, guest.about)).collect();
    assert_eq!(about.len(), CASE_GUESTS.len(), "the table tells guests apart by these");
    for guest in CASE_GUESTS {
        assert!(SUITES.iter().any(|(version, _)| *version == guest.kernel), "{guest:?}");
        assert!(guest.cards.iter().all(|card| GuestCard::new(card).is_ok()), "{guest:?}");
    }
}
