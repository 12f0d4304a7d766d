//! Maps and links with names in a BPF file system, where they outlive their process.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pagepool::Error;
use pagepool_link::shell_word;

use crate::error::parameter;
use crate::sys::bpf as sys;
use crate::sys::remedy::{failed, failed_unless};
use crate::sys::{capability, errno};

/// Opens the interface's link with this name; `None` if the name is free. Removes the name of a link that was
/// detached or whose interface is gone: it can never attach again.
pub(super) fn open_link(path: &Path, interface: &str, index: u32) -> Result<Option<OwnedFd>, Error> {
    let opened = c_path(path).and_then(|name| match sys::pinned(&name) {
        Err(error) if error.raw_os_error() == Some(errno::ENOENT) => Ok(None),
        opened => opened.map(Some),
    });
    match opened.map_err(|error| not_opened("link", path, error))? {
        None => holds_names("link", path).map(|()| None),
        Some(link) => match seen(link.as_fd(), path, interface)? {
            (_, of) if of == index => Ok(Some(link)),
            (_, 0) => remove_dead(path).map(|()| None),
            _ => Err(not_of(path, interface)),
        },
    }
}

/// A named link's program and interface. An error for another object.
pub(super) fn seen(link: BorrowedFd<'_>, path: &Path, interface: &str) -> Result<(u32, u32), Error> {
    sys::xdp_link(link).map_err(|source| match source.raw_os_error() {
        None => not_of(path, interface),
        Some(_) => {
            let known = format!("the kernel does not report what {} is", path.display());
            failed("bpf(BPF_OBJ_GET_INFO_BY_FD)", source, known)
        }
    })
}

/// The error if the named object is no link of this interface.
pub(super) fn not_of(path: &Path, interface: &str) -> Error {
    let must_be = format!(
        "the link of an XDP program on {interface}: it belongs to another interface, perhaps in another \
         network namespace, or is another object; remove the file, or use another name"
    );
    parameter("link", path.display(), must_be)
}

/// Checks that an object can get this name, before anything is attached.
pub(super) fn holds_names(what: &'static str, path: &Path) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let has_names = c_path(folder).and_then(|folder| sys::has_names(&folder));
    let known = || format!("{} must be a folder of a BPF file system", folder.display());
    let has_names = has_names.map_err(|source| failed("statfs", source, known()))?;
    match has_names {
        true => Ok(()),
        false => Err(parameter(what, path.display(), "in a BPF file system: `mount -t bpf bpf /sys/fs/bpf`")),
    }
}

fn remove_dead(path: &Path) -> Result<(), Error> {
    fs::remove_file(path).map_err(|source| {
        let remedy = format!("{} is a detached link: remove the file", path.display());
        failed("unlink", source, remedy)
    })
}

pub(super) fn open_map(path: &Path) -> Result<OwnedFd, Error> {
    let opened = c_path(path).and_then(|name| sys::pinned(&name)).and_then(|map| {
        let info = sys::map_info(map.as_fd())?;
        Ok((map, info))
    });
    match opened.map_err(|error| not_opened("map", path, error))? {
        (map, (sys::MAP_TYPE_XSKMAP, [4, 4, _])) => Ok(map),
        (_, (map_type, _)) => {
            let found = format!("{} (type {map_type})", path.display());
            let must_be = "an XSKMAP (type 17) with keys of 4 bytes, to which an XDP program redirects: see \
                           `bpftool map show pinned PATH`";
            Err(parameter("map", found, must_be))
        }
    }
}

pub(super) fn pin(object: BorrowedFd<'_>, path: &Path) -> Result<(), Error> {
    c_path(path).and_then(|name| sys::pin(object, &name)).map_err(|source| {
        let path = path.display();
        let must_be = format!("{path} must be in a BPF file system");
        let own = match source.raw_os_error() {
            Some(errno::EEXIST) => Some(format!("{path} exists: remove it, or use another name")),
            Some(errno::EPERM | errno::EACCES) => {
                Some(format!("{must_be}: {}", capability::remedy(capability::PROGRAM)))
            }
            _ => None,
        };
        let known = format!("{must_be}: `mount -t bpf bpf /sys/fs/bpf`");
        failed_unless(own, "bpf(BPF_OBJ_PIN)", source, known)
    })
}

pub(super) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

fn not_opened(what: &str, path: &Path, source: io::Error) -> Error {
    let word = shell_word(&path.to_string_lossy());
    let path = path.display();
    let must_be = format!("{path} must be a {what} in a BPF file system");
    let own = match source.raw_os_error() {
        Some(errno::ENOENT) => Some(format!(
            "no {what} has the name {path}: the process that loads the XDP program must pin it, for example \
             by `bpftool {what} pin id ID {word}`"
        )),
        Some(errno::EPERM) => Some(format!("{path}: {}", capability::remedy(capability::PROGRAM))),
        Some(errno::EACCES) => Some(format!("{must_be} that this user may open")),
        _ => None,
    };
    let known = format!("{must_be}: see `bpftool {what} show pinned {word}`");
    failed_unless(own, "bpf(BPF_OBJ_GET)", source, known)
}
