//! The lines for bpftrace in docs/probes.md, all in one run of it over a program in which every probe fires.

use std::process::Command;

use crate::provoke;

/// How the lines name the program.
const PROGRAM: &str = "/usr/bin/pagepool";

#[test]
#[ignore = "what bpftrace runs"]
fn the_program_of_the_lines() {
    provoke::all();
}

#[test]
fn each_line_of_the_page_prints_what_it_finds() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/probes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("bpftrace -e '")?.strip_suffix('\''));
    let this = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let script: String = lines.map(|line| line.replace(PROGRAM, &this) + "\n").collect();
    let run = format!("{this} --exact bpftrace::the_program_of_the_lines --ignored");
    let done = match Command::new("bpftrace").args(["-e", &script, "-c", &run]).output() {
        Ok(done) => done,
        Err(error) => return println!("SKIP: bpftrace does not start: {error}"),
    };
    let [said, complaint] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    if !said.contains("Attaching ") {
        return println!("SKIP: bpftrace cannot attach here: {complaint}");
    }
    let printed = [
        "@pages_from_arena[",
        "@ring_full[",
        "@waived[",
        "@inflight[",
        "@wakes[",
        " MiB came, ",
        " MiB went, ",
        " pages out, ",
        " ms after its end",
    ];
    for text in printed {
        assert!(said.contains(text), "nothing printed {text:?}:\n{said}\n{complaint}");
    }
}
