//! What AF_XDP says where something is missing: a capability, memory that may be locked, a newer kernel, a
//! driver that can. Older kernels are played by a filter that answers as they do.

use crate::veth;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::veth::{CAP_BPF, CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, Refused, Veth};
use pagepool::{Arena, ArenaParams, Error, Pool, PoolParams};
use pagepool_link::Netlink;
use pagepool_net::{
    Attach, BusyPoll, Redirect, TxMetadataMode, Umem, UmemParams, XskDevice, XskMode, XskParams,
};

/// Set in the process that may lock little memory.
const CHILD: &str = "PAGEPOOL_TEST_LOCKS_LITTLE";

fn needs_veth(name: &str, test: impl FnOnce()) {
    match veth::missing() {
        Some(why) => println!("SKIP {name}: {why}"),
        None => test(),
    }
}

fn arena() -> Arc<Arena> {
    let params = ArenaParams { max_bytes: 4 << 20, commit_all: true, ..Default::default() };
    Arena::new(params).expect("4 MiB")
}

fn umem(params: UmemParams) -> Result<Arc<Umem>, Error> {
    Umem::new(UmemParams { mode: XskMode::Copy, ..params }, &arena())
}

fn attach(frags: bool) -> Result<Arc<Redirect>, Error> {
    Redirect::attach("near0", Attach::Auto, frags)
}

fn near(redirect: Option<Arc<Redirect>>, busy_poll: Option<BusyPoll>) -> XskParams {
    XskParams { interface: "near0".into(), rx_ring: 64, redirect, busy_poll, ..Default::default() }
}

fn open(umem: &Arc<Umem>, busy_poll: Option<BusyPoll>) -> Result<XskDevice, Error> {
    let pool = Pool::new(PoolParams::default(), arena())?.bind(); // it is refused before that is looked at
    XskDevice::open(near(None, busy_poll), umem, &pool)
}

fn error<T>(result: Result<T, Error>) -> String {
    result.map(drop).expect_err("it is refused").to_string()
}

fn says(text: &str, words: &[&str]) {
    assert!(words.iter().all(|word| text.contains(word)), "{words:?} in: {text}");
}

#[test]
fn the_capability_that_is_missing_is_named_and_no_other() {
    needs_veth("capabilities", || {
        let _veth = Veth::new(1, 1500);
        let no_socket = veth::without(&[CAP_NET_RAW], || error(umem(UmemParams::default())));
        says(&no_socket, &["socket(AF_XDP)", "no CAP_NET_RAW:"]);
        let no_program = veth::without(&[CAP_BPF, CAP_SYS_ADMIN], || error(attach(false)));
        says(&no_program, &["bpf(BPF_", "no CAP_BPF:"]);
        let no_link = veth::without(&[CAP_NET_ADMIN, CAP_SYS_ADMIN], || error(attach(false)));
        says(&no_link, &["bpf(BPF_", "no CAP_NET_ADMIN:"]);
        let neither = veth::without(&[CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN], || error(attach(false)));
        says(&neither, &["no CAP_BPF and CAP_NET_ADMIN:"]);
        let ours = umem(UmemParams::default()).expect("root may");
        let no_busy = veth::without(&[CAP_NET_ADMIN], || error(open(&ours, Some(BusyPoll::default()))));
        says(&no_busy, &["SO_PREFER_BUSY_POLL", "no CAP_NET_ADMIN:"]);
        // A process with these four needs no root.
        let enough = veth::without(&[CAP_SYS_ADMIN, CAP_IPC_LOCK], || {
            attach(false).and_then(|redirect| {
                let arena = arena();
                let umem = Umem::new(UmemParams { mode: XskMode::Copy, ..Default::default() }, &arena)?;
                let pool = PoolParams { domains: vec![umem.clone()], ..Default::default() };
                let pool = Pool::new(pool, arena)?.bind();
                XskDevice::open(near(Some(redirect), None), &umem, &pool).map(drop)
            })
        });
        enough.expect("CAP_NET_RAW, CAP_BPF and CAP_NET_ADMIN are enough, with 4 MiB that may be locked");
    });
}

#[test]
fn a_filtered_call_is_not_reported_as_a_missing_capability() {
    needs_veth("filters", || {
        let _veth = Veth::new(1, 1500);
        let bpf = Refused { call: libc::SYS_bpf, argument: (0, 0), errno: libc::EPERM };
        says(
            &veth::refused(&[bpf], || error(attach(false))),
            &["has CAP_BPF and CAP_NET_ADMIN", "outside of the container"],
        );
    });
}

/// What `bpf(2)` answers to this command.
fn bpf(command: u32, errno: libc::c_int) -> Refused {
    Refused { call: libc::SYS_bpf, argument: (0, command), errno }
}

fn option(name: libc::c_int, errno: libc::c_int) -> Refused {
    Refused { call: libc::SYS_setsockopt, argument: (2, name as u32), errno }
}

#[test]
fn an_error_on_an_old_kernel_names_the_required_version() {
    needs_veth("versions", || {
        let _veth = Veth::new(1, 1500);
        let error_names = |refused: Refused, what: &(dyn Fn() -> String + Sync), words: &[&str]| {
            says(&veth::refused(&[refused], what), words);
        };
        let make = || error(umem(UmemParams::default()));
        let family =
            Refused { call: libc::SYS_socket, argument: (0, libc::AF_XDP as u32), errno: libc::EAFNOSUPPORT };
        error_names(family, &make, &["socket(AF_XDP)", "older than 4.18", "CONFIG_XDP_SOCKETS"]);
        error_names(
            option(libc::XDP_UMEM_REG, libc::ENOPROTOOPT),
            &make,
            &["XDP_UMEM_REG", "older than 4.18"],
        );
        let unaligned =
            || error(umem(UmemParams { unaligned: true, chunk_size: 3072, ..Default::default() }));
        error_names(
            option(libc::XDP_UMEM_REG, libc::EINVAL),
            &unaligned,
            &["3072", "unaligned ones require Linux 5.4"],
        );
        let requests = || error(umem(UmemParams { tx_metadata: TxMetadataMode::On, ..Default::default() }));
        error_names(
            option(libc::XDP_UMEM_REG, libc::EINVAL),
            &requests,
            match veth::older_than((6, 11)) {
                Some(_) => &["tx_metadata requires Linux 6.11", "this is ", "TxMetadataMode::Off"],
                None => &["refuses chunks of 4096 bytes with 0 bytes of headroom"],
            },
        );

        let bind = Refused {
            call: libc::SYS_bind,
            argument: (2, size_of::<libc::sockaddr_xdp>() as u32),
            errno: libc::EINVAL,
        };
        let open_as = |params: UmemParams| error(open(&umem(params).expect("root may"), None));
        error_names(
            bind,
            &|| open_as(UmemParams::default()),
            &["bind(AF_XDP)", "between queues requires Linux 5.10"],
        );
        let several = || open_as(UmemParams { multi_buffer: true, ..Default::default() });
        error_names(bind, &several, &["bind(AF_XDP)", "Linux 6.6", "leave multi_buffer off"]);
        let prefer_busy_poll = 69;
        let busy = || error(open(&umem(UmemParams::default()).expect("root may"), Some(BusyPoll::default())));
        error_names(
            option(prefer_busy_poll, libc::ENOPROTOOPT),
            &busy,
            &["Linux 5.11", "leave busy_poll off"],
        );

        let (create, load, link) = (0, 5, 28);
        let (plain, frags) = (|| error(attach(false)), || error(attach(true)));
        error_names(bpf(create, libc::ENOSYS), &plain, &["BPF_MAP_CREATE", "CONFIG_BPF_SYSCALL"]);
        error_names(bpf(load, libc::EINVAL), &plain, &["BPF_PROG_LOAD", "Linux 5.9"]);
        error_names(bpf(load, libc::EINVAL), &frags, &["BPF_PROG_LOAD", "Linux 5.18"]);
        error_names(bpf(link, libc::EINVAL), &plain, &["BPF_LINK_CREATE", "Linux 5.9"]);
        let native = || error(Redirect::attach("near0", Attach::Native, false));
        error_names(bpf(link, libc::EINVAL), &native, &["BPF_LINK_CREATE", "older than 5.9", "MTU"]);
        error_names(
            bpf(link, libc::EOPNOTSUPP),
            &native,
            &["does not support XDP", "attach in generic mode"],
        );
        drop(attach(true).expect("this kernel has all of it, and nothing was left attached"));
    });
}

#[test]
fn a_remedy_is_that_of_the_call_and_of_the_errno() {
    needs_veth("remedies", || {
        let _veth = Veth::new(1, 1500);
        let error_names = |refused: Refused, what: &(dyn Fn() -> String + Sync), words: &[&str]| {
            let said = veth::refused(&[refused], what);
            says(&said, words);
            let wrong = ["RLIMIT", "smaller arena", "inherit_on_fork", "CAP_", "refused the XDP program"];
            let wrong = wrong.iter().filter(|wrong| !words.contains(wrong));
            assert!(wrong.clone().all(|wrong| !said.contains(wrong)), "{wrong:?} in: {said}");
        };
        let memory =
            || error(Arena::new(ArenaParams { max_bytes: 4 << 20, commit_all: true, ..Default::default() }));
        let dont_fork = (2, libc::MADV_DONTFORK as u32);
        let madvise = Refused { call: libc::SYS_madvise, argument: dont_fork, errno: libc::EPERM };
        error_names(madvise, &memory, &["madvise(MADV_DONTFORK)", "seccomp"]);
        let make = || error(umem(UmemParams::default()));
        error_names(option(libc::XDP_UMEM_REG, libc::EPERM), &make, &["XDP_UMEM_REG", "seccomp"]);
        let socket = |family, errno| Refused { call: libc::SYS_socket, argument: (0, family as u32), errno };
        error_names(
            socket(libc::AF_XDP, libc::EMFILE),
            &make,
            &["socket(AF_XDP)", "RLIMIT", "RLIMIT_NOFILE"],
        );
        let netlink = || Netlink::open().map(drop).expect_err("it is refused").to_string();
        error_names(socket(libc::AF_NETLINK, libc::EPERM), &netlink, &["socket", "seccomp"]);
        error_names(socket(libc::AF_NETLINK, libc::EMFILE), &netlink, &["socket", "RLIMIT", "RLIMIT_NOFILE"]);
        let (create, load, link) = (0, 5, 28);
        let plain = || error(attach(false));
        for command in [create, load, link] {
            error_names(bpf(command, libc::EMFILE), &plain, &["bpf(BPF_", "RLIMIT", "RLIMIT_NOFILE"]);
            error_names(bpf(command, libc::ENFILE), &plain, &["bpf(BPF_", "file-max"]);
        }
    });
}

#[test]
fn a_driver_without_zero_copy_is_named_and_so_is_the_remedy() {
    needs_veth("zero copy", || {
        let _veth = Veth::new(1, 1500);
        let params = UmemParams { mode: XskMode::ZeroCopy, ..Default::default() };
        let umem = Umem::new(params, &arena()).expect("memory may be registered");
        says(
            &error(open(&umem, None)),
            &["bind(AF_XDP)", "the driver does not support zero copy here (chunk ", "use --mode copy"],
        );
        assert_eq!(umem.sockets(), 0);
    });
}

/// In a process of its own, for the limit is the process's: what `Umem::new` says.
#[test]
fn a_memlock_limit_error_names_the_required_size() {
    if std::env::var_os(CHILD).is_some() {
        veth::limit_locked_memory(64 << 10);
        let text = veth::without(&[CAP_IPC_LOCK], || error(umem(UmemParams::default())));
        println!("\nSAYS {text}");
        let may = veth::without(&[], || umem(UmemParams::default()).map(drop));
        return may.expect("CAP_IPC_LOCK does instead");
    }
    needs_veth("locked memory", || {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let name = "xsk_errors::a_memlock_limit_error_names_the_required_size";
        command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").stdin(Stdio::null());
        let output = command.output().expect("it can be run again");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix("SAYS ")).expect("it said something");
        says(
            line,
            &["XDP_UMEM_REG", "4194304 bytes", "RLIMIT_MEMLOCK (ulimit -l 4096, or more)", "CAP_IPC_LOCK"],
        );
    });
}
