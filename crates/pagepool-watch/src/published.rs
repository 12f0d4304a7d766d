//! Reads what processes publish: the files in a folder, of which no byte is trusted.

mod bytes;
mod holders_block;
pub mod model;
mod pool_block;
pub mod process;
pub mod run_folder;
