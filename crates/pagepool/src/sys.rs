//! Every system call of this crate. No other file calls the kernel.

// UNSAFETY: system calls are foreign functions; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` (linux/membarrier.h).
const MEMBARRIER_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED` (linux/membarrier.h).
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier_command(command: libc::c_int) -> libc::c_long {
    // SAFETY: membarrier takes three integers and touches no memory of the caller.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Makes this process one that [`membarrier`] may be called for; says whether the kernel allows it.
pub(crate) fn membarrier_register() -> bool {
    membarrier_command(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED) == 0
}

/// A full fence on every running thread of this process. Only after [`membarrier_register`] said yes.
pub(crate) fn membarrier() {
    let done = membarrier_command(MEMBARRIER_PRIVATE_EXPEDITED);
    debug_assert_eq!(done, 0, "membarrier worked when it was registered");
}
