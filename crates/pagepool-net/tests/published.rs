//! What observers see of the devices, ports and stacks of a program that publishes.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use crate::veth;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::veth::Veth;
use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, XdpBuff, publish};
use pagepool_lab::{FrameSocket, TempFolder};
use pagepool_link::Netlink;
use pagepool_net::{
    Action, Attach, Forwarder, Ingress, KernelStack, MemNic, MemNicParams, NicDomain, NicPort, OpenParams,
    PortId, PublishedDevice, Redirect, XdpProgram, XskDevice, XskParams, mem_nic, open_device,
};
use pagepool_testing::FarEnd;
use pagepool_watch::{EntryView, ProcessView, RunFolder};

/// Longer than anything takes that comes at all.
const LIMIT: Duration = veth::LIMIT;
/// In the environment of a process that a test runs in.
const CHILD: &str = "PAGEPOOL_TEST_PUBLISHES";

/// Runs a test in a process of its own: one publishes once, in a folder that the environment names.
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let folder = TempFolder::new("pagepool-published").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("published::{name}"), "--nocapture"])
        .env(CHILD, name)
        .env("PAGEPOOL_RUN", folder.path());
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}

fn seen() -> ProcessView {
    RunFolder::of_user().unwrap().processes().remove(0).unwrap()
}

/// The entries of a kind, in the order of their names.
fn entries(kind: &str) -> Vec<EntryView> {
    let mut of_kind = seen().entries;
    of_kind.retain(|entry| entry.kind == kind);
    of_kind.sort_by(|one, other| one.name.cmp(&other.name));
    of_kind
}

fn names(kind: &str) -> Vec<String> {
    entries(kind).into_iter().map(|entry| entry.name).collect()
}

fn counter(entry: &EntryView, name: &str) -> u64 {
    entry.counters.iter().find(|(counter, _)| counter == name).unwrap().1
}

fn param<'a>(entry: &'a EntryView, name: &str) -> Option<&'a str> {
    entry.params.iter().find(|(param, _)| param == name).map(|(_, value)| &**value)
}

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}: {:?}", seen().entries);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn nic(name: &str) -> (MemNic, Bound, NicPort) {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() }).unwrap();
    let domain = NicDomain::new(name);
    let params = PoolParams { name: name.into(), domains: vec![domain.clone()], ..Default::default() };
    let pool = Pool::new(PoolParams { wakeup: true, ..params }, arena).unwrap().bind();
    let (nic, wire) = mem_nic(MemNicParams { name: name.into(), ..Default::default() }, domain).unwrap();
    (nic, pool, wire)
}

/// A thread that sends what comes in by each of two NICs out of the other, and sleeps for long.
fn forward(stop: Arc<AtomicBool>) -> ([NicPort; 2], std::thread::JoinHandle<()>) {
    let (send, wires) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut forwarder = Forwarder::new(|_, at| Action::Redirect(PortId(1 - at.port.0)));
        for name in ["mem0", "mem1"] {
            let (nic, pool, wire) = nic(name);
            forwarder.add_port(nic, pool);
            send.send(wire).unwrap();
        }
        while !stop.load(Ordering::Relaxed) {
            if forwarder.poll() == 0 {
                forwarder.wait(2 * LIMIT);
            }
        }
    });
    ([wires.recv().unwrap(), wires.recv().unwrap()], thread)
}

#[test]
fn a_forwarder_shows_its_devices_and_ports_until_it_ends() {
    alone("a_forwarder_shows_its_devices_and_ports_until_it_ends", || {
        let _publication = publish("forwarder").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (mut wires, thread) = forward(stop.clone());
        for kind in ["nic", "port"] {
            assert_eq!(names(kind), ["mem0:0", "mem1:0"]);
        }
        let pools: Vec<_> = seen().pools.iter().map(|pool| Some(u64::from(pool.id))).collect();
        assert_eq!(entries("nic").iter().map(EntryView::pool_id).collect::<Vec<_>>(), pools);
        assert_eq!(entries("port").iter().map(EntryView::pool_id).collect::<Vec<_>>(), pools);
        assert_eq!(param(&entries("nic")[1], "interface"), Some("mem1"));

        await_that("the first buffers", || counter(&entries("nic")[0], "in_rx") > 0);
        for packets in 1..=5 {
            assert!(wires[0].deliver(&[7; 60]));
            // Also the last ones: it goes to sleep right after them.
            await_that("counters that move", || {
                let ([nic, _], [one, other]) = (pair("nic"), pair("port"));
                counter(&nic, "rx_packets") == packets
                    && counter(&one, "redirect_out") == packets
                    && counter(&other, "redirect_in") == packets
            });
        }
        assert!(wires[1].take(|packet| assert_eq!(packet.len(), 60)));
        stop.store(true, Ordering::Relaxed);
        assert!(wires[0].deliver(&[7; 60])); // wakes it
        thread.join().unwrap();
        assert_eq!((names("nic"), names("port")), (Vec::new(), Vec::new()));
    });
}

fn pair(kind: &str) -> [EntryView; 2] {
    entries(kind).try_into().unwrap()
}

#[test]
fn a_busy_forwarder_publishes_counters_and_closed_ports_vanish() {
    let name = "a_busy_forwarder_publishes_counters_and_closed_ports_vanish";
    alone(name, || {
        let _publication = publish("busy").unwrap();
        let mut forwarder = Forwarder::new(|_, _| Action::Drop);
        let (device, pool, mut wire) = nic("mem0");
        let (other, other_pool, _wire) = nic("mem1");
        let [port, closed] =
            [(device, pool), (other, other_pool)].map(|(nic, of)| forwarder.add_port(nic, of));
        forwarder.poll(); // gives the devices their first buffers
        let (start, mut dropped) = (Instant::now(), 0);
        // It never sleeps, and nobody asks it to show anything.
        while dropped < 1000 {
            assert!(start.elapsed() < LIMIT, "{dropped} packets were seen: {:?}", seen());
            (0..8).for_each(|_| assert!(wire.deliver(&[0; 60])));
            assert_eq!(forwarder.poll(), 8);
            if start.elapsed().as_micros() % 10 == 0 {
                dropped = counter(&entries("port")[0], "drop");
            }
        }
        forwarder.show();
        let now = forwarder.stats(port).unwrap().drop;
        assert_eq!(counter(&entries("port")[0], "drop"), now);

        forwarder.close_port(closed);
        assert_eq!((names("nic"), names("port")), (vec!["mem0:0".into()], vec!["mem0:0".into()]));
        forwarder.close_all();
        assert_eq!((names("nic"), names("port")), (Vec::new(), Vec::new()));

        let (device, pool, _wire) = nic("mem2");
        let published = PublishedDevice::new(&device, &pool).unwrap();
        assert_eq!((names("nic"), names("port")), (vec!["mem2:0".into()], Vec::new()));
        drop(published);
        assert_eq!(names("nic"), Vec::<String>::new());
    });
}

#[test]
fn a_published_socket_has_its_interface_and_attach_mode() {
    let name = "a_published_socket_has_its_interface_and_attach_mode";
    if let Some(why) = veth::missing() {
        return println!("SKIP {name}: {why}");
    }
    alone(name, || {
        let _publication = publish("sockets").unwrap();
        let veth = Veth::new(2, 1500);
        let links = ["near0", "near1"].map(|name| Netlink::open().unwrap().link(name).unwrap().index);
        let mut forwarder = Forwarder::new(|_, _| Action::Drop);
        let redirect = Redirect::load("near0", Attach::Native, false).unwrap();
        let mut params = OpenParams::default();
        params.af_xdp.program = XdpProgram::Redirects(vec![redirect.clone()]);
        let arena = ArenaParams { max_bytes: 64 << 20, commit_all: true, ..Default::default() };
        let opened = open_device("af_xdp:near0", &params, &Arena::new(arena).unwrap()).unwrap();
        forwarder.add_port(opened.device, opened.pool.bind());
        forwarder.poll();
        assert_eq!(param(&entries("socket")[0], "attach"), None);
        redirect.start().unwrap(); // it is shown later
        // Of somebody else, in generic mode: a map alone does not say that.
        let theirs = Redirect::attach("near1", Attach::Generic, false).unwrap();
        let map = Redirect::over_map(theirs.map().as_fd().try_clone_to_owned().unwrap());
        let params = XskParams { interface: "near1".into(), redirect: Some(map), ..Default::default() };
        let (device, pool) = XskDevice::simple_with(params).unwrap();
        forwarder.add_port(device, pool);
        forwarder.poll();
        let mut far = veth.far_end(0);
        let start = Instant::now();
        while counter(&entries("socket")[0], "rx_packets") == 0 {
            assert!(start.elapsed() < LIMIT, "{:?}", seen().entries);
            far.send(&[0xff; 60]);
            while forwarder.poll() > 0 {}
            forwarder.wait(Duration::from_millis(10));
        }
        let sockets = entries("socket");
        for (at, (socket, mode)) in sockets.iter().zip(["native", "generic"]).enumerate() {
            let value = |name| param(socket, name);
            assert_eq!(value("ifindex"), Some(&*links[at].to_string()), "{socket:?}");
            assert_eq!(
                (value("interface"), value("queue")),
                (Some(["near0", "near1"][at]), Some("0")),
                "{socket:?}"
            );
            assert_eq!((value("attach"), value("zero_copy")), (Some(mode), Some("false")), "{socket:?}");
            assert_eq!(value("mode"), Some(&*format!("af_xdp_{mode}_copy")), "{socket:?}");
            assert_eq!(
                (value("mtu"), value("chunk")),
                (Some("1500"), Some(["4096", "2048"][at])),
                "{socket:?}"
            );
            assert!(value("rx_ring").is_some() && value("tx_ring").is_some() && value("tx_mode").is_some());
            let pool = seen().pools.into_iter().find(|pool| Some(u64::from(pool.id)) == socket.pool_id());
            assert_eq!(pool.unwrap().ifindex, Some(links[at]));
        }
        drop(forwarder);
        assert_eq!((names("socket"), names("port")), (Vec::new(), Vec::new()));
    });
}

/// Passes on packets that come by near0, sent in two bursts. Returns the entry of that id after them.
fn pass_two_bursts(veth: &Veth, attach: Attach, stack: KernelStack, id: u64) -> EntryView {
    let redirect = Some(Redirect::attach("near0", attach, false).unwrap());
    let params = XskParams { interface: "near0".into(), redirect, ..Default::default() };
    let (device, pool) = XskDevice::simple_with(params).unwrap();
    let pass = |_: &mut XdpBuff, _: Ingress| Action::Pass;
    let mut forwarder = Forwarder::with_stack(pass, stack);
    forwarder.add_port(device, pool);
    forwarder.poll(); // the device has buffers
    let far = FrameSocket::open(veth.far(), "far0").unwrap();
    let shown = || entries("stack").into_iter().find(|entry| entry.id == id).unwrap();
    for sent in [5, 10] {
        (0..5).for_each(|_| assert!(far.send(&[0xff; 60]).unwrap()));
        let start = Instant::now();
        while counter(&shown(), "passed") + counter(&shown(), "refused") < sent {
            assert!(start.elapsed() < LIMIT, "{sent} packets: {:?}", shown());
            if forwarder.poll() == 0 {
                forwarder.wait(Duration::from_millis(10));
            }
        }
    }
    shown()
}

#[test]
fn a_published_stack_has_its_counters_and_why_it_stopped() {
    let name = "a_published_stack_has_its_counters_and_why_it_stopped";
    if let Some(why) = veth::missing() {
        return println!("SKIP {name}: {why}");
    }
    alone(name, || {
        let _publication = publish("stacks").unwrap();
        let veth = Veth::new(1, 1500);
        let index = Netlink::open().unwrap().link("near0").unwrap().index.to_string();
        let [one, other] = [(); 2].map(|()| KernelStack::new("near0").unwrap());
        let ids: Vec<_> = entries("stack").iter().map(|entry| entry.id).collect();
        assert_eq!((names("stack"), &*ids), (vec!["near0".into(); 2], &[1, 2][..]));

        let shown = pass_two_bursts(&veth, Attach::Native, one, 1);
        assert_eq!((counter(&shown, "passed"), counter(&shown, "refused")), (10, 0));
        assert!((1..=10).contains(&counter(&shown, "runs")), "{shown:?}");
        let [interface, its_index, stopped] = ["interface", "ifindex", "stopped"].map(|of| param(&shown, of));
        assert_eq!((interface, its_index, stopped), (Some("near0"), Some(&*index), None));

        let shown = pass_two_bursts(&veth, Attach::Generic, other, 2);
        assert_eq!((counter(&shown, "passed"), counter(&shown, "refused")), (0, 10));
        assert_eq!(param(&shown, "stopped"), Some("a generic XDP program was attached to near0"));
        assert_eq!(names("stack"), Vec::<String>::new(), "both have ended");
    });
}
