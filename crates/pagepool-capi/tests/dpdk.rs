//! The mempool driver of `examples/dpdk`, against Debian's DPDK: a program that checks what mempools promise,
//! DPDK's own tests of mempools and mbufs, and its forwarder over AF_XDP between two hosts. A machine without
//! DPDK prints SKIP and the reason.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pagepool_lab::{FrameBatch, FrameGenerator, FrameSocket, GeneratorMode, GeneratorParams, or_skip};
use pagepool_link::{Host, TwoHosts, TwoHostsParams};
use pagepool_net::{Arrival, NumberedFrames, Tally};

use crate::installed::{self, prefix, run};
use crate::testpmd::Testpmd;

/// What DPDK's own allocator is called.
const RING: &str = "ring_mp_mc";
const SANITIZED: [&str; 3] = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
/// Nothing of a test's takes as long.
const LIMIT: Duration = Duration::from_secs(60);

// ---- Building and running ----

/// Whether DPDK, its programs and two processors are there; prints SKIP and what is missing if not.
fn has_dpdk(test: &str) -> bool {
    let works =
        |tool: &str, arg: &str| Command::new(tool).arg(arg).output().is_ok_and(|done| done.status.success());
    let dpdk = Command::new("pkg-config")
        .args(["--exists", "libdpdk"])
        .status()
        .is_ok_and(|status| status.success());
    let there = |program: &str| Path::new("/usr/bin").join(program).exists();
    let missing = [
        (!works("cc", "--version"), "a C compiler"),
        (!dpdk, "libdpdk, which pkg-config finds (Debian: libdpdk-dev, pkg-config)"),
        (
            !there("dpdk-testpmd") || !there("dpdk-test"),
            "dpdk-testpmd and dpdk-test (Debian: dpdk, dpdk-dev)",
        ),
        (!works("timeout", "--version") || !works("stdbuf", "--version"), "timeout and stdbuf (coreutils)"),
        (thread::available_parallelism().is_ok_and(|n| n.get() < 2), "a second processor"),
    ];
    for (_, what) in missing.iter().filter(|(missing, _)| *missing) {
        println!("SKIP {test}: this machine has no {what}");
    }
    missing.iter().all(|(missing, _)| !missing)
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dpdk").join(name)
}

/// An empty folder of this name.
fn empty_folder(name: &str) -> PathBuf {
    let folder = installed::temporary().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A folder with the driver and this file of the example beside it, compiled with these flags. DPDK's
/// functions are mostly inline, so what is not needed is not compiled.
fn compiled(how: &str, file: &str, flags: &[&str]) -> PathBuf {
    let folder = empty_folder(&format!("dpdk-{how}"));
    let cflags = run(Command::new("pkg-config").args(["--cflags", "libdpdk"]));
    let cflags = String::from_utf8(cflags.stdout).unwrap();
    let cc = |file: &str, to: &str, rest: &[&str]| {
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror"])
            .args(flags)
            .args(cflags.split_whitespace());
        cc.arg("-I").arg(prefix().join("include")).arg(source(file)).arg("-o").arg(folder.join(to));
        run(cc.args(rest));
    };
    let library = prefix().join("lib/libpagepool.a").display().to_string();
    let shared = ["-shared", "-fPIC"];
    let driver =
        ["-DALLOW_INTERNAL_API", &library, "-Wl,--exclude-libs,ALL", "-lrte_mempool", "-lrte_eal", "-lm"];
    cc("pagepool_mempool.c", "librte_mempool_pagepool.so", &[&shared[..], &driver[..]].concat());
    let program = [
        "-lrte_ring",
        "-lrte_mbuf",
        "-lrte_mempool",
        "-lrte_eal",
        "-Wl,--no-as-needed",
        "-lrte_mempool_ring",
    ];
    match file {
        "check.c" => cc(file, "check", &program),
        "cost.c" => cc(file, "cost", &[&program[..], &["-lrte_mempool_stack"]].concat()),
        "every_mempool.c" => cc(file, "every_mempool.so", &[&shared[..], &["-ldl"]].concat()),
        _ => {}
    }
    folder
}

/// A program under DPDK: no huge pages and no devices are needed, and nothing is left behind. The driver is
/// named as one of the system, for EAL loads none from below a folder that everybody may write to.
fn under_dpdk(program: &Path, folder: &Path, ops: &str) -> Command {
    under_dpdk_on("0,1", program, folder, ops)
}

/// The same, on these lcores.
fn under_dpdk_on(lcores: &str, program: &Path, folder: &Path, ops: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "240"]).arg(program);
    command.args(["-l", lcores, "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--no-shconf"]);
    command.args(["-d", "librte_mempool_pagepool.so", "--log-level=mempool.pagepool:info"]);
    command.arg(format!("--mbuf-pool-ops-name={ops}"));
    command
        .env("LD_LIBRARY_PATH", folder)
        .env("RUNTIME_DIRECTORY", folder)
        .current_dir(installed::temporary());
    command
}

/// What the driver said of a mempool.
#[derive(Debug)]
struct Said {
    mempool: String,
    gets: u64,
    missing: u64,
    refused: u64,
}

/// Every such line, of mempools that were freed or were there at the end.
fn said(text: &str) -> Vec<Said> {
    let number = |line: &str, what: &str| -> u64 {
        let before = line.split_once(what).unwrap().0.trim_end();
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let lines = text.lines().filter_map(|line| line.split_once(": mempool ")?.1.split_once(": "));
    let lines = lines.filter(|(_, rest)| rest.contains("objects in pages"));
    lines
        .map(|(mempool, rest)| Said {
            mempool: mempool.into(),
            gets: number(rest, " gets"),
            missing: number(rest, " missing"),
            refused: number(rest, " refused"),
        })
        .collect()
}

// ---- Programs ----

#[test]
fn mempools_keep_what_they_promise() {
    if !has_dpdk("mempools_keep_what_they_promise") {
        return;
    }
    let folder = compiled("plain", "check.c", &["-O2"]);
    for spread in ["0", "1"] {
        let done = run(under_dpdk(&folder.join("check"), &folder, "pagepool").env("PAGEPOOL_SPREAD", spread));
        assert!(String::from_utf8_lossy(&done.stdout).contains("all objects of pagepool are in the pool"));
        let said = said(&String::from_utf8_lossy(&done.stderr));
        assert_eq!(said.len(), 9, "{said:?}");
        for said in &said {
            let refused = if said.mempool == "twice" { 2 } else { 0 };
            assert_eq!((said.missing, said.refused), (0, refused), "{said:?}");
        }
    }
}

/// Prints what a mempool costs over the pool and over DPDK's drivers, in turn.
#[test]
#[ignore = "a measurement: examples/run adapters"]
fn costs_of_mempools() {
    if !has_dpdk("costs_of_mempools") {
        return;
    }
    let folder = compiled("cost", "cost.c", &["-O2"]);
    let cost = run(&mut under_dpdk(&folder.join("cost"), &folder, "pagepool"));
    print!("{}", String::from_utf8_lossy(&cost.stdout));
}

#[test]
fn neither_valgrind_nor_the_address_sanitizer_finds_anything() {
    let test = "neither_valgrind_nor_the_address_sanitizer_finds_anything";
    if !has_dpdk(test) {
        return;
    }
    let folder = compiled("sanitized", "check.c", &SANITIZED);
    run(&mut under_dpdk(&folder.join("check"), &folder, "pagepool"));
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|done| done.status.success()) {
        return println!("SKIP {test}: this machine has no valgrind");
    }
    let folder = compiled("for-valgrind", "check.c", &["-O2", "-gdwarf-4", "-DPACKETS=2000"]);
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite", "--error-exitcode=9"]);
    let check = under_dpdk(&folder.join("check"), &folder, "pagepool");
    command.args(check.get_args().skip(2)).env("LD_LIBRARY_PATH", &folder).env("RUNTIME_DIRECTORY", &folder);
    run(command.current_dir(installed::temporary()));
}

/// What DPDK's tests of mempools and mbufs print; `every`: with all mempools, not only those of mbufs.
fn dpdk_tests(folder: &Path, ops: &str, every: bool) -> [String; 2] {
    let mut command = under_dpdk(Path::new("dpdk-test"), folder, ops);
    command.env("LD_PRELOAD", folder.join("every_mempool.so"));
    if every {
        command.env("EVERY_MEMPOOL", ops);
    }
    let mut tests =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    tests.stdin.take().unwrap().write_all(b"mempool_autotest\nmbuf_autotest\nquit\n").unwrap();
    let done = tests.wait_with_output().unwrap();
    let text = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(done.status.success(), "{}: {}{}", done.status, text[0], text[1]);
    assert_eq!(text[0].matches("Test OK").count(), 2, "{}{}", text[0], text[1]);
    text
}

#[test]
fn dpdks_tests_of_mempools_and_mbufs_pass() {
    if !has_dpdk("dpdks_tests_of_mempools_and_mbufs_pass") {
        return;
    }
    let folder = compiled("tests", "every_mempool.c", &["-O2"]);
    // The tests themselves leave some objects behind: as many of ours as of DPDK's own.
    let missing_objects = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.split_once("every_mempool: ")?.1.to_owned())).collect()
    };
    let expected = missing_objects(&dpdk_tests(&folder, RING, false)[1]);
    assert!(expected.len() > 20, "{expected:?}");
    for every in [false, true] {
        let [out, err] = dpdk_tests(&folder, "pagepool", every);
        assert!(out.contains("Testing pagepool mempool handler"), "{out}");
        let said = said(&err);
        let gets = |name: &str| said.iter().find(|said| said.mempool == name).map_or(0, |said| said.gets);
        assert!(gets("default_pool") > 1000 && gets("refcnt_pool") > 1000, "{said:?}");
        assert_eq!(gets("test_nocache") > 1000, every, "{said:?}");
        assert!(said.iter().all(|said| said.refused == 0), "{said:?}");
        assert_eq!(that_compare(&missing_objects(&err)), that_compare(&expected), "every: {every}");
    }
}

/// Without those mempools that get as many objects as fit some memory, for an object of ours is larger, and
/// the one whose last object is missing or not, as its two threads happen to end.
fn that_compare(lines: &[String]) -> Vec<&String> {
    let differs = |line: &&String| line.starts_with("empty: ") || line.starts_with("test_mempool_sp_sc: ");
    lines.iter().filter(|line| !differs(line)).collect()
}

// ---- The forwarder ----

const MBUFS: u64 = 16384;
/// Of each port: what the AF_XDP driver keeps in the kernel's fill ring, and the frame that it sent last, for
/// it looks for those that are sent only when it sends.
const IN_RINGS: u64 = 2048 + 1;
const FRAMES: u64 = 2_000;
/// How long as many frames go as go.
const FULL_LOAD: Duration = Duration::from_millis(700);
/// Frames under way at most: a veth has room for 256, and drops what a forwarder sends beyond.
const WINDOW: u64 = 128;

/// Sends numbered frames from one host to the other, each once, and looks at what is in those that arrive.
fn carry(from: &Host, to: &Host, size: usize, count: u64) {
    let sockets = [from, to].map(|host| FrameSocket::of(host).unwrap());
    let frames = NumberedFrames::between(&from.link, &to.link, size).unwrap();
    let (mut frame, mut batch, mut tally) = (vec![0; size], FrameBatch::new(2048), Tally::new(count));
    let (start, mut sent) = (Instant::now(), 0);
    while tally.good < count && start.elapsed() < LIMIT {
        while sent < count && sent - tally.good < WINDOW {
            frames.write(sent, &mut frame);
            sent += u64::from(sockets[0].send(&frame).unwrap());
        }
        if sockets[1].wait(Duration::from_millis(100)) {
            sockets[1].receive_many(&mut batch).unwrap();
            for frame in batch.frames() {
                tally.take(frame);
            }
        }
    }
    assert_eq!((tally.missing(sent), tally.again, tally.beyond, tally.corrupt), (0, 0, 0, 0), "{tally:?}");
    assert_eq!(sent, count);
}

/// Forwards frames of all sizes both ways, then as many as go, then a last one each way; `cache` is the size
/// of the cache that each lcore has in front of the driver. Gives what the forwarder printed.
fn forward(hosts: &TwoHosts, folder: &Path, ops: &str, cache: u32) -> String {
    let command = under_dpdk(Path::new("stdbuf"), folder, ops);
    let mut testpmd = Testpmd::start(hosts, command, MBUFS, cache);
    for size in [60, 590, 1514] {
        carry(&hosts.a, &hosts.b, size, FRAMES);
        carry(&hosts.b, &hosts.a, size, FRAMES);
    }
    testpmd.ask("clear fwd stats all", "testpmd>");
    let frames = NumberedFrames::between(&hosts.a.link, &hosts.b.link, 60).unwrap();
    let params = GeneratorParams {
        frames,
        count: u64::MAX,
        limit: FULL_LOAD,
        per_second: None,
        mode: GeneratorMode::Xdp,
    };
    match FrameGenerator::start(&hosts.a.namespace, &hosts.a.link.name, params) {
        Ok(source) => drop(source.join().unwrap()),
        Err(error) => println!("SKIP as many frames as go: {error}"),
    }
    drain(&hosts.a, &hosts.b);
    let start = Instant::now();
    loop {
        carry(&hosts.a, &hosts.b, 60, 1);
        carry(&hosts.b, &hosts.a, 60, 1);
        testpmd.ask("dump_mempool mb_pool_0", "no statistics available");
        // It learns of what the kernel has sent when it sends again.
        if in_rings(&testpmd.printed(), cache) == 2 * IN_RINGS || start.elapsed() > LIMIT {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    testpmd.ask("stop", "Done.");
    testpmd.ask("dump_mempool mb_pool_0", "no statistics available");
    testpmd.quit()
}

/// Waits until everything that was sent is through: frames arrive in order, so the last one arrives last.
/// Where a queue was full, another one follows it.
fn drain(from: &Host, to: &Host) {
    let sockets = [from, to].map(|host| FrameSocket::of(host).unwrap());
    let frames = NumberedFrames::between(&from.link, &to.link, 60).unwrap();
    let (mut frame, mut batch, mut tally) = ([0; 60], FrameBatch::new(2048), Tally::new(1 << 20));
    let start = Instant::now();
    for number in 1.. {
        frames.write(number, &mut frame);
        let _ = sockets[0].send(&frame).unwrap();
        while sockets[1].wait(Duration::from_millis(500)) {
            sockets[1].receive_many(&mut batch).unwrap();
            if batch.frames().any(|frame| tally.take(frame) == Arrival::Good(number)) {
                return;
            }
        }
        assert!(start.elapsed() < LIMIT, "{tally:?} of {number}");
    }
}

/// The mbufs that are not in the mempool, nor in an lcore's cache, as the forwarder printed it last.
fn in_rings(text: &str, cache: u32) -> u64 {
    let cached = if cache > 0 { last(text, "total_cache_count=") } else { 0.0 };
    MBUFS - (last(text, "common_pool_count=") + cached) as u64
}

/// The number behind a word, the last time it is printed.
fn last(text: &str, word: &str) -> f64 {
    let rest = text.rsplit_once(word).unwrap_or_else(|| panic!("no {word:?} in {text}")).1.trim_start();
    rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Every mbuf is in the mempool, in an lcore's cache, or in the rings; and the requested driver served them.
fn account(text: &str, ops: &str, cache: u32) {
    assert!(text.contains(&format!("ops_name: <{ops}>")), "{text}");
    assert_eq!(in_rings(text, cache), 2 * IN_RINGS, "{ops}: in the rings are {IN_RINGS} a port\n{text}");
    let said = said(text);
    let gets = said.first().map_or(0, |said| said.gets);
    if ops == "pagepool" {
        let [Said { mempool, refused: 0, .. }] = &said[..] else { panic!("{said:?}") };
        assert_eq!(mempool, "mb_pool_0");
        assert!(gets >= if cache > 0 { 2 * IN_RINGS } else { 2 * IN_RINGS + 6 * FRAMES }, "{said:?}");
    }
    let (cycles, frames) = (last(text, "CPU cycles/packet="), last(text, "RX-packets:"));
    println!(
        "testpmd, {ops}, cache {cache}: {cycles} cycles per frame, {frames} frames, most in {FULL_LOAD:?}; \
         {gets} gets"
    );
}

#[test]
fn the_forwarder_loses_nothing_over_af_xdp() {
    let test = "the_forwarder_loses_nothing_over_af_xdp";
    if !has_dpdk(test) {
        return;
    }
    let folder = compiled("forwarder", "", &["-O2"]);
    // Without a cache DPDK's own would get to objects that the device has not in its UMEM: see note 0011.
    for (ops, cache) in [("pagepool", 250), (RING, 250), ("pagepool", 0)] {
        let Some(hosts) = or_skip(test, TwoHosts::new(&TwoHostsParams::default())) else { return };
        account(&forward(&hosts, &folder, ops, cache), ops, cache);
    }
}
