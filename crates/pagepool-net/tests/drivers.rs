//! Devices opened by name: each row of the table receives and sends.

use crate::veth;
use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Backing, PoolParams, XdpFrameBulk};
use pagepool_lab::{FakeSwitch, FrameSocket, SwitchParams, TempFolder};
use pagepool_link::Netlink;
use pagepool_net::{
    Attach, DRIVERS, DeviceExt, DriverMemory, DriverQueues, OpenParams, OpenedDevice, OtherEnd, Redirect,
    TxQueue, Wake, XdpProgram, open_device, open_devices, swap_macs,
};
use pagepool_testing::FarEnd;

fn arena() -> Arc<Arena> {
    let params = ArenaParams { max_bytes: 16 << 20, commit_all: true, ..Default::default() };
    Arena::new(params).expect("16 MiB")
}

fn open(name: &str) -> OpenedDevice {
    open_device(name, &OpenParams::default(), &arena()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A packet comes in, and goes back with its addresses swapped; a burst and a frame keep their order.
fn echoes(opened: OpenedDevice, far: &mut dyn FarEnd) {
    let OpenedDevice { mut device, pool, .. } = opened;
    let pool = pool.bind();
    let (mut packets, mut queue, mut done) =
        (Vec::with_capacity(64), TxQueue::with_capacity(64, 64), XdpFrameBulk::new());
    let all = device.info().tx_ring;
    assert_eq!(device.state().tx_room, all, "an empty ring");
    device.receive(&pool, &mut packets, 64);
    for number in 0..3u8 {
        assert!(far.send(&[number; 60]));
    }
    while packets.len() < 3 && device.wait(&pool, veth::LIMIT) == Wake::Ready {
        device.receive(&pool, &mut packets, 64);
    }
    packets.iter_mut().for_each(|packet| swap_macs(packet.data_mut()));
    let last = packets.pop().expect("three came");
    queue.push_burst(&mut packets);
    queue.push(last);
    assert_eq!((device.transmit(&mut queue), queue.refused(), queue.len()), (3, 0, 0));
    assert!(device.state().tx_room <= all);
    let mut bytes = Vec::new();
    for number in 0..3u8 {
        assert!(far.receive(&mut bytes) && bytes == [number; 60], "packet {number}: {bytes:?}");
    }
    while device.stats().in_tx > 0 && device.wait(&pool, veth::LIMIT) != Wake::Gone {
        device.complete(&mut done, 64);
        done.flush();
    }
    assert_eq!((device.state().tx_room, device.info().mtu >= 1500), (all, true));
    device.close();
    assert_eq!(pool.inflight().out, 0, "all buffers returned");
}

#[test]
fn a_nic_in_memory_is_opened_by_name() {
    let mut opened = open("memory:nic7");
    assert_eq!(opened.device.info().name, "nic7");
    let mut wire = opened.wire.take().expect("the other end");
    echoes(opened, &mut wire);
}

#[test]
fn an_af_xdp_socket_is_opened_by_name() {
    if let Some(why) = veth::missing() {
        return println!("SKIP af_xdp: {why}");
    }
    let veth = veth::Veth::new(1, 1500);
    let mut far = veth.far_end(0);
    far.patience = veth::LIMIT;
    let opened = open("af_xdp:near0");
    assert!(opened.wire.is_none() && opened.device.info().name == "near0:0");
    echoes(opened, &mut far);
}

/// What one socket receives another one sends from where it lies; the devices keep the order of their names.
#[test]
fn devices_that_are_opened_together_share_memory() {
    if let Some(why) = veth::missing() {
        return println!("SKIP shared memory: {why}");
    }
    let veth = veth::Veth::new(2, 1500);
    let (mut from, mut to) = (veth.far_end(0), veth.far_end(1));
    let devices: [(&str, &[u32]); 4] =
        [("af_xdp:near1", &[0]), ("memory:nic3", &[0]), ("af_xdp:near0", &[0]), ("memory:", &[])];
    let opened = open_devices(&devices, &OpenParams::default(), &arena()).expect("free queues");
    assert_eq!(opened.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 0]);
    let mut opened = opened.into_iter().flatten();
    let (mut near1, nic, mut near0) =
        (opened.next().unwrap(), opened.next().unwrap(), opened.next().unwrap());
    let names = [&near1, &nic, &near0]
        .map(|opened| (opened.device.info().name.clone(), opened.pool.handle().name().to_owned()));
    assert_eq!(names, ["near1:0", "nic3", "near0:0"].map(|name| (name.to_owned(), name.to_owned())));
    let socket = near0.socket.as_ref().expect("it is a socket");
    assert!(socket.attach == Some(Attach::Native) && !socket.zero_copy && nic.socket.is_none());

    let pool = near0.pool.bind();
    let (mut packets, mut queue) = (Vec::with_capacity(64), TxQueue::with_capacity(64, 64));
    near0.device.receive(&pool, &mut packets, 64);
    assert!(from.send(&[5; 60]));
    while packets.is_empty() && near0.device.wait(&pool, veth::LIMIT) == Wake::Ready {
        near0.device.receive(&pool, &mut packets, 64);
    }
    queue.push_burst(&mut packets);
    assert_eq!((near1.device.transmit(&mut queue), queue.refused()), (1, 0));
    assert_eq!(to.next(), [5; 60]);
    near1.device.close();
    near0.device.close();
    assert_eq!(pool.inflight().out, 0, "all buffers returned");
}

/// Drivers reset all queues of an interface when its program is detached.
#[test]
fn a_program_stays_attached_while_its_redirect_is_kept() {
    if let Some(why) = veth::missing() {
        return println!("SKIP a redirect that is kept: {why}");
    }
    let _veth = veth::Veth::new(1, 1500);
    let attached = || !Netlink::open().expect("netlink").link("near0").expect("the link").xdp.is_empty();
    let opened = open("af_xdp:near0");
    let kept = opened.redirect.clone().expect("packets are redirected to it");
    drop(opened);
    assert!(attached(), "another queue may still send");
    drop(kept);
    assert!(!attached());
}

#[test]
fn sockets_are_in_the_map_of_another_program_from_start_to_stop() {
    if let Some(why) = veth::missing() {
        return println!("SKIP maps of others: {why}");
    }
    let veth = veth::Veth::new(1, 1500);
    let (theirs, mut far) =
        (Redirect::attach("near0", Attach::Auto, false).expect("a veth"), veth.far_end(0));
    let ours = Redirect::over_map(theirs.map().try_clone_to_owned().expect("a descriptor"));
    let mut params = OpenParams::default();
    params.af_xdp.program = XdpProgram::Redirects(vec![ours.clone()]);
    let OpenedDevice { mut device, pool, .. } =
        open_devices(&[("af_xdp:near0", &[0])], &params, &arena()).expect("a free queue").remove(0).remove(0);
    let pool = pool.bind();
    device.receive(&pool, &mut Vec::new(), 0);
    let stack = FrameSocket::open_here("near0").expect("a socket");
    let mut bytes = [0; 64];
    let mut reaches_the_stack = |far: &mut dyn FarEnd| {
        assert!(far.send(&[7; 60]) && stack.wait(veth::LIMIT), "the stack gets it");
        assert_eq!(stack.receive(&mut bytes).expect("the link is up"), Some(60));
    };
    reaches_the_stack(&mut far);
    ours.start().expect("the place is free");
    ours.start().expect("nothing is left to do");
    assert!(far.send(&[7; 60]));
    let mut packets = Vec::with_capacity(8);
    while packets.is_empty() && device.wait(&pool, veth::LIMIT) == Wake::Ready {
        device.receive(&pool, &mut packets, 8);
    }
    assert_eq!(packets.len(), 1, "the socket gets it");
    ours.stop();
    reaches_the_stack(&mut far);
    ours.start().expect("a second time");
    packets.clear();
    drop(device); // takes the socket out
    reaches_the_stack(&mut far);
}

/// Nothing calls `receive` before the first packet comes.
#[test]
fn a_socket_that_joins_a_redirect_that_runs_has_buffers() {
    if let Some(why) = veth::missing() {
        return println!("SKIP redirects that run already: {why}");
    }
    let veth = veth::Veth::new(1, 1500);
    let running = Redirect::attach("near0", Attach::Auto, false).expect("a veth");
    let mut params = OpenParams::default();
    params.af_xdp.program = XdpProgram::Redirects(vec![running]);
    let OpenedDevice { mut device, pool, .. } =
        open_device("af_xdp:near0", &params, &arena()).expect("a free queue");
    assert!(veth.far_end(0).send(&[7; 60]));
    let (pool, mut packets) = (pool.bind(), Vec::with_capacity(8));
    while packets.is_empty() && device.wait(&pool, veth::LIMIT) == Wake::Ready {
        device.receive(&pool, &mut packets, 8);
    }
    assert_eq!(packets.len(), 1, "it is not lost: {:?}", device.stats());
}

#[test]
fn redirects_that_stop_together_start_again() {
    if let Some(why) = veth::missing() {
        return println!("SKIP redirects that stop together: {why}");
    }
    let veth = veth::Veth::new(2, 1500);
    let all = ["near0", "near1"].map(|name| Redirect::load(name, Attach::Auto, false).expect("a veth"));
    let mut params = OpenParams::default();
    params.af_xdp.program = XdpProgram::Redirects(all.to_vec());
    let opened = open_devices(&[("af_xdp:near0", &[0]), ("af_xdp:near1", &[0])], &params, &arena());
    let opened: Vec<_> = opened.expect("free queues").into_iter().flatten().collect();
    let mut ports: Vec<_> = opened.into_iter().map(|of| (of.device, of.pool.bind())).collect();
    ports.iter_mut().for_each(|(device, pool)| assert_eq!(device.receive(pool, &mut Vec::new(), 0), 0));
    let stacks = ["near0", "near1"].map(|name| FrameSocket::open_here(name).expect("a socket"));
    let mut bytes = [0; 64];
    for _ in 0..2 {
        Redirect::start_all(&all).expect("nothing else is attached");
        for (at, (device, pool)) in ports.iter_mut().enumerate() {
            assert!(veth.far_end(at).send(&[7; 60]));
            let mut packets = Vec::with_capacity(8);
            while packets.is_empty() && device.wait(pool, veth::LIMIT) == Wake::Ready {
                device.receive(pool, &mut packets, 8);
            }
            assert_eq!(packets.len(), 1, "the socket gets it");
        }
        Redirect::stop_all(&all);
        for (at, stack) in stacks.iter().enumerate() {
            while stack.receive(&mut bytes).expect("the link is up").is_some() {} // of before
            assert!(veth.far_end(at).send(&[8; 60]) && stack.wait(veth::LIMIT), "the stack gets it");
            assert_eq!(stack.receive(&mut bytes).expect("the link is up"), Some(60));
        }
    }
}

#[test]
fn a_nic_in_memory_has_one_queue() {
    let two = open_devices(&[("memory:", &[0, 1])], &OpenParams::default(), &arena());
    assert_eq!(
        two.map(drop).unwrap_err().to_string(),
        "queue is 1, but must be 0: a NIC in memory has one queue"
    );
}

#[test]
fn af_xdp_refuses_a_pool_of_high_order() {
    if let Some(why) = veth::missing() {
        return println!("SKIP a pool of high order: {why}");
    }
    let _veth = veth::Veth::new(1, 1500);
    let pool = PoolParams { order: 1, ..Default::default() };
    let refused = open_device("af_xdp:near0", &OpenParams { pool, ..Default::default() }, &arena());
    assert_eq!(refused.map(drop).unwrap_err().to_string(), "order is 1, but must be 0: a chunk is one page");
}

#[test]
fn an_unknown_device_scheme_is_refused_with_the_known_ones() {
    let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).expect("1 MiB");
    for name in ["eth0", "vfio:0000:01:00.0", ""] {
        let text = open_device(name, &OpenParams::default(), &arena).map(drop).unwrap_err().to_string();
        assert!(DRIVERS.iter().all(|driver| text.contains(&format!("{}:", driver.scheme))), "{text}");
    }
}

#[test]
fn rows_say_what_their_memory_and_queues_must_be() {
    let plain = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() }).expect("8 MiB");
    let folder = TempFolder::new("pagepool-rows").expect("a folder");
    let path = folder.path().join("s");
    let _switch = FakeSwitch::listen(&path, SwitchParams::default()).expect("it listens");
    for driver in DRIVERS {
        let argument = match driver.other_end {
            OtherEnd::Socket => path.display().to_string(),
            OtherEnd::ThisProcess => String::new(),
            _ => continue, // it needs an interface
        };
        let name = format!("{}:{argument}", driver.scheme);
        let opened = open_device(&name, &OpenParams::default(), &plain).map(drop);
        match driver.memory {
            DriverMemory::Memfd => {
                let text = opened.unwrap_err().to_string();
                assert!(text.starts_with(&format!("the memory of {name} must be a memfd")), "{text}");
            }
            _ => opened.unwrap_or_else(|error| panic!("{name}: {error}")),
        }
        let backing = Backing::Memfd { huge: false };
        let shared = ArenaParams { max_bytes: 16 << 20, commit_all: true, backing, ..Default::default() };
        let shared = Arena::new(shared).expect("16 MiB");
        let two = open_devices(&[(&name, &[0, 1])], &OpenParams::default(), &shared).map(drop);
        assert_eq!(two.is_ok(), driver.queues == DriverQueues::Requested, "{name}: {two:?}");
    }
}

#[test]
fn the_back_end_is_asked_for_its_queues() {
    let folder = TempFolder::new("pagepool-rows").expect("a folder");
    let path = folder.path().join("s");
    let params = SwitchParams { pairs: 2, ..SwitchParams::default() };
    let _switch = FakeSwitch::listen(&path, params).expect("it listens");
    let backing = Backing::Memfd { huge: false };
    let arena = ArenaParams { max_bytes: 16 << 20, commit_all: true, backing, ..Default::default() };
    let arena = Arena::new(arena).expect("16 MiB");
    let name = format!("vhost_user:{}", path.display());
    let open = |name: &str, queues: &[u32]| open_devices(&[(name, queues)], &OpenParams::default(), &arena);
    let text = open(&name, &[0, 2]).map(drop).unwrap_err().to_string();
    assert_eq!(text, format!("{name} has no queue 2: its back end has 2 of them"));
    let opened = open(&format!("{name},server=0"), &[1]).expect("there is a queue 1").remove(0);
    assert_eq!(opened[0].device.info().name, format!("{name}:1"), "without options");
    drop(opened);
    for (more, words) in [
        (",server=2", "the option is server=2, but must be server=1 to listen"),
        (",mtu=9000", "the option is mtu=9000, but must be "),
    ] {
        let text = open(&format!("{name}{more}"), &[0]).map(drop).unwrap_err().to_string();
        assert!(text.starts_with(words), "{text}");
    }
}
