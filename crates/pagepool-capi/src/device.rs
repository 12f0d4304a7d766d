//! Devices that go away.

// UNSAFETY: a function with a fixed name.
#![expect(unsafe_code)]

use std::ffi::c_int;

use crate::handles::{ArenaHandle, DomainHandle};
use crate::refusal::{Refusal, status};
use crate::token::Token;

/// The device is gone: unmaps every region of the arena from its domain now, whoever still uses it. Buffers that are out stay
/// valid for the CPU, have no address there any more, and are not unmapped a second time when they come home.
///
/// Thread: any. Errors: -ENODEV where the arena was not mapped there; -EINVAL, -ESTALE. Cost: a lock, and the domain's unmap.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_arena_device_gone(arena: *mut ArenaHandle, domain: *mut DomainHandle) -> c_int {
    status(|| {
        let domain = crate::domain::domain(Token::of(domain))?;
        let provider = crate::arena::provider(Token::of(arena))?;
        let none = Refusal::fixed(libc::ENODEV, c"the arena is not mapped in that domain");
        if provider.area().device_gone(domain.id()) { Ok(()) } else { Err(none) }
    })
}
