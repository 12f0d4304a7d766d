//! The probes: places where a pool tells a tracer what happens, declared once, here.
//!
//! What   a function for each probe. With the feature `usdt` it is a `nop` and an ELF note, by which
//!        bpftrace, perf, gdb and SystemTap find it; with the feature `tracing` also an event of that crate.
//!        Without them only its arguments are computed. [`PoolProbe::ALL`] and docs/probes.md come from
//!        these lines.
//! Where  at rare events alone, behind what they tell of. The arguments are numbers at hand.
//! Who    any thread, as at a callback: with no lock of a pool held and no borrow of the owner's state live,
//!        because a subscriber of `tracing` may drop buffers. If it panics, the panic ends here.
//!        Adding one: its lines in `probes!`, at the end, the call, and what provokes it in
//!        tests/probes/provoke.rs.

/// A place where a pool tells a tracer what happens. Compiled in with the features `usdt` and `tracing`.
///
/// ```
/// use pagepool::PoolProbe;
/// let full = PoolProbe::ALL.iter().find(|probe| probe.name == "ring_full").unwrap();
/// assert_eq!((full.args[0].0, full.args[1].0), ("pool", "page"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolProbe {
    /// Its name; the provider of all of them is `pagepool`.
    pub name: &'static str,
    /// What has happened when it fires; the message of the event.
    pub fires: &'static str,
    /// The level of its event in `tracing`.
    pub level: &'static str,
    /// Names and meanings of its arguments, in order; the fields of the event.
    pub args: &'static [(&'static str, &'static str)],
}

/// Makes the functions and the list.
macro_rules! probes {
    ($($level:ident $name:ident: $fires:literal { $($arg:ident: $type:ty = $means:literal,)+ })+) => {
        impl PoolProbe {
            /// All of them, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self {
                name: stringify!($name),
                fires: $fires,
                level: stringify!($level),
                args: &[$((stringify!($arg), $means)),+],
            }),+];
        }

        $(
            #[inline(always)]
            pub(crate) fn $name($($arg: $type),+) {
                #[cfg(feature = "usdt")]
                ::probe::probe!(pagepool, $name, $($arg),+);
                #[cfg(feature = "tracing")]
                tell(|| {
                    ::tracing::event!(
                        name: stringify!($name), target: "pagepool", ::tracing::Level::$level,
                        $($arg,)+ $fires
                    );
                });
                let _ = ($($arg),+,);
            }
        )+
    };
}

probes! {
    DEBUG alloc_slow: "the provider (the arena) gave pages to a pool that had none" {
        pool: u32 = "id of the pool",
        pages: usize = "pages that came",
        order: u8 = "their order",
    }
    DEBUG ring_full: "a returned page found lane and ring full, and left the pool" {
        pool: u32 = "id of the pool",
        page: u32 = "number of the page in its area",
    }
    DEBUG waive: "an off-node page left the pool" {
        pool: u32 = "id of the pool",
        page: u32 = "number of the page in its area",
        node: u8 = "NUMA node of the page",
    }
    DEBUG starve: "an allocation found no page, or a refill left fewer than `low_water`" {
        pool: u32 = "id of the pool",
        inflight: i64 = "pages that the pool has, at hand or out",
    }
    TRACE wake: "the owner was signalled: a page came, the provider has more, or it shall shrink" {
        pool: u32 = "id of the pool",
        tasks: usize = "tasks that were woken",
    }
    DEBUG grow: "the arena committed more memory for a request" {
        area: u64 = "id of the arena's area",
        bytes: u64 = "bytes that came",
        committed: u64 = "bytes that are committed now",
    }
    DEBUG trim: "the arena gave memory back to the system" {
        area: u64 = "id of the arena's area",
        bytes: u64 = "bytes that went",
        committed: u64 = "bytes that are committed now",
    }
    DEBUG destroy: "the pool ended, for its owner" {
        pool: u32 = "id of the pool",
        out: i64 = "pages that are still out",
        deferred: u64 = "buffers that are deferred and in use",
    }
    WARN stall: "a pool that ended still has buffers out: its wait timed out, or its report says so" {
        pool: u32 = "id of the pool",
        out: i64 = "pages that are still out",
        deferred: u64 = "buffers that are deferred and in use",
        held_ms: u64 = "milliseconds since the pool ended",
    }
}

/// Emits an event. If the subscriber panics, the panic was reported and ends here, as that of a waker.
#[cfg(feature = "tracing")]
fn tell(event: impl FnOnce()) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(event));
}
