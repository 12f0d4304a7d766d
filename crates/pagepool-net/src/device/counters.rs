//! Counters of this crate: a list of names with their meanings becomes the struct, the names in order, the sum, and
//! the difference.

/// Declares a struct of counters: what it is, its name, and each counter with its meaning.
macro_rules! counters {
    ($(#[$about:meta])* $struct:ident: $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $struct { $($(#[$doc])* pub $name: u64,)* }

        impl $struct {
            /// The names of the counters, in order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Name and value of each, in order.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                Self::NAMES.iter().copied().zip([$(self.$name),*])
            }

            /// What was added since an earlier look; 0 for what became less.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name)),* }
            }
        }

        impl std::ops::AddAssign for $struct {
            fn add_assign(&mut self, more: Self) {
                $(self.$name += more.$name;)*
            }
        }
    };
}

pub(crate) use counters;
