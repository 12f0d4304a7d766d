//! Limits of a process: on the size of files, which is met as a full disk is, and on CPU time; and names that
//! are none of files.

use std::fs;
use std::path::Path;

use crate::between::{Place, binary, capture, far_ends, frames, hosts, number, send, signal, text};
use crate::program::limits::{limited, run};
use pagepool_lab::TempFolder;
use pagepool_link::TwoHostsParams;

/// The names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let all = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<_> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_limit_on_file_sizes_is_an_error_of_every_command() {
    let folder = TempFolder::new("pagepool-limit").expect("a new folder");
    let (out, prom) = (folder.path().join("out"), folder.path().join("x.prom"));
    let [at, prom] = [folder.path(), &prom].map(|path| path.to_str().expect("text"));
    for arguments in [
        &["list", "--json"][..],
        &["--help"],
        &["export"],
        &["demo", "--on", "memory", "--seconds", "60", "--json=lines", "--publish=none"],
    ] {
        let output = run(limited("-f 0", arguments, &format!(">{}", out.display())));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {:?} {said}", output.status);
        assert!(said.ends_with("pagepool: cannot write results: File too large\n"), "{arguments:?}: {said}");
    }
    fs::remove_file(&out).expect("the shell made it");
    let output = run(limited("-f 0", &["export", "--textfile", prom], ""));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("cannot write") && names(folder.path()).is_empty(), "{output:?}");
    let output = run(limited("-f 0", &["man", "--dir", at], ""));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("File too large"), "{output:?}");
}

#[test]
fn a_capture_that_meets_a_limit_ends_with_a_whole_packet() {
    let name = "a_capture_that_meets_a_limit_ends_with_a_whole_packet";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let folder = TempFolder::new("pagepool-limit").expect("a new folder");
    let file = folder.path().join("limited.pcap");
    let arguments = ["drop", "near0", "--pcap", file.to_str().expect("text")];
    let command = limited("-f 10", &arguments, "");
    let Some(running) = Place::Between(&hosts).start_command(name, command) else { return };
    let ([far, _], frames) = (far_ends(&hosts), frames(&hosts, 0, 777));
    let mut frame = vec![0; 777];
    for number in 0..200 {
        frames.write(number, &mut frame);
        send(&far, &frame);
    }
    running.wait_for_words("no more packets are written to it");
    signal("-INT", running.id());
    let (document, _) = running.fails(&["is incomplete: File too large"]);
    let (packets, length) = (capture(&file), fs::metadata(&file).expect("it is there").len());
    // Blocks of 512 bytes, or in some shells of 1024.
    assert!((5120 - 777..=10_240).contains(&length), "{length} bytes");
    assert_eq!(packets.len() as u64, number(&document, "captured"), "{document}");
    let all = number(&document, "captured") + number(&document, "not_captured");
    assert_eq!(all, number(&document, "received"), "{document}");
}

#[test]
fn a_limit_on_cpu_time_ends_a_run_with_its_verdict() {
    let demo = ["demo", "--on", "memory", "--seconds", "600", "--json", "--publish=none"];
    let output = run(limited("-S -t 1", &demo, ""));
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{:?}: {shown}{said}", output.status);
    assert!(shown.contains("\"ok\": true"), "{shown}{said}");
}

#[test]
fn a_hyphen_is_the_name_of_no_file() {
    for arguments in
        [&["drop", "nope0", "--pcap", "-"][..], &["export", "--textfile", "-"], &["man", "--dir", "-"]]
    {
        let output = run(binary(arguments));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("use `./-`"), "{arguments:?}: {said}");
    }
}
