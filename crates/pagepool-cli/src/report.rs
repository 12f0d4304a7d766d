//! What a command prints: numbers, errors, JSON.

pub mod error;
pub mod json;
pub mod number;
