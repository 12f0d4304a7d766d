//! A thread for which a system call fails, as in a container that filters them.

// UNSAFETY: installing a filter is a system call.
#![allow(unsafe_code)]

use std::io;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ;

fn op(code: u32, skip: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skip, k }
}

/// From now on a system call of this number fails with this errno, on this thread and on those that it
/// starts: with any arguments, or with this first one. An error says that this kernel has no filters.
pub fn refuse(number: libc::c_long, first: Option<libc::c_int>, errno: i32) -> io::Result<()> {
    let argument = first.map(|first| [op(LOAD, 0, 16), op(IS, 1, first as u32)]);
    let skipped = if first.is_some() { 3 } else { 1 };
    let mut code = vec![op(LOAD, 0, 0), op(IS, skipped, number as u32)];
    code.extend(argument.into_iter().flatten());
    code.push(op(libc::BPF_RET, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    code.push(op(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW));
    install(&mut code)
}

/// Refuses the fence of `membarrier` with `EPERM`. Registering for it is allowed.
#[allow(dead_code)] // only some of the programs that have this file need it
pub fn refuse_fence() -> io::Result<()> {
    refuse(libc::SYS_membarrier, Some(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED), libc::EPERM)
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
