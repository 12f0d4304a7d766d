//! A thread for which a system call fails, as in a container that filters them.

use std::io;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ;

fn op(code: u32, skip: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skip, k }
}

/// From now on the fence of `membarrier` fails with `EPERM`, on this thread and on those that it starts.
/// Registering for it is allowed. An error says that this kernel has no filters.
pub fn refuse() -> io::Result<()> {
    install(&mut [
        op(LOAD, 0, 0), // its number
        op(IS, 3, libc::SYS_membarrier as u32),
        op(LOAD, 0, 16), // its first argument
        op(IS, 1, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u32),
        op(libc::BPF_RET, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
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
