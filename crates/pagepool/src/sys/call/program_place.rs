//! Finds the program or shared library of an address, for `addr2line -e PROGRAM ADDRESS`.

// UNSAFETY: the C library's list of loaded objects.
#![expect(unsafe_code)]

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

struct AddressSearch {
    address: usize,
    /// The file (for the program itself empty, with musl `/proc/self/exe`), and its load offset.
    found: Option<(PathBuf, usize)>,
}

/// The place of a call that returns to `behind`: `program+0x1234`, or the address if it is in no file.
pub(crate) fn program_place(behind: usize) -> String {
    let address = behind.wrapping_sub(1); // the last byte of the call
    let mut search = AddressSearch { address, found: None };
    // SAFETY: the callback gets `search`, which lives as long as this call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    let Some((mut path, moved)) = search.found else { return format!("{address:#x}") };
    if path.as_os_str().is_empty() || path == Path::new("/proc/self/exe") {
        path = std::env::current_exe().unwrap_or_default();
    }
    let name = path.file_name().unwrap_or(OsStr::new("?")).to_string_lossy();
    format!("{name}+{:#x}", address.wrapping_sub(moved))
}

/// Checks a loaded object for the address; 1 ends the search.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the C library passes an object of its list.
    let info = unsafe { &*info };
    // SAFETY: the argument of dl_iterate_phdr above; no other reference to it exists.
    let search = unsafe { &mut *search.cast::<AddressSearch>() };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object's table, which exists while the list is walked.
    let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let has = |segment: &libc::Elf64_Phdr| {
        let first = (info.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
        segment.p_type == libc::PT_LOAD && search.address.wrapping_sub(first) < segment.p_memsz as usize
    };
    if !segments.iter().any(has) {
        return 0;
    }
    let name = match info.dlpi_name.is_null() {
        true => c"",
        // SAFETY: not NULL, and a string of the C library.
        false => unsafe { CStr::from_ptr(info.dlpi_name) },
    };
    let path = Path::new(OsStr::from_bytes(name.to_bytes())).to_owned();
    search.found = Some((path, info.dlpi_addr as usize));
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_file_that_has_it() {
        let here = program_place(an_address_is_in_the_file_that_has_it as *const () as usize + 1);
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap().to_string_lossy();
        assert!(here.starts_with(&format!("{program}+0x")), "{here}");
        let of_libc = program_place(libc::getpid as *const () as usize + 1);
        assert!(of_libc.contains("+0x"), "{of_libc}");
        assert_eq!(program_place(0x11), "0x10");
    }
}
