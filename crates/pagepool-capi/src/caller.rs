//! Where an allocation is called from: the return address in the program.
//!
//! What   an exported function that allocates jumps to another, which has this address as one more argument.
//!        Pools with `holders` record it; others ignore it.
//! Why    nothing else on a thread has it: how far up the stack the caller is depends on inlining, and a
//!        static program may have stripped the names of this library's functions.
//! Cost   two instructions.

// UNSAFETY: the contract of C's callers is passed on to another function.

/// The return address of a call of the library; 0 on CPUs for which the jump is not written.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Caller(pub(crate) usize);

/// The body of an exported function: `from_caller!(inner(pool, n))` jumps to `inner`, which takes these
/// arguments, integers or addresses, and then a [`Caller`]. The function is naked on the CPUs of `jump`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! from_caller {
    ($inner:ident($a:ident)) => {
        crate::caller::jump!($inner, "rsi", "x1")
    };
    ($inner:ident($a:ident, $b:ident)) => {
        crate::caller::jump!($inner, "rdx", "x2")
    };
    ($inner:ident($a:ident, $b:ident, $c:ident)) => {
        crate::caller::jump!($inner, "rcx", "x3")
    };
    ($inner:ident($a:ident, $b:ident, $c:ident, $d:ident)) => {
        crate::caller::jump!($inner, "r8", "x4")
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! from_caller {
    ($inner:ident($($arg:ident),+)) => {
        // SAFETY: the arguments are the caller's, whose contract is that of the inner function.
        unsafe { $inner($($arg,)+ crate::caller::Caller(0)) }
    };
}

/// Stores the return address in the register of one more argument, and jumps.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($inner:ident, $argument:literal, $of_arm:literal) => {
        std::arch::naked_asm!(
            concat!("mov ", $argument, ", qword ptr [rsp]"),
            "jmp {inner}",
            inner = sym $inner,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($inner:ident, $of_x86:literal, $argument:literal) => {
        std::arch::naked_asm!(concat!("mov ", $argument, ", x30"), "b {inner}", inner = sym $inner)
    };
}

pub(crate) use from_caller;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use jump;
