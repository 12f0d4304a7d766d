//! What `doctor` finds: in programs that are ill on purpose, each in its own way, in commands on bad and good
//! interfaces, and in processes that died; and that it finds nothing where all is well.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::between::{LIMIT, Place, Running, Sets, binary, frames, hosts, signal, text, wait_until};
use pagepool::{Arena, ArenaParams, Backing, Bound, Holders, PageBuf, Pool, PoolParams, Tag, Topology};
use pagepool_lab::{FrameGenerator, GeneratorMode, GeneratorParams, LinkSettings, TempFolder};
use pagepool_link::{Ethtool, KernelPagePools, Namespace, Netlink, Offload, TwoHosts, TwoHostsParams};
use pagepool_net::KernelStackStats;
use pagepool_watch::RunFolder;
use serde_json::Value;

/// Which illness a program that this test starts shall have.
const ILLNESS: &str = "PAGEPOOL_TEST_ILLNESS";
/// As long a pool is taken for warming up.
const WARM: Duration = Duration::from_secs(5);

/// Each illness, the program that has it, and the rule that finds it.
const ILLNESSES: [(&str, fn(), &str); 13] = [
    ("small_ring", small_ring, "ring_full"),
    ("full_cache", full_cache, "cache_full"),
    ("slow_consumer", slow_consumer, "out_rising"),
    ("leak", leak, "out_rising"),
    ("off_node", off_node, "waived"),
    ("empty_arena", empty_arena, "starved"),
    ("same_offset", same_offset, "colour_lost"),
    ("small_pages", small_pages, "no_huge_pages"),
    ("late_buffer", late_buffer, "detached"),
    ("page_refs", page_refs, "referenced"),
    ("shrinking", shrinking, "slow"),
    ("almost_empty", almost_empty, "low_water"),
    ("refusing_stack", refusing_stack, "stack_refused"),
];

/// Pages of each queue of the program that leaks.
const LARGE: usize = 2000;
/// Bytes of each arena: what leaks a few pages at a time takes minutes to empty it.
const ARENA: u64 = 128 << 20;

/// A pool with colours over memory of its own.
fn pool(arena: ArenaParams, params: PoolParams) -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: ARENA, ..arena }).expect("memory");
    let max_len = if params.max_len == 0 { 2048 } else { params.max_len };
    Pool::new(PoolParams { max_len, ..params }, arena).expect("a pool").bind()
}

fn usual() -> Bound {
    pool(ArenaParams::default(), PoolParams::default())
}

/// A thread that drops what it is sent.
fn returner() -> SyncSender<Vec<PageBuf>> {
    let (send, receive) = sync_channel::<Vec<PageBuf>>(2);
    std::thread::spawn(move || receive.into_iter().for_each(drop));
    send
}

fn burst(pool: &Bound, pages: usize) -> Vec<PageBuf> {
    (0..pages).map_while(|_| pool.alloc_page()).collect()
}

/// What programs do all the time, until they are killed.
fn forever(mut round: impl FnMut()) {
    loop {
        round();
        sleep(Duration::from_millis(5));
    }
}

fn healthy() {
    let (pool, other) = (usual(), returner());
    forever(|| {
        drop(burst(&pool, 64));
        other.send(burst(&pool, 64)).expect("it waits for more");
    });
}

/// Other threads return more at once than lanes and ring take.
fn small_ring() {
    let pool = pool(
        ArenaParams::default(),
        PoolParams { ring_size: 2, max_lanes: 1, lane_size: 2, ..Default::default() },
    );
    let other = returner();
    forever(|| other.send(burst(&pool, 64)).expect("it waits for more"));
}

/// The owner itself returns more at once than the cache holds.
fn full_cache() {
    let pool = usual();
    forever(|| drop(burst(&pool, 1000)));
}

/// Passes on how many pages have become due since the last round: on a busy machine rounds are fewer, and
/// pages are not.
fn steadily(mut round: impl FnMut(usize)) {
    let (start, mut done) = (Instant::now(), 0);
    forever(|| {
        let due = (start.elapsed().as_secs_f64() * 300.0) as usize;
        round(due - done);
        done = due;
    });
}

/// A consumer that takes half of what it is sent.
fn slow_consumer() {
    let (pool, mut queue) = (usual(), Vec::new());
    steadily(|pages| {
        drop(burst(&pool, pages));
        queue.push(burst(&pool, pages));
    });
}

/// Beside four queues that hold more than is lost in a minute, and do not grow.
fn leak() {
    let holders = Holders::Sites { stacks: None };
    let pool = pool(ArenaParams::default(), PoolParams { holders, ..Default::default() });
    let queue = |name| {
        let mut pages = burst(&pool, LARGE);
        pages.iter_mut().for_each(|page| page.set_tag(Tag::new(name)));
        pages
    };
    let _queues = ["queue 1", "queue 2", "queue 3", "queue 4"].map(queue);
    steadily(|pages| burst(&pool, pages).into_iter().for_each(std::mem::forget));
}

/// The owner moves from node to node of a made-up machine of two.
fn off_node() {
    let here = Arc::new(AtomicU8::new(0));
    let topology = Topology::pretend_halves(2).with_current_node(here.clone());
    let (pool, other) =
        (pool(ArenaParams { topology, ..Default::default() }, PoolParams::default()), returner());
    let mut round = 0u8;
    forever(|| {
        other.send(burst(&pool, 64)).expect("it waits for more");
        round = (round + 1) % 20;
        if round == 0 {
            here.fetch_xor(1, Ordering::Relaxed);
        }
    });
}

fn empty_arena() {
    let pool = usual();
    let all = burst(&pool, usize::MAX);
    forever(|| assert!(pool.alloc_page().is_none() && all.len() > 32_000));
}

/// Whole pages for packets of any length, which leave no room for colours, and many of them out at once.
fn same_offset() {
    let pool = pool(ArenaParams::default(), PoolParams { max_len: 4096, ..Default::default() });
    let mut queue = VecDeque::from_iter((0..10).map(|_| burst(&pool, 100)));
    forever(|| {
        for _ in 0..4 {
            queue.pop_front();
            queue.push_back(burst(&pool, 100));
        }
    });
}

/// Small pages, and more of them than a TLB holds.
fn small_pages() {
    let (pool, other) = (
        pool(ArenaParams { backing: Backing::Anonymous4k, ..Default::default() }, PoolParams::default()),
        returner(),
    );
    let _queue = burst(&pool, 2500);
    forever(|| (0..4).for_each(|_| other.send(burst(&pool, 100)).expect("it waits for more")));
}

fn late_buffer() {
    let pool = usual();
    let late = pool.alloc_page();
    drop(pool);
    forever(|| assert!(late.is_some()));
}

/// Pages return while something else refers to them.
fn page_refs() {
    let pool = usual();
    forever(|| {
        let mut pages = burst(&pool, 64);
        let _refs: Vec<_> = pages.iter_mut().take(8).map(PageBuf::page_ref).collect();
        drop(pages);
    });
}

/// Memory is given back that is needed at once.
fn shrinking() {
    let pool = usual();
    forever(|| {
        drop(burst(&pool, 64));
        pool.shrink(0);
    });
}

/// Nearly all pages are out, and the pool still finds one.
fn almost_empty() {
    let pool = usual();
    let mut all = burst(&pool, usize::MAX);
    all.truncate(all.len() - 8);
    forever(|| drop(burst(&pool, 8)));
}

/// What a stack publishes whose kernel takes one of two packets: a real one needs root. It has counted when
/// the pool is there.
fn refusing_stack() {
    let (params, names) = ([("interface", "eth7"), ("ifindex", "7")], KernelStackStats::NAMES);
    let stack = pagepool::publish_entry("stack", 1, 0, "eth7", &params, names).expect("it publishes");
    let at = |counter| names.iter().position(|name| *name == counter).expect("a counter of stacks");
    let (mut packets, passed, refused) = (0, at("passed"), at("refused"));
    let mut count = || {
        packets += 50;
        stack.set(passed, packets);
        stack.set(refused, packets);
    };
    count();
    let pool = usual();
    forever(|| {
        drop(burst(&pool, 50));
        count();
    });
}

/// 100 pages that nobody returns, in a pool that records who has them, and goes on.
fn forgotten() {
    let holders = Holders::Sites { stacks: None };
    let pool = pool(ArenaParams::default(), PoolParams { holders, ..Default::default() });
    let _forgotten = burst(&pool, 100);
    forever(|| drop(burst(&pool, 64)));
}

/// An owner that takes a fifth of a CPU or more.
fn working() {
    let pool = usual();
    forever(|| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            drop(burst(&pool, 64));
        }
    });
}

/// Programs that are started by tests of their own.
const OTHERS: [(&str, fn()); 2] = [("forgotten", forgotten), ("working", working)];

/// Not a test but where there is an illness: the program that has it.
#[test]
fn a_program_that_is_ill() {
    let Ok(name) = env::var(ILLNESS) else { return };
    let _publication = pagepool::publish(&name).expect("a folder of the test");
    println!("published");
    let programs = ILLNESSES.map(|(illness, program, _)| (illness, program)).into_iter().chain(OTHERS);
    match programs.into_iter().find(|(illness, _)| *illness == name) {
        Some((_, program)) => program(),
        None => healthy(),
    }
}

/// A process that is killed when this is dropped. Its output has a reader until then: the test harness says
/// something more after a minute.
pub struct Killed(Child, Option<BufReader<ChildStdout>>);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait(); // a child of this process
    }
}

/// This program again, with an illness, when it has published.
pub fn ill(name: &str, run: &Path) -> Killed {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["--exact", "doctor::a_program_that_is_ill", "--nocapture"]).env(ILLNESS, name);
    command.env("PAGEPOOL_RUN", run).stdout(Stdio::piped());
    let mut killed = Killed(command.spawn().expect("this program runs"), None);
    let output = killed.1.insert(BufReader::new(killed.0.stdout.take().expect("piped")));
    assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with("published")), "{name}");
    killed
}

fn doctor(run: &Path, arguments: &[&str]) -> Command {
    let mut command = binary(&[&["doctor"], arguments].concat());
    command.env("PAGEPOOL_RUN", run);
    command
}

/// Waits until so many processes have pools, of which none is taken for warming up any more.
fn warm_up(run: &Path, processes: usize) {
    let folder = RunFolder::at(run);
    wait_until("all pools are warm", || {
        let all: Vec<_> = folder.processes().into_iter().flatten().collect();
        let mut pools = all.iter().flat_map(|process| &process.pools);
        let are_warm = pools.all(|pool| pool.created.elapsed().is_ok_and(|age| age > WARM));
        all.len() == processes && all.iter().all(|process| !process.pools.is_empty()) && are_warm
    });
}

/// What it says as JSON, with the status that belongs to that.
fn document(output: &Output) -> Value {
    let said = text(&output.stderr);
    let document: Value = serde_json::from_str(text(&output.stdout)).unwrap_or_else(|_| panic!("{said}"));
    let is_empty = |list: &str| document[list].as_array().expect("a list").is_empty();
    let status = match (is_empty("findings"), is_empty("not_judged")) {
        (false, _) => 5,
        (true, false) => 6,
        (true, true) => 0,
    };
    assert_eq!(output.status.code(), Some(status), "{document}");
    document
}

/// What it says that it could not judge.
fn not_judged(document: &Value) -> Vec<&str> {
    let all = document["not_judged"].as_array().expect("a list").iter();
    all.map(|said| said.as_str().expect("text")).collect()
}

/// Rule and place of each finding.
fn found(document: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let findings = document["findings"].as_array().expect("a list").iter();
    findings.map(|finding| (text(&finding["rule"]), text(&finding["place"]))).collect()
}

/// The sentences of the finding of a rule, of a process.
fn find<'a>(document: &'a Value, rule: &str, process: &str) -> Option<&'a Value> {
    let is_it = |finding: &&Value| {
        finding["rule"] == rule && finding["place"].as_str().is_some_and(|place| place.starts_with(process))
    };
    document["findings"].as_array().expect("a list").iter().find(is_it)
}

fn finding<'a>(document: &'a Value, rule: &str, process: &str) -> &'a Value {
    find(document, rule, process).unwrap_or_else(|| panic!("no {rule} of {process}: {document:#}"))
}

/// What is found when a rule finds something at a process: on a busy machine it may take some looks.
fn until_found(rule: &str, process: &str, mut look: impl FnMut() -> Value) -> Value {
    let mut seen = Value::Null;
    wait_until(&format!("{rule} of {process}"), || {
        seen = look();
        find(&seen, rule, process).is_some()
    });
    seen
}

#[test]
fn each_illness_is_found_and_a_healthy_program_has_none() {
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let _well = ill("healthy", run.path());
    let ill: Vec<_> = ILLNESSES.iter().map(|(name, ..)| ill(name, run.path())).collect();
    warm_up(run.path(), 1 + ill.len());
    let mut seen = Value::Null;
    // On a busy machine an ill program may be seen while it does something else. The healthy one has
    // nothing at any look.
    wait_until("each illness is found, and nothing else", || {
        seen = document(&doctor(run.path(), &["--seconds", "2", "--json"]).output().expect("the binary"));
        let all_expected = found(&seen).iter().all(|(rule, place)| {
            let name = place.split(',').next().unwrap_or_default();
            assert_ne!(name, "healthy", "{rule}: {seen:#}");
            ILLNESSES.iter().any(|(illness, _, expected)| *illness == name && expected == rule)
        });
        all_expected && ILLNESSES.iter().all(|(name, _, rule)| find(&seen, rule, name).is_some())
    });
    let said = finding(&seen, "out_rising", "leak")["seen"].as_str().expect("text").to_owned();
    assert!(said.contains("the arena is empty in ") && said.contains("tests/doctor.rs:"), "{said}");
    assert!(said.contains(" more of ") && !said.contains("queue"), "what does not grow is no leak: {said}");
    let said = finding(&seen, "waived", "off_node")["seen"].as_str().expect("text").to_owned();
    assert!(said.contains("pages of another node left the pool, "), "{said}");

    let stack = finding(&seen, "stack_refused", "refusing_stack");
    assert!(stack["seen"].as_str().is_some_and(|seen| seen.starts_with("refused rose by ")), "{stack}");
    assert!(stack["fix"].as_str().is_some_and(|fix| fix.contains("netdev_max_backlog")), "{stack}");

    // One process alone, for people; and after its death.
    let mut said = String::new();
    wait_until("small_ring alone is ill", || {
        let (status, text) = for_people(run.path(), "small_ring");
        said = text;
        status == 5
    });
    assert!(said.starts_with("1 finding in ") && said.contains(" s of 1 process, 1 pool"), "{said}");
    for what in ["1. small_ring, pid ", ": ring_full (some packets cost more)\n", "   fix     Use a larger `"]
    {
        assert!(said.contains(what), "{what}: {said}");
    }
    let (status, said) = for_people(run.path(), "healthy");
    assert!(said.starts_with("Nothing found in ") && said.ends_with(" s of 1 process, 1 pool.\n"), "{said}");
    assert_eq!(status, 0);
    drop(ill);
    let dead =
        document(&doctor(run.path(), &["leak", "--seconds", "1", "--json"]).output().expect("the binary"));
    let said = finding(&dead, "dead_held", "leak")["seen"].as_str().expect("text");
    assert!(said.contains(" pages out (") && said.contains("tests/doctor.rs:"), "{said}");
    assert_eq!(found(&dead).len(), 1, "{dead}");
}

/// What the doctor tells people about a process, and its status.
fn for_people(run: &Path, process: &str) -> (i32, String) {
    let output = doctor(run, &[process, "--seconds", "1"]).output().expect("the binary");
    assert_eq!(text(&output.stderr), "");
    (output.status.code().expect("it ends by itself"), text(&output.stdout).to_owned())
}

/// What the doctor says of all that publish in a folder.
fn diagnosis(run: &Path) -> Value {
    document(&doctor(run, &["--seconds", "1", "--json"]).output().expect("the binary"))
}

/// The longest test, and therefore the first by its name: it sleeps while the others run.
#[test]
fn a_minute_is_too_long_to_hold_pages() {
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let _ill = ill("forgotten", run.path());
    warm_up(run.path(), 1);
    let seen = diagnosis(run.path());
    assert_eq!(found(&seen), [], "they are not old yet: {seen:#}");
    sleep(Duration::from_secs(50).saturating_sub(WARM)); // it would be too early
    let seen = until_found("held_long", "forgotten", || diagnosis(run.path()));
    let said = finding(&seen, "held_long", "forgotten")["seen"].as_str().expect("text");
    assert!(said.starts_with("The program has held at least 100 of the 1"), "{said}");
    assert!(said.contains("tests/doctor.rs:"), "{said}");
    assert_eq!(found(&seen).len(), 1, "{seen:#}");
}

/// The doctor, where `/sys` shows CPUs that have a frequency governor: this machine's may have none, and has
/// to keep those that it has. `None` after a line that says why it cannot be.
fn with_governor(test: &str, run: &Path, governor: &str) -> Option<Value> {
    let cpus = TempFolder::new("pagepool-cpus").expect("a new folder");
    let write = |name: &str, text: &str| {
        let at = cpus.path().join(name);
        fs::create_dir_all(at.parent().expect("the folder")).expect("a new folder");
        fs::write(at, text).expect("a file of ours");
    };
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("a Linux with /sys");
    write("online", &online);
    (0..256).for_each(|cpu| write(&format!("cpu{cpu}/cpufreq/scaling_governor"), &format!("{governor}\n")));
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$1\" /sys/devices/system/cpu || exit 77; shift; exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(cpus.path());
    command.args([env!("CARGO_BIN_EXE_pagepool"), "doctor", "--seconds", "1", "--json"]);
    let output = command.env("PAGEPOOL_RUN", run).output().expect("every Linux has unshare");
    let refused = text(&output.stderr);
    if output.status.code() == Some(77) || refused.starts_with("unshare: ") {
        println!("SKIP {test}: no mount of its own: {}", refused.trim());
        return None;
    }
    Some(document(&output))
}

#[test]
fn a_governor_that_saves_power_is_found() {
    let name = "a_governor_that_saves_power_is_found";
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let _working = ill("working", run.path());
    let Some(_) = with_governor(name, run.path(), "powersave") else { return };
    let saving = || with_governor(name, run.path(), "powersave").expect("it was possible");
    let seen = until_found("governor", "working", saving);
    let said = finding(&seen, "governor", "working")["seen"].as_str().expect("text");
    assert!(said.contains(" runs, has the governor powersave."), "{said}");
    let seen = with_governor(name, run.path(), "performance").expect("it was possible");
    assert!(found(&seen).iter().all(|(rule, _)| rule != "governor"), "{seen:#}");
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let output = doctor(run.path(), &["nobody", "--seconds", "1"]).output().expect("the binary");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no process nobody publishes in "), "{output:?}");
    let output = doctor(run.path(), &["--seconds", "0"]).output().expect("the binary");
    assert_eq!(output.status.code(), Some(2));
}

/// Frames of a size to a near end, so many a second, as long as the value lives.
fn generator(hosts: &TwoHosts, to: usize, size: usize, per_second: u64) -> FrameGenerator {
    let params = GeneratorParams {
        frames: frames(hosts, to, size),
        count: 1 << 22,
        limit: 4 * LIMIT,
        per_second: Some(per_second),
        mode: GeneratorMode::Same,
    };
    let from = if to == 0 { &hosts.a } else { &hosts.b };
    FrameGenerator::start(&from.namespace, &from.link.name, params).expect("a sender")
}

/// What the doctor says in the namespace of the near ends, of a command that is given frames.
fn of_drop(test: &str, hosts: &TwoHosts, arguments: &[&str], per_second: u64) -> Option<Value> {
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let mut command = binary(&[&["drop", "near0"], arguments].concat());
    command.env("PAGEPOOL_RUN", run.path());
    let running = Place::Between(hosts).start_command(test, command)?;
    let sender = generator(hosts, 0, 64, per_second);
    warm_up(run.path(), 1);
    let output = Place::Between(hosts).output(doctor(run.path(), &["--seconds", "2", "--json"]));
    sender.stop();
    let seen = document(&output);
    running.interrupt();
    Some(seen)
}

#[test]
fn a_healthy_run_finds_nothing_though_veth_has_no_zero_copy() {
    let name = "a_healthy_run_finds_nothing_though_veth_has_no_zero_copy";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    // The rings hold what comes while the machine has no time for the command.
    let Some(seen) = of_drop(name, &hosts, &["--ring", "4096"], 2_000) else { return };
    assert_eq!(found(&seen), [], "{seen:#}");
    assert_eq!((&seen["sockets"], &seen["interfaces"][0]), (&1.into(), &"near0".into()), "{seen}");
}

#[test]
fn generic_xdp_is_found_where_the_driver_has_native() {
    let name = "generic_xdp_is_found_where_the_driver_has_native";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Some(seen) = of_drop(name, &hosts, &["--mode", "generic"], 1_000) else { return };
    let of = finding(&seen, "generic_xdp", "drop");
    assert!(of["seen"].as_str().is_some_and(|seen| seen.contains("driver veth supports native")), "{of}");
    assert!(found(&seen).iter().all(|(rule, _)| rule != "copy_mode"), "no veth has zero copy: {seen}");
}

#[test]
fn offloads_are_found_with_the_command_against_them() {
    let name = "offloads_are_found_with_the_command_against_them";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let gro = || Ethtool::open().and_then(|ethtool| ethtool.set_offload("near0", Offload::Gro, true));
    hosts.run_between(gro).expect("a veth has GRO");
    let Some(seen) = of_drop(name, &hosts, &["--mode", "generic"], 1_000) else { return };
    assert_eq!(finding(&seen, "offloads", "drop")["cost"], "packets arrive changed");
    let fix = finding(&seen, "offloads", "drop")["fix"].as_str().expect("text");
    assert!(fix.contains("ethtool -K near0 gro off"), "{fix}");
}

/// A thread that stands still leaves the fill ring empty.
#[test]
fn a_starved_fill_ring_is_found() {
    let name = "a_starved_fill_ring_is_found";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let mut command = binary(&["drop", "near0", "--ring", "64"]);
    command.env("PAGEPOOL_RUN", run.path());
    let Some(running) = Place::Between(&hosts).start_command(name, command) else { return };
    let sender = generator(&hosts, 0, 64, 5_000);
    let mut child = Place::Between(&hosts).spawn(doctor(run.path(), &["--seconds", "2", "--json"]));
    wait_until("the doctor ends", || {
        for what in ["-STOP", "-CONT"] {
            signal(what, running.id());
            sleep(Duration::from_millis(150));
        }
        child.try_wait().expect("a child").is_some()
    });
    let seen = document(&child.wait_with_output().expect("it ends"));
    sender.stop();
    let of = finding(&seen, "starved", "drop");
    assert!(of["seen"].as_str().is_some_and(|seen| seen.contains(" packets found no buffer (")), "{of}");
    assert_eq!(seen["findings"][0]["cost"], "packets are lost", "the dearest is first: {seen}");
    running.interrupt();
}

/// An MTU that is raised while small chunks are on the rings: what is longer is refused, what fits is
/// not, nor is it where the chunks are pages.
#[test]
fn packets_longer_than_a_chunk_are_found() {
    let name = "packets_longer_than_a_chunk_are_found";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    // The rings hold what comes while the machine has no time for the command.
    let start = |arguments: &[&str]| {
        let mut command = binary(&[&["drop", "--ring", "4096"], arguments].concat());
        command.env("PAGEPOOL_RUN", run.path());
        Place::Between(&hosts).start_command(name, command)
    };
    let Some(small) = start(&["near0"]) else { return };
    let Some(large) = start(&["near1", "--chunk-size", "4096"]) else { return };
    // A thread that sleeps, as refused packets leave it, shows its counters once a second.
    let doctor =
        || document(&Place::Between(&hosts).output(doctor(run.path(), &["--seconds", "3", "--json"])));
    let senders = |size| [generator(&hosts, 0, size, 2_000), generator(&hosts, 1, size, 2_000)];
    let short = senders(1_000);
    let seen = doctor();
    assert!(found(&seen).iter().all(|(rule, _)| rule != "rx_refused"), "{seen:#}");
    short.into_iter().for_each(|sender| sender.stop());
    for (host, near) in [(&hosts.a, &hosts.near[0]), (&hosts.b, &hosts.near[1])] {
        let raise = |index| move || Netlink::open().and_then(|mut netlink| netlink.set_mtu(index, 3_000));
        hosts.run_between(raise(near.index)).expect("a veth has this MTU");
        host.namespace.run(raise(host.link.index)).expect("a veth has this MTU");
    }
    let long = senders(2_500);
    let process = |of: &Running| format!("drop, pid {},", of.id());
    let seen = until_found("rx_refused", &process(&small), doctor);
    long.into_iter().for_each(|sender| sender.stop());
    let of = finding(&seen, "rx_refused", &process(&small));
    assert!(of["seen"].as_str().is_some_and(|seen| seen.starts_with("rx_too_long rose by ")), "{of}");
    assert!(found(&seen).iter().all(|(_, place)| !place.starts_with(&process(&large))), "{seen:#}");
    [small, large].into_iter().for_each(drop); // what was refused is a failure of theirs
}

/// What is forwarded to an interface whose link is down is lost.
#[test]
fn packets_that_do_not_go_out_are_found() {
    let name = "packets_that_do_not_go_out_are_found";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let mut command = binary(&["forward", "near0", "near1"]);
    command.env("PAGEPOOL_RUN", run.path());
    let Some(running) = Place::Between(&hosts).start_command(name, command) else { return };
    let far = hosts.b.link.index;
    hosts
        .b
        .namespace
        .run(move || Netlink::open().and_then(|mut netlink| netlink.set_up(far, false)).expect("root"));
    let sender = generator(&hosts, 0, 64, 5_000);
    let doctor =
        || document(&Place::Between(&hosts).output(doctor(run.path(), &["--seconds", "2", "--json"])));
    let seen = until_found("tx_lost", "forward", doctor);
    sender.stop();
    let of = finding(&seen, "link_down", "interface near1");
    assert_eq!(
        (&seen["findings"][0]["rule"], &of["cost"]),
        (&"link_down".into(), &"no packet passes".into())
    );
    assert!(of["seen"].as_str().is_some_and(|seen| seen.starts_with("It has no carrier")), "{of}");
    let of = finding(&seen, "tx_lost", "forward");
    assert!(of["seen"].as_str().is_some_and(|seen| seen.contains(" rose by ")), "{of}");
    drop(running); // it does not end well
}

#[test]
fn interfaces_of_another_namespace_are_named_and_not_judged() {
    let name = "interfaces_of_another_namespace_are_named_and_not_judged";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let Ok(apart) = Namespace::new("apart") else { return println!("SKIP {name}: no namespace more") };
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let mut command = binary(&["drop", "near0", "--mode", "generic"]);
    command.env("PAGEPOOL_RUN", run.path());
    let Some(running) = Place::Between(&hosts).start_command(name, command) else { return };
    let seen = document(&Place::In(&apart).output(doctor(run.path(), &["--seconds", "1", "--json"])));
    assert_eq!(found(&seen), [], "{seen}");
    let note = format!("nsenter --net=/proc/{}/ns/net", running.id());
    assert!(not_judged(&seen).iter().any(|said| said.contains(&note)), "{seen}");
    running.interrupt();
}

/// A program that cannot be looked at is no healthy one.
#[test]
fn what_could_not_be_looked_at_is_not_well() {
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let mode = |mode| fs::set_permissions(run.path(), fs::Permissions::from_mode(mode)).expect("our folder");
    // The status is the one that belongs to that. The kernel's pools are the machine's, and may be ill.
    let seen = |mut command: Command| {
        let seen = document(&command.output().expect("the binary"));
        assert!(found(&seen).iter().all(|(rule, _)| rule.starts_with("kernel_")), "{seen:#}");
        seen
    };
    let look = || seen(doctor(run.path(), &["--seconds", "1", "--json"]));
    let says = |said: &[&str], what: &str| said.len() == 1 && said[0].contains(what);
    mode(0o777);
    let refused = look();
    assert!(says(&not_judged(&refused), "no other user may write to"), "{refused:#}");
    let people = doctor(run.path(), &["--seconds", "1"]).output().expect("the binary");
    assert!(!text(&people.stdout).contains("Nothing found"), "{people:?}");
    assert!(text(&people.stderr).contains("not judged: "), "{people:?}");
    mode(0o700);
    fs::write(run.path().join("drop.7.pagepool"), "").expect("our folder");
    let damaged = look();
    assert!(says(&not_judged(&damaged), "drop.7.pagepool"), "{damaged:#}");
    // Standard input, output and errors, and two more.
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 5; exec \"$0\" doctor --seconds 1 --json", env!("CARGO_BIN_EXE_pagepool")]);
    few.env("PAGEPOOL_RUN", run.path());
    let unseen = seen(few);
    assert!(!not_judged(&unseen).is_empty(), "{unseen:#}");
}

/// Where nobody publishes there is the kernel to judge, if it lists its pools.
#[test]
fn doctor_judges_the_kernel_if_no_process_publishes() {
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    for at in [run.path().to_owned(), run.path().join("not-made")] {
        let seen = diagnosis(&at);
        let notes: Vec<_> = seen["notes"].as_array().expect("a list").iter().map(Value::to_string).collect();
        assert!(found(&seen).iter().all(|(rule, _)| rule.starts_with("kernel_")), "{seen:#}");
        let nobody = format!("no process publishes in {}", at.display());
        match KernelPagePools::open().and_then(|mut kernel| kernel.list()) {
            Ok(_) => {
                assert_eq!(not_judged(&seen), [""; 0], "{seen:#}");
                assert!(notes.iter().any(|note| note.contains(&nobody)), "{seen:#}");
            }
            Err(_) => assert!(not_judged(&seen).contains(&&*nobody), "{seen:#}"),
        }
    }
}

#[test]
fn a_pool_that_is_still_filled_is_waited_for() {
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let _young = ill("leak", run.path());
    let folder = RunFolder::at(run.path());
    let mut made = None;
    wait_until("it has a pool", || {
        let processes = folder.processes().into_iter().flatten();
        made = processes.flat_map(|process| process.pools).map(|pool| pool.created).next();
        made.is_some()
    });
    let seen = diagnosis(run.path());
    let age = made.and_then(|made| made.elapsed().ok()).expect("a time that passed");
    assert!(age >= WARM + Duration::from_secs(1), "it looked after {age:?}: {seen:#}");
    assert_eq!(not_judged(&seen), [""; 0], "{seen:#}");
    until_found("out_rising", "leak", || diagnosis(run.path()));
}

#[test]
fn a_process_that_ends_during_the_looks_is_not_judged() {
    let run = TempFolder::new("pagepool-doctor").expect("a new folder");
    let _well = ill("healthy", run.path());
    warm_up(run.path(), 1);
    let of = RunFolder::at(run.path()).processes().remove(0).expect("it publishes").file;
    let (part, copy) = (run.path().join("part"), run.path().join("other.1.pagepool"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs::copy(&of, &part).and_then(|_| fs::rename(&part, &copy)).expect("there is room");
                sleep(Duration::from_millis(400));
                fs::remove_file(&copy).expect("it is there");
                sleep(Duration::from_millis(400));
            }
        });
        let _over = Sets(&is_over);
        wait_until("it is named", || {
            let seen = diagnosis(run.path());
            not_judged(&seen).iter().any(|said| said.ends_with(" ended during the looks"))
        });
    });
}

#[test]
fn the_page_has_the_table_of_the_rules() {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let page = fs::read_to_string(&at).expect("the page");
    let table = binary(&["doctor", "--rules"]).output().expect("the binary");
    let table = text(&table.stdout).trim_end();
    let (before, rest) = page.split_once("| rule | cost |").expect("the page has the table");
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    let now = format!("{before}{table}\n\n{after}");
    if env::var_os("PAGEPOOL_BLESS").is_some() {
        return fs::write(at, now).expect("the page can be written");
    }
    assert!(
        page == now,
        "docs/doctor.md is old: PAGEPOOL_BLESS=1 cargo test -p pagepool-cli --test all doctor::"
    );
}
