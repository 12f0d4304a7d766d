//! XDP programs of several owners on one interface, in one chain. xdp-tools takes part in cases of guests.

use crate::veth;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use crate::veth::Veth;
use pagepool::Error;
use pagepool_lab::LinkSettings;
use pagepool_link::Netlink;
use pagepool_net::testing::TailAdjuster;
use pagepool_net::{Attach, Redirect};

/// An interface for chains, or `None` and why there is none.
fn interface(test: &str) -> Option<Rc<Veth>> {
    interface_with(test, 1500)
}

fn interface_with(test: &str, mtu: usize) -> Option<Rc<Veth>> {
    let missing = veth::missing().or_else(|| {
        let mounted = Path::new("/sys/fs/bpf");
        let has_files = std::fs::metadata(mounted.join("xdp")).is_ok() || make_folder(mounted);
        (!has_files).then(|| "no BPF file system is mounted at /sys/fs/bpf".to_owned())
    });
    if let Some(why) = missing {
        println!("SKIP {test}: {why}");
        return None;
    }
    let veth = Veth::new(1, mtu);
    match Redirect::load_beside("near0", Attach::Native, false, 50) {
        Ok(_) => Some(veth),
        Err(error) => {
            // The kernel lacks what an extension takes.
            assert!(matches!(error, Error::System { call: "bpf(BPF_PROG_LOAD)", .. }), "{error}");
            println!("SKIP {test}: {error}");
            None
        }
    }
}

/// Whether folders can be made there.
fn make_folder(of: &Path) -> bool {
    // Tests run at the same time.
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let trial = of.join(format!("pagepool-trial-{process}-{thread:?}"));
    std::fs::create_dir(&trial).and_then(|()| std::fs::remove_dir(trial)).is_ok()
}

fn beside(priority: u32) -> Arc<Redirect> {
    Redirect::load_beside("near0", Attach::Auto, false, priority).expect("another one could")
}

/// The id of what is attached.
fn attached() -> Option<u32> {
    let link = Netlink::open().expect("netlink").link("near0").expect("it is here");
    link.xdp.first().map(|there| there.id)
}

/// Detaches whatever is attached, unlike a program of a chain that leaves.
fn detach_xdp() {
    let mut netlink = Netlink::open().expect("netlink");
    let index = netlink.link("near0").expect("it is here").index;
    netlink.detach_xdp(index).expect("as `ip link set near0 xdp off` does");
}

/// The folder with the names of the dispatcher that is attached, which exists.
fn folder() -> PathBuf {
    let link = Netlink::open().expect("netlink").link("near0").expect("it is here");
    let folder = PathBuf::from(format!("/sys/fs/bpf/xdp/dispatch-{}-{}", link.index, link.xdp[0].id));
    assert!(folder.exists(), "{folder:?}");
    folder
}

#[test]
fn members_come_and_go() {
    let Some(_veth) = interface("members_come_and_go") else { return };
    let [first, second] = [20, 10].map(beside);
    assert_eq!((attached(), first.mode()), (None, None), "nothing is attached before the start");
    first.start().expect("no other program is attached");
    let alone = attached().expect("a dispatcher");
    assert!(Some(alone) != first.program_id() && first.mode() == Some((Attach::Native, None)));
    second.start().expect("one is there");
    let both = attached().expect("another dispatcher");
    assert!(both != alone && !first.is_detached() && !second.is_detached());
    let old = second.program_id();
    second.steer(&"udp".parse().expect("an expression")).expect("it is exchanged");
    assert!(second.program_id() != old && !first.is_detached() && !second.is_detached());
    drop(first);
    assert!(attached().is_some() && !second.is_detached());
    second.stop();
    assert!(attached().is_some(), "it leaves at its end");
    drop(second);
    assert_eq!(attached(), None);
}

#[test]
fn a_program_that_changes_packets_has_a_place() {
    let Some(_veth) = interface("a_program_that_changes_packets_has_a_place") else { return };
    let changes = TailAdjuster::join("near0", 10, None).expect("as others");
    let ours = beside(50);
    ours.start().expect("a chain with it is made");
    ours.steer(&"udp".parse().expect("an expression")).expect("and made anew");
    assert!(!ours.is_detached() && !changes.is_gone());
    drop(ours);
    assert!(attached().is_some() && !changes.is_gone());
    drop(changes);
    assert_eq!(attached(), None);
}

/// As xdp-tools 1.6 begins them. Who joins keeps the version, and what is bound to the device.
#[test]
fn chains_of_version_3_are_joined_as_they_are() {
    for bound in [false, true] {
        let Some(_veth) = interface("chains_of_version_3_are_joined_as_they_are") else { return };
        let first = match TailAdjuster::join("near0", 10, Some(bound)) {
            Ok(first) => first,
            Err(error) => {
                assert!(bound, "{error}");
                return println!("SKIP chains of one device: it needs Linux 6.3: {error}");
            }
        };
        assert_eq!(first.third().expect("it is there"), Some(bound));
        let ours = beside(50);
        ours.start().expect("a chain with it is made");
        ours.steer(&"udp".parse().expect("an expression")).expect("and made anew");
        assert!(!ours.is_detached() && !first.is_gone());
        assert_eq!(first.third().expect("it is there"), Some(bound));
        ours.leave().expect("the first one stays");
        assert_eq!((first.is_gone(), first.third().expect("it is there")), (false, Some(bound)));
        drop((ours, first));
        assert_eq!(attached(), None);
    }
}

#[test]
fn a_program_that_was_removed_is_not_put_back() {
    let Some(_veth) = interface("a_program_that_was_removed_is_not_put_back") else { return };
    let ours = beside(50);
    ours.start().expect("no other program is attached");
    let (id, folder) = (ours.program_id().expect("it is ours"), folder());
    detach_xdp();
    assert!(ours.is_detached());
    let again = ours.start().unwrap_err().to_string();
    let steered = ours.steer(&"udp".parse().expect("an expression")).unwrap_err().to_string();
    for refused in [again, steered] {
        assert!(refused.contains(&format!("still has the XDP program with id {id}")), "{refused}");
    }
    assert_eq!(attached(), None);
    drop(ours);
    assert!(!folder.exists(), "nobody else removes it");
}

/// A file that has another name until this is dropped, also by a failure: otherwise the name would stay.
struct Renamed {
    from: PathBuf,
    to: PathBuf,
}

impl Renamed {
    fn new(from: PathBuf, to: PathBuf) -> Self {
        std::fs::rename(&from, &to).expect("it is there");
        Self { from, to }
    }
}

impl Drop for Renamed {
    fn drop(&mut self) {
        let back = std::fs::rename(&self.to, &self.from);
        assert!(back.is_ok() || thread::panicking(), "{back:?}");
    }
}

/// A name of the chain is away for a moment, so that nobody can read it: leaving is refused, as where the
/// capabilities were dropped.
#[test]
fn failing_to_leave_a_chain_is_reported_with_a_remedy() {
    let Some(_veth) = interface("failing_to_leave_a_chain_is_reported_with_a_remedy") else { return };
    let [ours, other] = [20, 10].map(beside);
    ours.leave().expect("it has not joined");
    [&ours, &other].iter().for_each(|member| member.start().expect("there is room"));
    let (name, aside) = (folder().join("prog0-prog"), folder().join("aside"));
    let renamed = Renamed::new(name, aside);
    let refused = ours.leave().unwrap_err().to_string();
    let id = ours.program_id().expect("it is ours");
    for words in [
        &format!("bpf(BPF_OBJ_GET) failed: {}", folder().display()),
        &format!("the XDP program with id {id} stays in the chain of near0"),
        &format!("xdp-loader unload near0 --id {id}"),
        "ip link set dev near0 xdp off",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    drop(renamed);
    assert!(!ours.is_detached() && !other.is_detached());
    let both = attached();
    ours.leave().expect("the chain can be read again");
    assert!(attached() != both && !other.is_detached());
    ours.start().expect("it joins again");
    let again = attached();
    drop(ours);
    assert!(attached().is_some() && attached() != again);
    other.leave().expect("it is the last one");
    assert_eq!(attached(), None);
}

#[test]
fn a_chain_that_a_program_of_others_replaced_is_left() {
    let Some(_veth) = interface("a_chain_that_a_program_of_others_replaced_is_left") else { return };
    let ours = beside(50);
    ours.start().expect("no other program is attached");
    let folder = folder();
    detach_xdp();
    let other = Redirect::attach("near0", Attach::Native, false).expect("no other program is attached");
    ours.leave().expect("it is in no chain");
    assert_eq!((folder.exists(), attached()), (false, other.program_id()));
    drop(other);
    ours.start().expect("it joins again");
    assert!(attached().is_some() && !ours.is_detached());
}

#[test]
fn a_program_that_left_has_no_place_until_it_joins_again() {
    let Some(_veth) = interface("a_program_that_left_has_no_place_until_it_joins_again") else { return };
    let ours = beside(50);
    ours.start().expect("no other program is attached");
    assert_eq!(ours.mode(), Some((Attach::Native, None)));
    ours.leave().expect("it is alone");
    assert_eq!((ours.mode(), attached()), (None, None));
    let other = Redirect::load_beside("near0", Attach::Generic, false, 10).expect("another one could");
    other.start().expect("no other program is attached");
    ours.start().expect("there is room");
    assert_eq!(ours.mode(), Some((Attach::Generic, None)), "where the chain is now");
}

#[test]
fn a_program_that_joins_again_says_why_it_is_generic() {
    // More than a program without frags may see.
    let Some(_veth) = interface_with("a_program_that_joins_again_says_why_it_is_generic", 9000) else {
        return;
    };
    let [ours, other] = [20, 10].map(beside);
    ours.start().expect("generic takes it");
    let (mode, why) = ours.mode().expect("it has joined");
    assert!(mode == Attach::Generic && why.as_ref().is_some_and(|why| why.contains("refused it")), "{why:?}");
    other.start().expect("there is room");
    ours.leave().expect("the other one stays");
    ours.start().expect("it joins again, and tries no other place");
    assert_eq!(ours.mode(), Some((mode, why)));
}

#[test]
fn names_go_with_the_interface() {
    let Some(_veth) = interface("names_go_with_the_interface") else { return };
    let ours = beside(50);
    ours.start().expect("no other program is attached");
    let (folder, mut netlink) = (folder(), Netlink::open().expect("netlink"));
    let index = netlink.link("near0").expect("it is here").index;
    netlink.delete(index).expect("it is here");
    assert!(ours.is_detached());
    drop(ours);
    assert!(!folder.exists());
}

#[test]
fn members_of_other_network_namespaces_stay() {
    let Some(_veth) = interface("members_of_other_network_namespaces_stay") else { return };
    let [first, second] = [20, 10].map(beside);
    first.start().expect("no other program is attached");
    let elsewhere = thread::spawn(move || {
        let _away = Veth::new(1, 1500);
        second.start().expect("its netlink is where it was loaded");
        second.steer(&"udp".parse().expect("an expression")).expect("from anywhere");
        second
    });
    let second = elsewhere.join().expect("it does not fail");
    assert!(!first.is_detached() && !second.is_detached());
    let third = beside(30);
    third.start().expect("there is room");
    assert!(!first.is_detached() && !second.is_detached() && !third.is_detached());
}

#[test]
fn a_chain_has_room_for_ten() {
    let Some(_veth) = interface("a_chain_has_room_for_ten") else { return };
    let all: Vec<_> = (0..11).map(beside).collect();
    all[..10].iter().for_each(|member| member.start().expect("there is room"));
    let there = attached();
    let refused = all[10].start().unwrap_err().to_string();
    assert!(refused.contains("near0 has 10 XDP programs"), "{refused}");
    assert_eq!(attached(), there);
    assert!(all[..10].iter().all(|member| !member.is_detached()) && !all[10].is_detached());
    drop(all);
    assert_eq!(attached(), None);
}

#[test]
fn a_program_that_is_no_dispatcher_keeps_members_out() {
    let Some(_veth) = interface("a_program_that_is_no_dispatcher_keeps_members_out") else { return };
    let early = beside(50);
    let alone = Redirect::attach("near0", Attach::Native, false).expect("no other program is attached");
    let id = alone.program_id().expect("it is ours");
    let late = Redirect::load_beside("near0", Attach::Auto, false, 50).unwrap_err().to_string();
    for refused in [late, early.start().unwrap_err().to_string()] {
        let words = format!("the XDP program with id {id} is attached to near0 (pagepool_xsk), and cannot");
        assert!(refused.contains(&words), "{refused}");
    }
    drop(alone);
    early.start().expect("no other program is attached any more");
}
