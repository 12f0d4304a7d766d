//! The structs of counters, made from the declarations in `pagepool`.
//!
//! cbindgen does not expand macros, so the crate `pagepool-header` writes these structs from [`STRUCTS`].

use ::pagepool::{DeferredStats, Stats};

/// A struct of the header: its name, its comment, and a name and a comment for each field after `size`, all
/// `uint64_t`.
pub struct CounterStruct {
    pub name: &'static str,
    pub about: &'static str,
    pub fields: &'static [(&'static str, &'static str)],
}

/// The structs, in the order of the header.
pub const STRUCTS: &[CounterStruct] = &[StatsC::STRUCT, DeferredStatsC::STRUCT];

macro_rules! counter_struct {
    (
        $c:ident, $rust:ident, $name:literal, $about:literal;
        $($(#[doc = $first_doc:literal])+ $first:ident;)*
        { $($(#[doc = $doc:literal])+ $field:ident,)+ }
    ) => {
        #[doc = $about]
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $c {
            /// sizeof of the struct: fields can be added at the end.
            pub size: usize,
            $($(#[doc = $first_doc])+ pub $first: u64,)*
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        impl $c {
            const STRUCT: CounterStruct = CounterStruct {
                name: $name,
                about: $about,
                fields: &[
                    $((stringify!($first), concat!($($first_doc),+)),)*
                    $((stringify!($field), concat!($($doc),+)),)+
                ],
            };
        }

        impl From<$rust> for $c {
            fn from(stats: $rust) -> Self {
                Self { size: size_of::<Self>(), $($first: stats.$first(),)* $($field: stats.$field),+ }
            }
        }
    };
}

::pagepool::for_each_pool_counter! { counter_struct!(
    StatsC, Stats, "pagepool_stats",
    "Counters of a pool. The names are Linux's (page_pool_alloc_stats, page_pool_recycle_stats). Start from \
     PAGEPOOL_STATS_INIT, or set `size`.";
) }

::pagepool::for_each_deferred_counter! { counter_struct!(
    DeferredStatsC, DeferredStats, "pagepool_deferred_stats",
    "Counters of a pool's deferred queue. Start from PAGEPOOL_DEFERRED_STATS_INIT, or set `size`.";
    /// Buffers that are in the queue now, and released ones that are still in use.
    pending;
) }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_has_the_counters_that_rust_has() {
        let names = |of: &CounterStruct| of.fields.iter().map(|&(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&StatsC::STRUCT), Stats::NAMES);
        assert_eq!(names(&DeferredStatsC::STRUCT)[1..], *DeferredStats::NAMES);
        assert_eq!(size_of::<StatsC>(), 8 + 8 * Stats::NAMES.len());
        assert_eq!(size_of::<DeferredStatsC>(), 16 + 8 * DeferredStats::NAMES.len());
    }
}
