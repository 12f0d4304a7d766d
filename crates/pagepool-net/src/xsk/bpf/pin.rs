//! Maps and links with names in a BPF file system, by which they outlive the process that made them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pagepool::Error;

use crate::error::parameter;
use crate::sys::bpf as sys;
use crate::sys::{capability, errno};

/// The link of an interface's XDP program, under its name.
#[derive(Debug)]
pub(super) struct PinnedLink {
    pub(super) path: PathBuf,
    /// It, and the id of the program that it runs; `None` if nothing has the name yet.
    pub(super) there: Option<(OwnedFd, u32)>,
}

impl PinnedLink {
    /// What has this name: a link of the interface, or nothing.
    pub(super) fn open(path: &Path, interface: &str, index: u32) -> Result<Self, Error> {
        let open = |name: CString| match sys::pinned(&name) {
            Err(error) if error.raw_os_error() == Some(errno::ENOENT) => Ok(None),
            opened => opened.map(Some),
        };
        let opened = c_path(path).and_then(open).map_err(|error| not_opened("link", path, error))?;
        let Some(link) = opened else { return Ok(Self { path: path.to_owned(), there: None }) };
        match sys::xdp_link(link.as_fd()) {
            Ok((program, of)) if of == index => {
                Ok(Self { path: path.to_owned(), there: Some((link, program)) })
            }
            _ => {
                let must_be = format!(
                    "the link of an XDP program on {interface}: its interface may be gone, or it is another \
                     object; remove the file, or use another name"
                );
                Err(parameter("link", path.display(), must_be))
            }
        }
    }
}

/// Opens an XSKMAP by its name.
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

/// Gives an object a name.
pub(super) fn pin(object: BorrowedFd<'_>, path: &Path) -> Result<(), Error> {
    c_path(path).and_then(|name| sys::pin(object, &name)).map_err(|source| {
        let path = path.display();
        let remedy = match source.raw_os_error() {
            Some(errno::EEXIST) => format!("{path} exists: remove it, or use another name"),
            Some(errno::EPERM | errno::EACCES) => {
                format!("{path} must be in a BPF file system: {}", capability::remedy(capability::PROGRAM))
            }
            _ => format!("{path} must be in a BPF file system: `mount -t bpf bpf /sys/fs/bpf`"),
        };
        Error::System { call: "bpf(BPF_OBJ_PIN)", remedy, source }
    })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

/// Why a map or a link with a name could not be opened.
fn not_opened(what: &str, path: &Path, source: io::Error) -> Error {
    let path = path.display();
    let remedy = match source.raw_os_error() {
        Some(errno::ENOENT) => format!(
            "no {what} has the name {path}: whoever loads the XDP program pins it, for example by `bpftool \
             {what} pin id ID {path}`"
        ),
        Some(errno::EPERM) => format!("{path}: {}", capability::remedy(capability::PROGRAM)),
        Some(errno::EACCES) => {
            format!("{path} must be a {what} in a BPF file system that this user may open")
        }
        _ => format!("{path} must be a {what} in a BPF file system: see `bpftool {what} show pinned {path}`"),
    };
    Error::System { call: "bpf(BPF_OBJ_GET)", remedy, source }
}
