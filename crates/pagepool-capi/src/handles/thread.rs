//! The identity of the calling thread.
//!
//! What   a thread is identified by the address of its control block, which one instruction reads;
//!        thread-local memory of a shared library costs a call. The address is unique among living threads,
//!        and a thread that ends unbinds its pools first (`bound_pools`), so no pool ever waits for an owner
//!        that is gone.
//! Who    any thread.

// UNSAFETY: one instruction that reads a register.
#![expect(unsafe_code)]

/// The calling thread's number: never 0, never small, never odd.
#[inline(always)]
pub(crate) fn me() -> u64 {
    let me: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: on Linux the word at fs:0 is the address of the thread's control block.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) me, options(pure, readonly, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the register may be read, and holds the address of the thread's control block.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) me, options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        thread_local!(static MARK: u64 = const { 0 });
        me = MARK.with(|mark| std::ptr::from_ref(mark).addr() as u64);
    }
    me
}
