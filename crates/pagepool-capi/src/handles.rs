//! The ownership engine: what a token names, and which thread may use it now.

pub(crate) mod batch_table;
pub(crate) mod binding;
pub(crate) mod bound_pools;
pub(crate) mod claim;
pub(crate) mod directory;
pub(crate) mod life_word;
pub(crate) mod opaque;
pub(crate) mod owner;
pub(crate) mod owner_half;
pub(crate) mod slots;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod there;
pub(crate) mod thread;
pub(crate) mod token;
pub(crate) mod view;
