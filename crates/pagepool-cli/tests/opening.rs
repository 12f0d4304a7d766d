//! What a command takes from an interface while it opens, when it ends, and if it is refused: nothing is lost
//! of a stream that runs meanwhile, but what the kernel has in hand when an XDP program is attached.

use crate::between;
use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::between::{
    BpfFolder, Ends, Place, Sets, binary, dropped_by_link, far_ends, frames, hosts, number, ok, send, signal,
    wait_until,
};
use pagepool_lab::{FrameBatch, FrameSocket, LinkSettings, TempFolder};
use pagepool_link::{Netlink, TwoHosts, TwoHostsParams};
use pagepool_net::{Attach, Redirect, Tally};
use serde_json::Value;

/// Frames of the stream in a millisecond.
const A_MILLISECOND: u64 = 4;
/// What may be lost at the start and at the stop, each.
const GAP: u64 = 5 * A_MILLISECOND;
/// More than any stream has.
const MOST: u64 = 1 << 20;
/// Frames of a stream before something happens, and after it.
const SOME: u64 = 100 * A_MILLISECOND;
/// Where frames are missing, those that come so long after the last one are not waited for.
const QUIET: Duration = Duration::from_secs(5);

fn many_queues(test: &str) -> Option<TwoHosts> {
    hosts(test, &TwoHostsParams { queues: 8, ..TwoHostsParams::default() })
}

/// A stream of frames to `near0`.
struct Stream {
    sent: u64,
    /// What arrived where it was looked for: at the stack of `near0`, where nothing else is said.
    stack: Tally,
    /// Frames for which the link had no room, which a busy machine may cause, and those that nobody wanted of
    /// the stack of `near0`.
    dropped: u64,
}

impl Stream {
    /// Frames that the stack did not get, although they arrived.
    fn missing(&self) -> u64 {
        self.stack.missing(self.sent).saturating_sub(self.dropped)
    }
}

/// Has a stream run during the work, which takes none of its frames. Gives what became of them, and what the
/// work gives.
fn during_a_stream<T>(hosts: &TwoHosts, work: impl FnOnce() -> T) -> (Stream, T) {
    during_a_stream_taken(hosts, work, |_| 0)
}

/// How far a stream is.
#[derive(Default)]
struct Progress {
    sent: AtomicU64,
    /// At the stack, as they were sent.
    good: AtomicU64,
    /// Whether no more shall be sent.
    over: AtomicBool,
    /// Whether no more are waited for.
    ended: AtomicBool,
}

impl Progress {
    /// Waits until some more frames were sent.
    fn wait_for_some(&self) {
        let next = self.sent.load(Ordering::Relaxed) + SOME;
        wait_until("the stream goes on", || self.sent.load(Ordering::Relaxed) >= next);
    }

    /// Waits until all frames are at the stack or elsewhere, or none came for long.
    fn wait_for_all(&self, sent: u64, elsewhere: impl Fn() -> u64) {
        let (mut seen, mut since) = (0, Instant::now());
        while since.elapsed() < QUIET && seen < sent {
            let now = self.good.load(Ordering::Relaxed) + elsewhere();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The same, where the work, or what it has started, takes frames: so many by now.
fn during_a_stream_taken<T>(
    hosts: &TwoHosts,
    work: impl FnOnce() -> T,
    taken: impl Fn(&T) -> u64,
) -> (Stream, T) {
    let stack = ok(hosts.run_between(|| FrameSocket::open_here("near0")));
    let (before, progress) = (dropped(hosts), Progress::default());
    std::thread::scope(|threads| {
        let (over, ended, progress) = (Sets(&progress.over), Sets(&progress.ended), &progress);
        let sends = threads.spawn(move || send_until_over(hosts, progress));
        let reads = threads.spawn(move || read_until_ended(&stack, progress));
        progress.wait_for_some();
        let done = work();
        progress.wait_for_some();
        drop(over);
        let sent = sends.join().expect("the link is up");
        progress.wait_for_all(sent, || taken(&done) + dropped(hosts) - before);
        drop(ended);
        let stack = reads.join().expect("the link is up");
        (Stream { sent, stack, dropped: dropped(hosts) - before }, done)
    })
}

/// Gives how many frames it sent.
fn send_until_over(hosts: &TwoHosts, progress: &Progress) -> u64 {
    let (start, [far, _], mut number) = (Instant::now(), far_ends(hosts), 0);
    let (frames, mut frame) = (frames(hosts, 0, 64), [0; 64]);
    while !progress.over.load(Ordering::Relaxed) && number < MOST {
        let due = start.elapsed().as_millis() as u64 * A_MILLISECOND;
        // What is late on a busy machine is left out: a burst would be lost for other reasons.
        let next = due.clamp(number, number + A_MILLISECOND);
        for number in number..next {
            frames.write(number, &mut frame);
            send(&far, &frame);
        }
        number = next;
        progress.sent.store(number, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(500));
    }
    number
}

/// Reads until no more is waited for.
fn read_until_ended(stack: &FrameSocket, progress: &Progress) -> Tally {
    let (mut tally, mut batch) = (Tally::new(MOST), FrameBatch::new(64));
    loop {
        let ended = progress.ended.load(Ordering::Relaxed);
        stack.wait(Duration::from_millis(20));
        while ok(stack.receive_many(&mut batch)) > 0 {
            batch.frames().for_each(|frame| {
                tally.take(frame);
            });
        }
        progress.good.store(tally.good, Ordering::Relaxed);
        if ended {
            return tally;
        }
    }
}

/// Frames that the link to `near0` did not take, so far.
fn dropped(hosts: &TwoHosts) -> u64 {
    hosts.run_between(|| dropped_by_link("near0")) + hosts.a.namespace.run(|| dropped_by_link("far0"))
}

/// Frames that a run took, as it says at its end.
fn taken(document: &Value) -> u64 {
    number(&document["numbered"], "good")
}

/// Runs a command for a part of a stream. Gives the number of frames that were lost without a word,
/// and its JSON.
fn lost_by(test: &str, hosts: &TwoHosts, arguments: &[&str]) -> Option<(u64, Value)> {
    let work = || {
        let running = Place::Between(hosts).start(test, arguments)?;
        running.wait_for_count(&["rx_packets"], 2 * SOME);
        Some(running.interrupt())
    };
    let accounted = |of: &Option<Value>| of.as_ref().map_or(0, |of| taken(of) + number(of, "lost_total"));
    let (stream, document) = during_a_stream_taken(hosts, work, accounted);
    let document = document?;
    let Stream { sent, stack, dropped } = stream;
    let taken = taken(&document);
    let lost = sent.saturating_sub(stack.good + taken);
    println!("{sent} sent: the stack got {}, the command {taken}, nobody {lost}", stack.good);
    assert!(stack.good > 0 && taken > SOME, "{document}");
    assert_eq!(stack.good + taken + lost, sent, "nobody gets a frame twice: {document}");
    let full = dropped + number(&document, "lost_total"); // rings were, while the machine was busy
    Some((lost.saturating_sub(full), document))
}

#[test]
fn start_and_stop_lose_at_most_five_milliseconds() {
    let name = "start_and_stop_lose_at_most_five_milliseconds";
    let Some(hosts) = many_queues(name) else { return };
    let Some((lost, document)) = lost_by(name, &hosts, &["drop", "near0", "--verify=1048576"]) else {
        return;
    };
    assert!(lost <= 2 * GAP, "{lost} frames were lost: {document}");
}

/// Sockets are in the map of a program that runs already from when they have buffers until they are closed.
#[test]
fn start_and_stop_over_the_map_of_another_program_lose_nothing() {
    let name = "start_and_stop_over_the_map_of_another_program_lose_nothing";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let attached = hosts.run_between(|| Redirect::attach("near0", Attach::Native, false));
    let Ok(attached) = attached else { return println!("SKIP {name}: {}", attached.unwrap_err()) };
    let program = attached.program_id();
    let map = folder.path("xsks");
    attached.pin_map(&map).expect("a name that is free");
    let again = attached.pin_map(&map).unwrap_err().to_string();
    assert!(again.contains(&format!("{map} exists")), "{again}");
    let arguments = ["drop", "near0", "--verify=1048576", "--map", &map];
    let Some((lost, document)) = lost_by(name, &hosts, &arguments) else { return };
    let opened = &document["interfaces"][0];
    assert_eq!((opened["map"].as_str(), opened["attach"].as_str()), (Some(&*map), Some("native")));
    assert_eq!(lost, 0, "{document}");
    let there = hosts.run_between(|| ok(ok(Netlink::open()).link("near0")).xdp.first().map(|xdp| xdp.id));
    assert_eq!(there, program, "their program stays");
}

/// The program that is attached to `near0`.
fn attached(hosts: &TwoHosts) -> Option<u32> {
    hosts.run_between(|| ok(ok(Netlink::open()).link("near0")).xdp.first().map(|xdp| xdp.id))
}

/// Between two runs the link stays, and its program passes all packets to the stack.
#[test]
fn a_second_run_uses_the_pinned_link_of_the_first() {
    let name = "a_second_run_uses_the_pinned_link_of_the_first";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let (dir, link) = (folder.path(""), folder.path("pagepool-near0"));
    let arguments = ["drop", "near0", "--verify=1048576", "--pin", &dir];
    let Some((lost, first)) = lost_by(name, &hosts, &arguments) else { return };
    assert!(lost <= 2 * GAP, "{lost} frames were lost: {first}");
    assert!(attached(&hosts).is_some(), "the link stays");
    let (lost, second) = lost_by(name, &hosts, &arguments).expect("as the first one");
    assert_eq!(lost, 0, "nothing is attached or detached: {second}");
    assert!(attached(&hosts).is_some(), "it stays again");
    std::fs::remove_file(link).expect("the link's name");
    wait_until("the kernel detaches it, a moment later", || attached(&hosts).is_none());
}

#[test]
fn a_run_goes_on_when_a_second_is_refused() {
    let name = "a_run_goes_on_when_a_second_is_refused";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let dir = folder.path("");
    let Some(first) = Place::Between(&hosts).start(name, &["drop", "near0", "--pin", &dir]) else { return };
    for more in [&[][..], &["--pin", "/proc"]] {
        let said = Place::Between(&hosts).error(&[&["drop", "near0"], more].concat());
        let why = ["near0 already has XDP program", "a BPF file system"];
        assert!(why.iter().any(|why| said.contains(why)), "{said}");
    }
    let before = first.counted(&["rx_packets"]);
    send(&far_ends(&hosts)[0], &[0xff; 64]);
    first.wait_for_count(&["rx_packets"], before + 1);
    first.interrupt();
}

/// The second uses other queues: the kernel lets two sockets not share one.
#[test]
fn a_run_fails_when_another_replaces_its_program() {
    let name = "a_run_fails_when_another_replaces_its_program";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let dir = folder.path("");
    let run =
        |queue| Place::Between(&hosts).start(name, &["drop", "near0", "--queues", queue, "--pin", &dir]);
    let Some(first) = run("0") else { return };
    let second = run("1").expect("as the first one");
    let (document, _) = first.fails(&["the XDP program of near0"]);
    assert_eq!(document["ended_by"], "detached");
    second.interrupt();
}

#[test]
fn a_folder_for_links_is_one_of_a_bpf_file_system() {
    let name = "a_folder_for_links_is_one_of_a_bpf_file_system";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let dir = folder.path("");
    let cases: [(&[&str], &[&str]); 2] = [
        (&["--pin", &dir, "--map", &dir], &["cannot be used with"]),
        (&["--pin", "/proc"], &["/proc/pagepool-near0", "a BPF file system"]),
    ];
    for (options, words) in cases {
        let said = Place::Between(&hosts).error(&[&["drop", "near0"], options].concat());
        if said.contains("CAP_") {
            return println!("SKIP {name}: {said}");
        }
        assert!(words.iter().all(|word| said.contains(word)), "{options:?}: {said}");
    }
    assert_eq!(attached(&hosts), None);
    let link = hosts.run_between(|| Redirect::attach("near0", Attach::Native, false)).expect("as above");
    let said = Place::Between(&hosts).error(&["drop", "near0", "--pin", &dir]);
    let program = link.program_id().expect("it was attached here");
    assert!(said.contains(&format!("near0 already has XDP program {program} ")), "{said}");
}

/// The XDP program of an interface, whose link has a name.
fn pinned(
    hosts: &TwoHosts,
    interface: &'static str,
    how: Attach,
    path: &str,
) -> Result<Arc<Redirect>, String> {
    let path = path.to_owned();
    let loaded = hosts.run_between(move || Redirect::load_pinned(interface, how, false, path));
    loaded.map_err(|error| error.to_string())
}

/// The same, which redirects; `None` after a line that says why it does not run here.
fn started(
    test: &str,
    hosts: &TwoHosts,
    interface: &'static str,
    how: Attach,
    path: &str,
) -> Option<Arc<Redirect>> {
    let redirect = pinned(hosts, interface, how, path).and_then(|redirect| {
        let starts = redirect.clone();
        let started = hosts.run_between(move || starts.start());
        started.map_err(|error| error.to_string()).map(|()| redirect)
    });
    redirect.inspect_err(|error| println!("SKIP {test}: {error}")).ok()
}

/// The one whose program was replaced notices it, and leaves that of the other alone.
#[test]
fn one_at_a_time_uses_a_link() {
    let name = "one_at_a_time_uses_a_link";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let link = folder.path("link");
    let Some(first) = started(name, &hosts, "near0", Attach::Native, &link) else { return };
    let second = pinned(&hosts, "near0", Attach::Auto, &link).expect("the first one gave it this name");
    assert!(!first.is_detached(), "nothing is exchanged yet");
    second.start().expect("it is attached already");
    assert_eq!((first.is_detached(), second.is_detached()), (true, false));
    let refused = first.steer(&"udp".parse().expect("a match")).unwrap_err().to_string();
    assert!(refused.contains("another process replaced the XDP program of near0"), "{refused}");
    first.stop();
    assert_eq!((attached(&hosts), second.is_detached()), (second.program_id(), false));
    second.steer(&"udp".parse().expect("a match")).expect("it runs");
    assert_eq!((attached(&hosts), second.is_detached()), (second.program_id(), false));
    second.stop();
    assert_ne!(attached(&hosts), second.program_id());
    first.start().expect("after the end of the second");
    assert_eq!((attached(&hosts), first.is_detached()), (first.program_id(), false));
}

/// A run that ends exchanges its program just when another one looks.
#[test]
fn a_link_is_taken_over_while_its_program_is_exchanged() {
    let name = "a_link_is_taken_over_while_its_program_is_exchanged";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let link = folder.path("link");
    let Some(first) = started(name, &hosts, "near0", Attach::Native, &link) else { return };
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let over = Sets(&over);
        let (ends, first) = (over.0, &first);
        threads.spawn(move || {
            let by = "udp".parse().expect("a match");
            for _ in 0..100_000 {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                first.steer(&by).expect("it runs");
            }
        });
        for _ in 0..1000 {
            pinned(&hosts, "near0", Attach::Auto, &link).expect("the link is that of near0");
        }
    });
}

#[test]
fn a_link_is_taken_over_only_as_it_is_attached() {
    let name = "a_link_is_taken_over_only_as_it_is_attached";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let link = folder.path("link");
    let Some(first) = started(name, &hosts, "near0", Attach::Generic, &link) else { return };
    drop(first);
    let refused = pinned(&hosts, "near0", Attach::Native, &link).unwrap_err();
    for words in ["attach is Native", "Generic", &link, "remove the file"] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    for how in [Attach::Auto, Attach::Generic] {
        let second = pinned(&hosts, "near0", how, &link).expect("it is attached so");
        assert_eq!(second.mode(), Some((Attach::Generic, None)));
    }
}

#[test]
fn dead_links_free_their_name_and_paths_off_bpffs_are_refused() {
    let name = "dead_links_free_their_name_and_paths_off_bpffs_are_refused";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let (link, index) = (folder.path("link"), hosts.near[1].index);
    let temp = TempFolder::new("pagepool-no-bpf").expect("a new folder");
    let elsewhere = temp.path().join("link").to_str().expect("text").to_owned();
    let Some(first) = started(name, &hosts, "near1", Attach::Native, &link) else { return };
    let refused = pinned(&hosts, "near0", Attach::Native, &elsewhere).unwrap_err();
    assert!(refused.contains("in a BPF file system"), "{refused}");
    let another = pinned(&hosts, "near0", Attach::Native, &link).unwrap_err();
    assert!(another.contains("the link of an XDP program on near0"), "{another}");
    hosts.run_between(move || ok(ok(Netlink::open()).delete(index)));
    drop(first);
    let second = started(name, &hosts, "near0", Attach::Native, &link).expect("near1 is gone");
    assert_eq!(attached(&hosts), second.program_id());
}

/// Interfaces of several network namespaces may have the same number.
#[test]
fn a_link_in_another_network_namespace_is_not_taken_over() {
    let name = "a_link_in_another_network_namespace_is_not_taken_over";
    let (Some(hosts), Some(others)) = (many_queues(name), many_queues(name)) else { return };
    let Some(folder) = BpfFolder::new(name) else { return };
    let link = folder.path("link");
    let Some(first) = started(name, &hosts, "near0", Attach::Native, &link) else { return };
    let refused = pinned(&others, "near0", Attach::Auto, &link).unwrap_err();
    assert!(refused.contains("the link of an XDP program on near0"), "{refused}");
    if hosts.near[0].index == others.near[0].index {
        let another = others.run_between(|| Redirect::attach("near0", Attach::Native, false));
        let another = another.expect("nothing is attached there");
        let refused = pinned(&others, "near0", Attach::Auto, &link).unwrap_err();
        let program = another.program_id().expect("it was attached here");
        assert!(refused.contains(&format!("already has XDP program {program} ")), "{refused}");
    } else {
        println!("SKIP the same number of {name}: {} and {}", hosts.near[0].index, others.near[0].index);
    }
    assert_eq!((attached(&hosts), first.is_detached()), (first.program_id(), false));
}

/// Whether a process handles SIGINT.
fn handles_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("every Linux says that");
    u64::from_str_radix(caught.trim(), 16).expect("a mask") & 2 != 0
}

/// A queue is waited for, for its last socket may be about to go.
#[test]
fn a_command_that_waits_for_a_queue_can_be_interrupted() {
    let name = "a_command_that_waits_for_a_queue_can_be_interrupted";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let attached = hosts.run_between(|| Redirect::attach("near0", Attach::Native, false));
    let Ok(attached) = attached else { return println!("SKIP {name}: {}", attached.unwrap_err()) };
    let map = folder.path("xsks");
    attached.pin_map(&map).expect("a name that is free");
    let arguments = ["drop", "near0", "--map", &map];
    let Some(first) = Place::Between(&hosts).start(name, &arguments) else { return };
    let mut waiting = Ends(Place::Between(&hosts).spawn(binary(&arguments)));
    wait_until("it has looked at its arguments", || handles_interrupts(waiting.0.id()));
    let second = Place::Between(&hosts).spawn(binary(&arguments));
    wait_until("it listens", || handles_interrupts(second.id()));
    signal("-INT", second.id());
    let output = second.wait_with_output().expect("it is a child");
    let said = between::text(&output.stderr);
    assert!(said.contains("interrupted before any packet was taken or sent"), "{said}");
    // It began before the interrupted one, and waits for 10 s.
    assert!(waiting.0.try_wait().expect("a child").is_none(), "the interrupted one waited as long");
    drop(waiting);
    first.interrupt();
}

#[test]
fn maps_that_cannot_be_used_are_refused_with_what_helps() {
    let name = "maps_that_cannot_be_used_are_refused_with_what_helps";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let loaded = hosts.run_between(|| Redirect::load("near0", Attach::Native, false));
    let Ok(loaded) = loaded else { return println!("SKIP {name}: {}", loaded.unwrap_err()) };
    let map = folder.path("xsks");
    loaded.pin_map(&map).expect("a name that is free");
    let none = folder.path("none");
    let cases: [(&[&str], &[&str]); 5] = [
        (&["drop", "near0", "--map", &none], &["no map has the name", &none, "bpftool map pin"]),
        (&["drop", "near0", "--map", "/dev/null"], &["/dev/null", "in a BPF file system"]),
        (
            &["forward", "near0", "near1", "--map", &map],
            &["--map is given 1 times", "once for each interface"],
        ),
        (&["drop", "near0", "--map", &map, "--map", &map], &["--map is given 2 times"]),
        (
            &["drop", "near0", "--map", &map, "--mode", "native"],
            &["--mode native", "cannot be used with", "--map"],
        ),
    ];
    for (arguments, words) in cases {
        let said = Place::Between(&hosts).error(arguments);
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
    }
    let idle = Place::Between(&hosts).output(binary(&["drop", "near0", "--map", &map, "--seconds", "1"]));
    let said = between::text(&idle.stderr);
    assert!(said.contains("no XDP program is attached to near0") && said.contains(&map), "{said}");
}

/// Has Debian's xdp-loader attach libxdp's program for AF_XDP to `near0`, and names its map. Both stay until
/// the value is dropped: where the kernel can run several programs, libxdp keeps them in a BPF file system,
/// and has attached one that calls them. The map is that of this program: others may have maps of its name.
const XDP_LOADER: &str = "
    mount -t bpf bpf /sys/fs/bpf || exit
    object=$(ls /usr/lib/*/bpf/xsk_def_xdp_prog.o /usr/lib/bpf/xsk_def_xdp_prog.o 2>/dev/null | head -n 1)
    [ -n \"$object\" ] || { echo no xsk_def_xdp_prog.o >&2; exit; }
    xdp-loader load near0 $object || exit
    for program in /sys/fs/bpf/xdp/dispatch-*/prog0-prog; do program=\"pinned $program\"; done
    [ -e \"${program#pinned }\" ] ||
        program=\"id $(ip link show near0 | sed -n 's,.*prog/xdp id \\([0-9]*\\).*,\\1,p')\"
    for map in $(bpftool prog show $program | sed -n 's/.*map_ids //p' | sed 's/ .*//' | tr , ' '); do
        ! bpftool map show id $map | grep -q xskmap || bpftool map pin id $map $1 || exit
    done
    [ -e $1 ] || { echo no map of libxdp >&2; exit; }
    echo ready
    read -r end";

#[test]
fn a_command_works_beside_the_programs_of_xdp_loader() {
    let name = "a_command_works_beside_the_programs_of_xdp_loader";
    let (Some(hosts), Some(folder)) = (many_queues(name), BpfFolder::new(name)) else { return };
    let map = folder.path("xsks");
    let mut loader = Command::new("unshare");
    loader.args(["-m", "sh", "-c", XDP_LOADER, "sh", &map]);
    loader.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut loader) = hosts.run_between(move || loader.spawn()) else {
        return println!("SKIP {name}: no `unshare`");
    };
    let mut said = String::new();
    BufReader::new(loader.stdout.take().expect("piped")).read_line(&mut said).expect("text");
    if said.trim() != "ready" {
        let output = loader.wait_with_output().expect("it is a child");
        return println!("SKIP {name}: {}", between::text(&output.stderr).trim());
    }
    let refused = Place::Between(&hosts).error(&["drop", "near0"]);
    let there = attached(&hosts).expect("xdp-loader attached it");
    assert!(
        refused.contains(&format!("near0 already has XDP program {there} (x")),
        "with its name: {refused}"
    );
    let arguments = ["drop", "near0", "--verify=1000", "--map", &map];
    let Some(running) = Place::Between(&hosts).start(name, &arguments) else { return };
    let ([far, _], frames, mut frame) = (far_ends(&hosts), frames(&hosts, 0, 64), [0; 64]);
    let mut next = 0;
    wait_until("it takes some", || {
        frames.write(next, &mut frame);
        send(&far, &frame);
        next += 1;
        running.counted(&["rx_packets"]) > 0
    });
    let document = running.interrupt();
    assert!(number(&document["numbered"], "good") > 0, "{document}");
    assert_eq!(attached(&hosts), Some(there), "theirs stays");
    drop(loader.stdin.take());
    loader.wait().expect("it is a child");
}

#[test]
fn a_command_that_is_refused_takes_no_packet() {
    let name = "a_command_that_is_refused_takes_no_packet";
    let Some(hosts) = many_queues(name) else { return };
    let attached = hosts.run_between(|| Redirect::attach("near1", Attach::Native, false));
    let Ok(attached) = attached else { return println!("SKIP {name}: {}", attached.unwrap_err()) };
    let program = attached.program_id().expect("it was attached here");
    let (stream, said) =
        during_a_stream(&hosts, || Place::Between(&hosts).error(&["forward", "near0", "near1"]));
    assert!(said.contains(&format!("near1 already has XDP program {program} ")), "{said}");
    assert_eq!(stream.missing(), 0, "of {}: {said}", stream.sent);
}

#[test]
fn rss_without_an_indirection_table_is_refused_before_attach() {
    let name = "rss_without_an_indirection_table_is_refused_before_attach";
    let Some(hosts) = many_queues(name) else { return };
    let (stream, said) = during_a_stream(&hosts, || {
        Place::Between(&hosts).error(&["drop", "near0", "--queues", "1", "--rss"])
    });
    assert!(said.contains("--rss: \"near0\" has no indirection table"), "{said}");
    assert_eq!(stream.missing(), 0, "of {}: {said}", stream.sent);
}

/// It would take the table of that run for the card's own.
#[test]
fn rss_on_a_card_that_another_run_spreads_names_that_process() {
    let name = "rss_on_a_card_that_another_run_spreads_names_that_process";
    let Some(hosts) = many_queues(name) else { return };
    let card = format!("pagepool-flows-of-{}", hosts.near[0].index);
    let names = [card.clone(), format!("{card}-by-4711")];
    let held = hosts.run_between(|| {
        let bind = |name| UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?);
        names.map(|name| bind(name).expect("a free name"))
    });
    let said = Place::Between(&hosts).error(&["drop", "near0", "--rss"]);
    assert!(said.contains("--rss: process 4711 spreads the flows of \"near0\""), "{said}");
    drop(held);
    let said = Place::Between(&hosts).error(&["drop", "near0", "--rss"]);
    assert!(said.contains("\"near0\" has no indirection table"), "it is free, and a veth: {said}");
}

/// The kernel refuses an XDP program of one buffer where the other end's packets are longer than a page.
fn have_near1_refuse(hosts: &TwoHosts) {
    let long = hosts.b.link.index;
    hosts.b.namespace.run(move || ok(ok(pagepool_link::Netlink::open()).set_mtu(long, 9000)));
}

#[test]
fn a_command_that_the_second_driver_refuses_takes_no_packet() {
    let name = "a_command_that_the_second_driver_refuses_takes_no_packet";
    let Some(hosts) = many_queues(name) else { return };
    have_near1_refuse(&hosts);
    let arguments = ["forward", "near0", "near1", "--mode", "native"];
    let (stream, said) = during_a_stream(&hosts, || Place::Between(&hosts).error(&arguments));
    if said.contains("CAP_") {
        return println!("SKIP {name}: {said}");
    }
    assert!(said.contains("the driver of near1 refuses the program"), "{said}");
    // A veth frees what is in its ring when the program that passes all packets is detached.
    assert!(stream.missing() <= GAP, "{} of {}: {said}", stream.missing(), stream.sent);
}

#[test]
fn a_command_that_a_driver_refuses_leaves_no_new_capture_file() {
    let name = "a_command_that_a_driver_refuses_leaves_no_new_capture_file";
    let Some(hosts) = many_queues(name) else { return };
    have_near1_refuse(&hosts);
    let folder = TempFolder::new("pagepool-refused").expect("a new folder");
    let path = folder.path().join("file.pcap");
    let file = path.to_str().expect("text");
    let refused = ["forward", "near0", "near1", "--mode", "native", "--pcap", file];
    for arguments in [&refused[..], &["drop", "near0", "--pcap", file, "--mode", "zerocopy"]] {
        let said = Place::Between(&hosts).error(arguments);
        assert!(!path.exists(), "{arguments:?}: {said}");
    }
}

#[test]
fn a_command_refused_by_a_driver_keeps_an_old_capture_file() {
    let name = "a_command_refused_by_a_driver_keeps_an_old_capture_file";
    let Some(hosts) = many_queues(name) else { return };
    have_near1_refuse(&hosts);
    let folder = TempFolder::new("pagepool-refused").expect("a new folder");
    let file = folder.path().join("capture");
    std::fs::write(&file, "of an earlier run").expect("a file");
    let path = file.to_str().expect("text");
    let said =
        Place::Between(&hosts).error(&["forward", "near0", "near1", "--mode", "native", "--pcap", path]);
    let kept = std::fs::read_to_string(&file);
    assert_eq!(kept.expect("it is there"), "of an earlier run", "{said}");
}

/// Warnings that nobody reads are no reason to end.
#[test]
fn a_command_that_cannot_warn_runs_on() {
    let name = "a_command_that_cannot_warn_runs_on";
    let Some(hosts) = many_queues(name) else { return };
    let few = ["--mode", "generic", "--threads", "1", "--cpus", "0,1", "--seconds", "1"];
    let (_, output) = during_a_stream(&hosts, || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = binary(&[&["forward", "near0", "near1"], &few[..]].concat());
        command.stderr(writer);
        Place::Between(&hosts).output(command)
    });
    let said = between::text(&output.stdout);
    assert!(said.contains("packets received") && said.contains("PASS"), "{said}");
}

/// A command that ends after XDP programs were attached that pass all packets: its file cannot be written.
#[test]
fn a_command_that_cannot_capture_takes_no_packet() {
    let name = "a_command_that_cannot_capture_takes_no_packet";
    let Some(hosts) = many_queues(name) else { return };
    let arguments = ["forward", "near0", "near1", "--mode", "generic", "--pcap", "/dev/full"];
    let (stream, said) = during_a_stream(&hosts, || Place::Between(&hosts).error(&arguments));
    if said.contains("CAP_") {
        return println!("SKIP {name}: {said}");
    }
    assert!(said.contains("/dev/full: No space"), "{said}");
    assert_eq!(stream.missing(), 0, "of {}", stream.sent);
}
