//! What `list`, `show` and `clean` tell of a command that runs, and of one that was killed.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::between::{LIMIT, Place, Reading, binary, far_ends, frames, hosts, ok, second_of, send, text};
use crate::doctor::ill;
use pagepool_lab::TempFolder;
use pagepool_link::{Netlink, TwoHostsParams};
use pagepool_net::KernelStackStats;
use serde_json::Value;

/// A folder in which commands publish, and what looks into it.
struct Run(TempFolder);

impl Run {
    fn new() -> Self {
        Self(TempFolder::new("pagepool-run").expect("a new folder"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary(arguments);
        command.env("PAGEPOOL_RUN", self.0.path()).env_remove("NO_COLOR");
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary was built for this test")
    }

    /// What a command prints that does what it was asked for.
    fn said(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        text(&output.stdout).to_owned()
    }

    fn listed(&self) -> Value {
        serde_json::from_str(&self.said(&["list", "--json"])).expect("JSON and nothing else")
    }

    /// Starts a demonstration, and waits until its pools have counted something.
    fn demo(&self, more: &[&str]) -> Demo {
        let mut command = self.command(&[&["demo", "--on", "memory", "--seconds", "600"], more].concat());
        let demo = Demo(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary"));
        if !more.contains(&"--publish=none") {
            let has_counted = |process: &Value| {
                process["pid"] == demo.0.id() && number(&process["entries"], "rx_packets") > 0
            };
            self.wait_for(|seen| seen["processes"].as_array().is_some_and(|all| all.iter().any(has_counted)));
        }
        demo
    }

    fn wait_for(&self, is_there: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let seen = self.listed();
            if is_there(&seen) {
                return seen;
            }
            assert!(start.elapsed() < LIMIT, "{seen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Run {
    /// What is listed of a demonstration that was killed after it gave a sign of life. It gives one every
    /// second, but `list` shows the last sign only once the process is dead. So on a busy machine, where the
    /// first one gave none, another one lives longer.
    fn killed_after_a_sign(&self, mut demo: Demo) -> Value {
        for seconds in [1.5, 5.0, 15.0] {
            let began = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
            std::thread::sleep(Duration::from_secs_f64(seconds));
            demo.kill();
            let dead = self.listed()["processes"][0].clone();
            assert_eq!(dead["alive"], false, "{dead}");
            if dead["last_sign"].as_f64().is_some_and(|at| at > began) {
                return dead;
            }
            self.said(&["clean"]);
            demo = self.demo(&[]);
        }
        panic!("it gives no sign every second");
    }
}

/// The sum of a counter over all entries.
fn number(entries: &Value, counter: &str) -> u64 {
    let entries = entries.as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["counters"][counter].as_u64()).sum()
}

/// A demonstration, which is killed when this is dropped.
struct Demo(Child);

impl Demo {
    fn kill(&mut self) {
        let _ = self.0.kill();
        self.0.wait().expect("a child of this process");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn list_shows_a_running_command_and_what_a_killed_one_held() {
    let run = Run::new();
    assert!(run.said(&["list"]).starts_with("No process publishes in "));
    let demo = run.demo(&[]);
    let seen = run.listed();
    let process = &seen["processes"][0];
    assert_eq!((&process["name"], &process["alive"]), (&"demo".into(), &true.into()), "{seen}");
    assert_eq!(process["pid"], demo.0.id());
    let pools = process["pools"].as_array().expect("an array");
    let names: Vec<_> = pools.iter().map(|pool| pool["name"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["nic0", "nic1"], "{seen}");
    for pool in pools {
        let pages = pool["pages"].as_object().expect("an object").values();
        let sum: u64 = pages.map(|pages| pages.as_u64().expect("a count")).sum();
        assert_eq!(pool["inflight"], sum, "{pool}");
        assert_eq!(pool["inflight_mem"], sum * 2048, "{pool}");
        assert_eq!(pool["thread"]["name"], "forward");
        assert!(pool["stats"]["hold"].as_u64() > Some(0), "{pool}");
        assert_eq!(pool["params"]["headroom"], "256");
    }
    let list = run.said(&["list"]);
    let lines: Vec<_> = list.lines().collect();
    assert!(lines[0].starts_with(&format!("demo, pid {}: runs for ", demo.0.id())), "{list}");
    assert!(lines[1].starts_with("  id pool "), "{list}");
    assert!(lines[2].starts_with("   1 nic0 ") && lines[2].contains(" forward "), "{list}");
    assert!(lines.iter().skip(1).all(|line| line.chars().count() < 80), "{list}");

    let dead = run.killed_after_a_sign(demo);
    let out = |pool: &Value| pool["pages"]["out"].as_u64().expect("a count");
    let held: Vec<_> = dead["pools"].as_array().expect("an array").iter().map(out).collect();
    assert!(held.iter().all(|&out| out > 0), "its NICs had buffers: {dead}");
    let list = run.said(&["list"]);
    assert!(list.contains("DEAD, last seen alive ") && list.contains("nic0 held when it died: "), "{list}");

    let cleaned = run.said(&["clean"]);
    assert!(cleaned.starts_with("removed ") && cleaned.lines().count() == 1, "{cleaned}");
    assert!(run.said(&["clean"]).contains("no file of a dead process"));
    assert!(run.said(&["list"]).starts_with("No process publishes in "));
}

#[test]
fn show_names_the_holders_of_a_running_and_a_killed_command() {
    let run = Run::new();
    let without = run.demo(&[]);
    let seen: Value = serde_json::from_str(&run.said(&["show", "--json"])).expect("JSON");
    assert_eq!(seen["processes"][0]["pools"][0]["holders"], Value::Null, "{seen}");
    drop(without);
    run.said(&["clean"]);
    let mut demo = run.demo(&["--publish=sites"]);
    for alive in [true, false] {
        if !alive {
            demo.kill();
        }
        // Of the second NIC's pool nothing goes out any more.
        let seen: Value = serde_json::from_str(&run.said(&["show", "nic1", "--json"])).expect("JSON");
        let pool = &seen["processes"][0]["pools"][0];
        assert_eq!(
            (&seen["processes"][0]["alive"], &pool["params"]["holders"]),
            (&alive.into(), &"sites".into())
        );
        let holders = &pool["holders"];
        assert_eq!(holders["held"], pool["pages"]["out"], "{pool}");
        let sum = |of: &str| {
            let all = holders[of].as_array().expect("an array").iter();
            all.map(|at| at["pages"].as_u64().expect("a count")).sum::<u64>()
        };
        assert_eq!((sum("ages"), sum("groups")), (512, 512), "{pool}");
        let group = &holders["groups"][0];
        assert_eq!(group["thread"]["name"], "forward", "{pool}");
        assert!(group["site"].as_str().is_some_and(|site| site.contains("mem_nic/receiver.rs:")), "{pool}");
        let shown = run.said(&["show", "nic1"]);
        let from = shown.lines().skip_while(|line| !line.starts_with("    holders: 512 pages"));
        let lines: Vec<_> = from.take_while(|line| line.starts_with("    ")).collect();
        assert!(lines.len() > 5 && lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(lines[1].trim_start().starts_with("<10ms") && lines[3].contains("allocated at"), "{shown}");
    }
}

#[test]
fn show_lists_a_stack_with_each_pool_of_its_process() {
    let run = Run::new();
    let _program = ill("refusing_stack", run.0.path());
    let seen = run.wait_for(|seen| seen["processes"][0]["pools"][0].is_object());
    let pool = seen["processes"][0]["pools"][0]["name"].as_str().expect("text");
    for of in ["refusing_stack", pool] {
        let seen: Value = serde_json::from_str(&run.said(&["show", of, "--json"])).expect("JSON");
        let entries = seen["processes"][0]["entries"].as_array().expect("an array").iter();
        let stacks: Vec<_> = entries.filter(|entry| entry["kind"] == "stack").collect();
        assert_eq!((stacks.len(), &stacks[0]["name"]), (1, &"eth7".into()), "{seen}");
        assert_eq!(stacks[0]["params"]["interface"], "eth7");
        assert!(KernelStackStats::NAMES.iter().all(|name| stacks[0]["counters"][name].is_u64()), "{seen}");

        let shown = run.said(&["show", of]);
        let head = "  stack eth7 (id 1)\n    parameters: interface eth7, ifindex 7\n";
        let (_, stack) = shown.split_once(head).unwrap_or_else(|| panic!("{shown}"));
        let names: Vec<_> = stack.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(names, ["passed", "refused"], "{shown}");
    }
}

#[test]
fn counters_of_a_stack_are_metrics_with_their_meaning() {
    let run = Run::new();
    let _program = ill("refusing_stack", run.0.path());
    run.wait_for(|seen| number(&seen["processes"][0]["entries"], "passed") > 0);
    let metrics = run.said(&["export"]);
    for name in KernelStackStats::NAMES {
        assert!(metrics.contains(&format!("# TYPE pagepool_stack_{name} counter\n")), "{metrics}");
        assert!(metrics.contains(&format!("\npagepool_stack_{name}_total{{process=")), "{metrics}");
    }
    assert!(metrics.contains("# HELP pagepool_stack_passed Packets that the kernel's stack"), "{metrics}");
    assert!(metrics.contains("name=\"eth7\",id=\"1\",interface=\"eth7\"} "), "{metrics}");
}

#[test]
fn a_new_run_keeps_only_the_latest_file_of_killed_runs() {
    let run = Run::new();
    let states = || {
        let seen = run.listed();
        let all = seen["processes"].as_array().cloned().unwrap_or_default();
        all.iter().map(|process| (process["pid"].clone(), process["alive"] == true)).collect::<Vec<_>>()
    };
    let [first, second] = [(); 2].map(|()| {
        let mut demo = run.demo(&[]);
        demo.kill();
        Value::from(demo.0.id())
    });
    let mut both = states();
    both.sort_by_key(|(pid, _)| *pid != first);
    assert_eq!(both, [(first, false), (second.clone(), false)]);
    let third = run.demo(&[]);
    let mut both = states();
    both.sort_by_key(|(pid, _)| *pid != second);
    assert_eq!(both, [(second, false), (third.0.id().into(), true)]);
}

#[test]
fn a_command_runs_unlisted_if_it_must_not_or_cannot_publish() {
    let run = Run::new();
    let command = run.command(&["demo", "--on", "memory", "--seconds", "600", "--publish=none"]).spawn();
    let demo = Reading::new(command.expect("the binary was built for this test"));
    while second_of(&demo.line().expect("it runs")).is_none() {}
    assert_eq!(run.listed()["processes"], Value::Array(Vec::new()));
    drop(demo);
    let mut command = run.command(&["demo", "--on", "memory", "--seconds", "1"]);
    let output = command.env("PAGEPOOL_RUN", "/dev/null/run").output().expect("the binary");
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr), "");
    // A command that ends takes its file away.
    let _ = run.said(&["demo", "--on", "memory", "--seconds", "1"]);
    assert_eq!(fs::read_dir(run.0.path()).expect("the folder").count(), 0);
}

#[test]
fn show_finds_processes_by_name_or_pid_and_pools_by_name() {
    let run = Run::new();
    let demo = run.demo(&[]);
    let all = run.said(&["show"]);
    for what in ["pool nic0 (id 1)", "pool nic1 ", "alloc_fast", "arena demo", "nic nic0:0", "port nic1:0"] {
        assert!(all.contains(what), "{what}: {all}");
    }
    assert!(!all.contains("If it rises"));
    let id = demo.0.id().to_string();
    for of in ["demo", &id] {
        let of = run.said(&["show", of]);
        assert!(of.contains("pool nic0") && of.contains("pool nic1"), "{of}");
    }
    let pool = run.said(&["show", "nic1", "--explain"]);
    assert!(!pool.contains("pool nic0") && pool.contains("port nic1:0"), "{pool}");
    assert!(pool.contains("arena demo") && !pool.contains("port nic0:0"), "{pool}");
    assert!(pool.contains("Pages that joined the pool. If it rises:"), "{pool}");
    let json: Value = serde_json::from_str(&run.said(&["show", "nic1", "--json"])).expect("JSON");
    assert_eq!(json["processes"][0]["pools"].as_array().map(Vec::len), Some(1), "{json}");
    let none = run.output(&["show", "eth9"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("no process or pool eth9 is published"), "{}", text(&none.stderr));
}

#[test]
fn list_prints_only_the_requested_rows() {
    let run = Run::new();
    let demo = run.demo(&[]);
    for of in ["demo", &demo.0.id().to_string()] {
        let list = run.said(&["list", of]);
        assert!(list.contains(" nic0 ") && list.contains(" nic1 "), "{list}");
    }
    let list = run.said(&["list", "nic1"]);
    assert!(list.starts_with("demo, pid ") && list.contains(" nic1 ") && !list.contains(" nic0 "), "{list}");
    let json: Value = serde_json::from_str(&run.said(&["list", "nic1", "--json"])).expect("JSON");
    assert_eq!(json["processes"][0]["pools"].as_array().map(Vec::len), Some(1), "{json}");
    let none = run.output(&["list", "eth9"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("no process or pool eth9 is published"), "{}", text(&none.stderr));
    assert_eq!(run.output(&["list", "nic1", "--kernel"]).status.code(), Some(2));
}

/// Its clock began at another time, so it started at another one, as what CRIU restored did.
#[test]
fn a_process_of_another_time_namespace_is_not_dead() {
    let name = "a_process_of_another_time_namespace_is_not_dead";
    let run = Run::new();
    let shifted = |more: &[&str], arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-T", "--boottime", "1000000", "--monotonic", "1000000"]).args(more);
        command.arg(env!("CARGO_BIN_EXE_pagepool")).args(arguments).env("PAGEPOOL_RUN", run.0.path());
        command
    };
    // As a container may be: its number says nothing here.
    for more in [&[][..], &["-pf", "--mount-proc", "--kill-child"]] {
        let probe = shifted(more, &["--version"]).output().expect("every Linux has unshare");
        if !probe.status.success() {
            return println!("SKIP {name}: no time namespace {more:?}: {}", text(&probe.stderr).trim());
        }
        let mut command = shifted(more, &["demo", "--on", "memory", "--seconds", "600", "--publish=ages"]);
        let mut demo = Demo(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
        let has_counted = |process: &Value| number(&process["entries"], "rx_packets") > 0;
        // An age is that of a buffer, and not that of the other clock, 11 days ago or ahead.
        let oldest =
            |seen: &Value| seen["processes"][0]["pools"][0]["holders"]["oldest"][0]["age_ms"].as_f64();
        let seen = run.wait_for(|seen| {
            let all = seen["processes"].as_array();
            all.is_some_and(|all| all.iter().any(has_counted)) && oldest(seen).is_some_and(|age| age > 0.0)
        });
        assert_eq!(seen["processes"][0]["alive"], true, "{seen}");
        let ran = seen["processes"][0]["started"].as_f64().expect("a time");
        let ran = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() - ran;
        assert!(oldest(&seen).is_some_and(|age| age <= (ran + 60.0) * 1000.0), "{more:?}: {seen}");
        let cleaned = run.said(&["clean"]);
        assert!(cleaned.contains("no file of a dead process"), "{cleaned}");
        demo.kill();
        run.wait_for(|seen| seen["processes"][0]["alive"] == false);
        run.said(&["clean"]);
    }
    // And the other way round: the reader's clock is another.
    let _demo = run.demo(&[]);
    let list = shifted(&[], &["list"]).output().expect("it runs");
    assert!(text(&list.stdout).contains(": runs for "), "{}", text(&list.stdout));
}

#[test]
fn a_watch_prints_block_after_block_until_it_is_interrupted() {
    let run = Run::new();
    let _demo = run.demo(&[]);
    // Until a line like this has come twice, hardly more than one a second.
    let watched = |arguments: &[&str], is_it: fn(&str) -> bool| {
        let start = Instant::now();
        let mut reading = Reading::new(run.command(arguments).spawn().expect("the binary"));
        let shown = reading.until_seen(2, is_it);
        assert!(reading.child.wait().expect("a child").success(), "{shown}");
        let count = shown.lines().filter(|line| is_it(line)).count() as u64;
        assert!((2..=1 + start.elapsed().as_secs()).contains(&count), "{:?}: {shown}", start.elapsed());
        shown
    };
    let blocks = watched(&["list", "--watch"], |line| line.starts_with("demo, pid "));
    assert!(blocks.contains("\n\ndemo, pid ") && !blocks.contains('\x1b'), "{blocks}");
    let heads: Vec<_> = blocks.lines().filter(|line| line.starts_with("  id pool ")).collect();
    // Since the pools were made, and then since the look before.
    assert!(
        heads[0].contains(" ever%     out   slow ") && heads[1].contains(" recyc%     out slow/s "),
        "{blocks}"
    );
    let objects = watched(&["show", "nic0", "--watch=1", "--json"], |line| line.starts_with('{'));
    let objects: Vec<Value> =
        objects.lines().map(|line| serde_json::from_str(line).expect("JSON a line")).collect();
    let received = |seen: &Value| number(&seen["processes"][0]["entries"], "rx_packets");
    assert!(received(&objects[1]) > received(&objects[0]), "{objects:?}");
    let shown = watched(&["show", "nic0", "--watch"], |line| line.starts_with("    a second: "));
    let mut rates = shown.lines().filter(|line| line.starts_with("    a second: "));
    let is_busy = |line: &str| line.contains(" returned; recycled ") && !line.contains("a second: 0 ");
    assert!(rates.all(is_busy), "{shown}");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_beside_the_others() {
    let run = Run::new();
    let _demo = run.demo(&[]);
    fs::write(run.0.path().join("bad.1.pagepool"), [7; 5000]).expect("a new file");
    let output = run.output(&["list"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("demo, pid "));
    assert!(text(&output.stderr).contains("bad.1.pagepool"), "{}", text(&output.stderr));
}

#[test]
fn an_unreadable_file_does_not_mean_that_no_process_publishes() {
    let run = Run::new();
    fs::write(run.0.path().join("bad.1.pagepool"), [7; 5000]).expect("a new file");
    let list = run.output(&["list"]);
    assert!(text(&list.stdout).starts_with("No process that can be read publishes in "), "{list:?}");
    for command in ["list", "show", "doctor"] {
        let refused = run.output(&[command, "bad"]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains("bad.1.pagepool"), "{command}: {said}");
    }
}

#[test]
fn a_file_that_can_be_read_in_part_says_so() {
    let run = Run::new();
    let _demo = run.demo(&[]);
    let seen = run.listed();
    let mut bytes = fs::read(seen["processes"][0]["file"].as_str().expect("a path")).expect("our file");
    let rows = u64::from_ne_bytes(bytes[88..96].try_into().expect("eight bytes")) as usize;
    let is_pool = |row: &usize| bytes[row + 152..].starts_with(b"pool");
    let row = (0..10).map(|at| rows + at * 920).find(is_pool).expect("a pool");
    bytes[row + 56..row + 72].fill(0xff); // where its counters are
    fs::write(run.0.path().join("other.1.pagepool"), bytes).expect("a new file");
    let output = run.output(&["list", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let seen: Value = serde_json::from_str(text(&output.stdout)).expect("JSON");
    let said = seen["errors"][0].as_str().expect("text");
    assert!(said.contains("other.1.pagepool: 1 of its pools and entries could not be read"), "{seen}");
    let pools = seen["processes"].as_array().expect("two").iter();
    let mut pools: Vec<_> = pools.map(|process| process["pools"].as_array().map_or(0, Vec::len)).collect();
    pools.sort_unstable();
    assert_eq!(pools, [1, 2], "{seen}");
}

#[test]
fn sockets_and_their_pools_list_their_interface() {
    let name = "sockets_and_their_pools_list_their_interface";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let run = Run::new();
    let command = run.command(&["drop", "near0", "--seconds", "600"]);
    let Some(running) = Place::Between(&hosts).start_command(name, command) else { return };
    let is_told = |seen: &Value| number(&seen["processes"][0]["entries"], "in_rx") > 0;
    let seen = run.wait_for(is_told);
    let process = &seen["processes"][0];
    assert_eq!(process["name"], "drop");
    let entries = process["entries"].as_array().expect("an array");
    let socket = entries.iter().find(|entry| entry["kind"] == "socket").expect("a socket");
    let index = hosts.near[0].index;
    let params = &socket["params"];
    assert_eq!((&params["interface"], &params["queue"]), (&"near0".into(), &"0".into()), "{params}");
    assert_eq!(params["ifindex"], index.to_string());
    assert!(params["mode"].as_str().is_some_and(|mode| mode.starts_with("af_xdp_")), "{params}");
    assert!(params["rx_ring"].as_str().and_then(|ring| ring.parse::<u32>().ok()) >= Some(64), "{params}");
    let pool =
        process["pools"].as_array().expect("an array").iter().find(|pool| pool["id"] == socket["parent"]);
    assert_eq!(pool.expect("the socket's pool")["ifindex"], index, "{seen}");
    running.interrupt();
}

/// The tags of a pool's holders that are shown.
fn tags<'a>(seen: &'a Value, pool: &str) -> BTreeSet<&'a str> {
    let pools = seen["processes"][0]["pools"].as_array().expect("an array");
    let pool = pools.iter().find(|of| of["name"] == pool).unwrap_or_else(|| panic!("no {pool}: {seen}"));
    let groups = pool["holders"]["groups"].as_array().expect("records were asked for").iter();
    groups.map(|group| group["tag"].as_str().unwrap_or("")).collect()
}

#[test]
fn holders_name_the_line_that_allocated() {
    let name = "holders_name_the_line_that_allocated";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let run = Run::new();
    let command =
        run.command(&["forward", "near0", "near1", "--publish=sites", "--ring", "256", "--seconds", "600"]);
    let Some(running) = Place::Between(&hosts).start_command(name, command) else { return };
    let mut running = Some(running);
    run.wait_for(|seen| number(&seen["processes"][0]["entries"], "in_rx") > 0);
    // A link that is down lets nothing out: what goes there waits.
    let there = hosts.near[1].index;
    hosts.run_between(move || ok(ok(Netlink::open()).set_up(there, false)));
    let ([far, _], frames, mut frame) = (far_ends(&hosts), frames(&hosts, 0, 64), vec![0; 64]);
    for number in 0..64 {
        frames.write(number, &mut frame);
        send(&far, &frame);
    }
    let start = Instant::now();
    for alive in [true, false] {
        if !alive {
            running.take(); // is killed
        }
        let seen: Value = loop {
            let seen: Value = serde_json::from_str(&run.said(&["show", "--json"])).expect("JSON");
            let as_far = seen["processes"][0]["alive"] == alive;
            if as_far && tags(&seen, "near0:0").contains("to send by near1:0") {
                break seen;
            }
            assert!(start.elapsed() < LIMIT, "{seen}");
            std::thread::sleep(Duration::from_millis(50));
        };
        for (pool, expected) in [
            ("near0:0", &["receive rings of near0:0", "to send by near1:0"][..]),
            ("near1:0", &["receive rings of near1:0"]),
        ] {
            assert_eq!(tags(&seen, pool), expected.iter().copied().collect(), "{seen}");
        }
        let text = run.said(&["show", "near0:0"]);
        assert!(text.contains("to send by near1:0"), "{text}");
    }
}
