//! A filter of system calls that refuses `membarrier` after the first pool was made: an error where one can
//! be given, and else the end of the process, with the reason.
#![allow(clippy::unwrap_used)]

mod filter;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::{env, thread};

use pagepool::{Bound, Error, Pool, PoolParams, fences_are_free};
use pagepool_testing::PlainMemory;

fn pool() -> Result<Bound, Error> {
    Pool::new(PoolParams::default(), PlainMemory::new(4, 0).unwrap()).map(Pool::bind)
}

/// Does something on a thread for which `membarrier` is refused since; unless it never worked here.
fn refused_later(work: impl FnOnce() + Send + 'static) {
    drop(pool().unwrap());
    if !fences_are_free() {
        return println!("SKIP: this kernel refuses membarrier from the start");
    }
    let filtered = move || match filter::refuse_fence() {
        Ok(()) => work(),
        Err(error) => println!("SKIP: no filter of system calls: {error}"),
    };
    thread::spawn(filtered).join().unwrap();
}

#[test]
fn a_further_pool_is_an_error_with_the_remedy() {
    refused_later(|| {
        let error = pool().map(drop).unwrap_err();
        assert!(matches!(error, Error::System { call: "membarrier", .. }), "{error}");
        assert_eq!(error.errno(), libc::EPERM);
        assert!(error.to_string().ends_with("install the filter before the first pool"), "{error}");
        assert!(fences_are_free(), "what was decided stands: threads rely on it");
    });
}

const CHILD: &str = "PAGEPOOL_ENDS_A_POOL_UNDER_A_FILTER";

#[test]
fn the_end_of_a_pool_is_the_end_of_the_process() {
    if env::var_os(CHILD).is_some() {
        let unbound = Pool::new(PoolParams::default(), PlainMemory::new(4, 0).unwrap()).unwrap();
        return refused_later(move || drop(unbound.bind()));
    }
    let this = "the_end_of_a_pool_is_the_end_of_the_process";
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    if let Some(reason) = out.lines().find(|line| line.starts_with("SKIP")) {
        return println!("{reason}");
    }
    assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{out}{err}");
    assert!(err.contains("allow it in the seccomp filter"), "{err}");
}
