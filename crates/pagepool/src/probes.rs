//! The probes: places where a pool notifies a tracer, declared here once.
//!
//! What   a function for each probe. With the feature `usdt` it is a `nop` and an ELF note, which bpftrace,
//!        perf, gdb and SystemTap find; with the feature `tracing` also an event of that crate. Without both
//!        only its arguments are computed. [`PoolProbe::ALL`] and docs/probes.md come from these lines.
//! Where  only at rare events, after them. The arguments are numbers that are already known.
//! Who    any thread, with no lock of a pool held and no borrow of the owner's state live, as at a callback:
//!        a subscriber of `tracing` may drop buffers. Its panic ends here. To add a probe: append it to
//!        `probes!`, call it, and provoke it in tests/probes/provoke.rs.

/// A place where a pool notifies a tracer, compiled in with the features `usdt` and `tracing`.
///
/// ```
/// use pagepool::PoolProbe;
/// let full = PoolProbe::ALL.iter().find(|probe| probe.name == "ring_full").unwrap();
/// assert_eq!((full.args[0].0, full.args[1].0), ("pool", "page"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolProbe {
    /// Its name; the provider is always `pagepool`.
    pub name: &'static str,
    /// What has happened when it fires; the event's message.
    pub fires: &'static str,
    /// The event's level in `tracing`.
    pub level: &'static str,
    /// Names and meanings of its arguments, in order; the event's fields.
    pub args: &'static [(&'static str, &'static str)],
}

/// Makes the functions and the list.
macro_rules! probes {
    ($($level:ident $name:ident: $fires:literal { $($arg:ident: $type:ty = $means:literal,)+ })+) => {
        impl PoolProbe {
            /// All probes, in the order of their declaration.
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
                emit(|| {
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
    DEBUG alloc_slow: "a pool without idle pages got new ones from its provider (the arena)" {
        pool: u32 = "id of the pool",
        pages: usize = "number of pages",
        order: u8 = "order of the pages",
    }
    DEBUG ring_full: "a returned page found the lane and ring full, and left the pool" {
        pool: u32 = "id of the pool",
        page: u32 = "number of the page in its area",
    }
    DEBUG waive: "a page that is not on the pool's NUMA node left the pool" {
        pool: u32 = "id of the pool",
        page: u32 = "number of the page in its area",
        node: u8 = "NUMA node of the page",
    }
    DEBUG starve: "an allocation found no page, or a refill left fewer than `low_water` pages available" {
        pool: u32 = "id of the pool",
        inflight: i64 = "pages of the pool, idle or out",
    }
    TRACE wake: "the owner was signalled: a page returned, the provider has more, or a shrink was requested" {
        pool: u32 = "id of the pool",
        tasks: usize = "number of tasks woken",
    }
    DEBUG grow: "the arena committed more memory to serve a request" {
        area: u64 = "id of the arena's area",
        bytes: u64 = "bytes added",
        committed: u64 = "bytes committed now",
    }
    DEBUG trim: "the arena returned memory to the system" {
        area: u64 = "id of the arena's area",
        bytes: u64 = "bytes returned",
        committed: u64 = "bytes committed now",
    }
    DEBUG destroy: "the owner ended the pool" {
        pool: u32 = "id of the pool",
        out: i64 = "pages still out",
        deferred: u64 = "deferred buffers still in use",
    }
    WARN stall: "buffers of an ended pool are still out: a wait timed out, or a report found them" {
        pool: u32 = "id of the pool",
        out: i64 = "pages still out",
        deferred: u64 = "deferred buffers still in use",
        held_ms: u64 = "milliseconds since the pool ended",
    }
}

/// Emits an event. A panic of the subscriber is already reported, and ends here, like that of a waker.
#[cfg(feature = "tracing")]
fn emit(event: impl FnOnce()) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(event));
}
