//! Declares counters: a list of names and meanings becomes the struct, the names and meanings in order, the
//! sum, and the difference. docs/operations.md has a table of the counters whose meaning says "If it rises:".

/// Declares a struct of counters: its documentation, its name, and each counter with its meaning. `and` adds
/// one optional field, a struct of further counters.
macro_rules! counters {
    (
        $(#[$about:meta])* $struct:ident: $($(#[doc = $doc:literal])+ $name:ident,)*
        $(and $(#[$part_doc:meta])+ $part:ident: $part_type:ident,)?
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $struct {
            $($(#[doc = $doc])+ pub $name: u64,)*
            $($(#[$part_doc])+ pub $part: Option<$part_type>,)?
        }

        impl $struct {
            /// The names of the counters, in order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// What each counter means, and what to do if it rises, in the order of the names.
            pub const DOCS: &'static [&'static str] = &[$(concat!($($doc),+).trim_ascii()),*];

            /// The name and value of each counter, in order.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                Self::NAMES.iter().copied().zip([$(self.$name),*])
            }

            /// The increase of each counter since `earlier`; 0 if it fell.
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($name: self.$name.saturating_sub(earlier.$name),)*
                    $($part: self.$part.map(|now| now.since(&earlier.$part.unwrap_or_default())),)?
                }
            }
        }

        impl std::ops::AddAssign for $struct {
            fn add_assign(&mut self, more: Self) {
                $(self.$name += more.$name;)*
                $(if let Some(more) = more.$part {
                    *self.$part.get_or_insert_default() += more;
                })?
            }
        }
    };
}

pub(crate) use counters;
