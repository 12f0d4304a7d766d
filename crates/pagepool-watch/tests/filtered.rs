//! A filter of system calls that refuses to list a folder.
#![allow(clippy::unwrap_used)]
// UNSAFETY: installing a filter is a system call.
#![expect(unsafe_code)]

use std::{env, io, thread};

use pagepool_watch::RunFolder;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ;

fn op(code: u32, skip: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skip, k }
}

/// From now on a system call of this number fails with this errno, on this thread. An error says that this
/// kernel has no filters.
fn refuse_call(number: libc::c_long, errno: i32) -> io::Result<()> {
    install(&mut [
        op(LOAD, 0, 0),
        op(IS, 1, number as u32),
        op(libc::BPF_RET, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        op(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW),
    ])
}

fn install(code: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: the call takes integers, and is of this thread.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel reads the classic BPF program; the filter is this thread's.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn a_folder_that_cannot_be_listed_is_an_error() {
    let folder = env::temp_dir().join(format!("pagepool-listed-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let of = RunFolder::at(&folder);
    let filtered = move || match refuse_call(libc::SYS_getdents64, libc::EIO) {
        Ok(()) => {
            let said = of.processes().remove(0).unwrap_err().to_string();
            assert!(said.starts_with("readdir failed") && of.clean().is_err(), "{said}");
        }
        Err(error) => println!("SKIP: no filter of system calls: {error}"),
    };
    let done = thread::spawn(filtered).join();
    std::fs::remove_dir(&folder).unwrap();
    done.unwrap();
}
