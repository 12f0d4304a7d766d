//! Where an allocation is called: the address behind the call in the program.
//!
//! What   an exported function that allocates is a jump to one that has this address as one argument more.
//!        Pools with `holders` record it; others do not look at it.
//! Why    nothing else on a thread says it: how far up the stack the caller is depends on what the compiler
//!        inlined, and in a static program the names of this library's functions may be stripped.
//! Cost   two instructions.

// UNSAFETY: what C's callers answer for goes on to another function.

/// The address behind a call of the library; 0 on CPUs for which the jump is not written.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Caller(pub(crate) usize);

/// The body of an exported function: `from_caller!(inner(pool, n))` continues in `inner`, which has the same
/// arguments, whole numbers or addresses, and then a [`Caller`]. The function is naked on the CPUs of `jump`.
#[cfg(target_arch = "x86_64")]
macro_rules! from_caller {
    ($inner:ident($a:ident)) => {
        crate::caller::jump!($inner, "rsi")
    };
    ($inner:ident($a:ident, $b:ident)) => {
        crate::caller::jump!($inner, "rdx")
    };
    ($inner:ident($a:ident, $b:ident, $c:ident)) => {
        crate::caller::jump!($inner, "rcx")
    };
    ($inner:ident($a:ident, $b:ident, $c:ident, $d:ident)) => {
        crate::caller::jump!($inner, "r8")
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! from_caller {
    ($inner:ident($a:ident)) => {
        crate::caller::jump!($inner, "x1")
    };
    ($inner:ident($a:ident, $b:ident)) => {
        crate::caller::jump!($inner, "x2")
    };
    ($inner:ident($a:ident, $b:ident, $c:ident)) => {
        crate::caller::jump!($inner, "x3")
    };
    ($inner:ident($a:ident, $b:ident, $c:ident, $d:ident)) => {
        crate::caller::jump!($inner, "x4")
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! from_caller {
    ($inner:ident($($arg:ident),+)) => {
        // SAFETY: the arguments are the caller's, whose contract is that of the inner function.
        unsafe { $inner($($arg,)+ crate::caller::Caller(0)) }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($inner:ident, $argument:literal) => {
        std::arch::naked_asm!(
            concat!("mov ", $argument, ", qword ptr [rsp]"),
            "jmp {inner}",
            inner = sym $inner,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($inner:ident, $argument:literal) => {
        std::arch::naked_asm!(concat!("mov ", $argument, ", x30"), "b {inner}", inner = sym $inner)
    };
}

pub(crate) use from_caller;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use jump;
