//! The memory of an arena, committed region by region.
//!
//! What   [`ArenaMemory`] commits the requested kind, and reports the kind it used instead, if any. A region
//!        of huge pages is mapped elsewhere, populated, and then moved into its place, so a refusal leaves
//!        the reservation unchanged.
//! Who    the arena, under its growth lock, never under the free pages' lock: committing may fault memory in.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::Error;
use crate::mem::area::REGION_SHIFT;
use crate::mem::arena::backing::{Backing, OnMissingHuge, bytes};
use crate::mem::arena::params::{ArenaParams, Place};
use crate::sys::call::{OwnFd, read_file};
use crate::sys::memory::{self, Advice, Mapped, Reservation};

/// The kind of memory used instead of the requested one, and why.
pub(crate) type Instead = (Backing, String);

/// The addresses of an arena, and the file behind them, if any.
#[derive(Debug)]
pub(crate) struct ArenaMemory {
    pub(crate) params: ArenaParams,
    space: Reservation,
    file: Option<OwnFd>,
    /// Why the file has no huge pages, if requested.
    fell_back: Option<Instead>,
}

impl ArenaMemory {
    /// Reserves addresses and makes the memfd. Commits nothing.
    pub(crate) fn reserve(params: ArenaParams) -> Result<Self, Error> {
        let space = Reservation::new(params.max_bytes as usize, 1 << params.region_shift())
            .map_err(Error::of_call("mmap", || too_much_address_space(params.max_bytes)))?;
        let mut this = Self::over(space, params);
        if let Backing::Memfd { huge } = this.params.backing {
            match this.make_file(huge) {
                Ok(file) => this.file = Some(file),
                Err(error) if huge && this.params.on_missing_huge == OnMissingHuge::Fallback => {
                    this.fell_back = Some((this.params.backing.instead(), why(&error)));
                    this.file = Some(this.make_file(false)?);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(this)
    }

    pub(crate) fn over(space: Reservation, params: ArenaParams) -> Self {
        Self { params, space, file: None, fell_back: None }
    }

    /// Makes the memfd. Of huge pages, claims the first region's at once: the whole file is of one kind.
    fn make_file(&self, huge: bool) -> Result<OwnFd, Error> {
        let max_bytes = self.params.max_bytes;
        memory::check_file_size(max_bytes)?;
        let shift = huge.then_some(21);
        let missing = |source| match shift {
            Some(shift) => missing_huge("memfd_create(MFD_HUGETLB)", shift, max_bytes, source),
            None => Error::of_call("memfd_create", || out_of_memory(max_bytes))(source),
        };
        let file = memory::memfd(&self.params.name, max_bytes, shift).map_err(missing)?;
        if huge {
            let first = 0..(max_bytes as usize).min(1 << crate::REGION_SHIFT);
            let probe = Mapped::file(first, file.as_fd()).map_err(missing)?;
            probe.populate().map_err(missing)?;
        }
        Ok(file)
    }

    pub(crate) fn base(&self) -> usize {
        self.space.base()
    }

    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Makes a region usable. Returns the kind used instead and why, if it is not the requested one.
    pub(crate) fn commit(&self, at: Range<usize>, place: Place) -> Result<Option<Instead>, Error> {
        let done = self.try_commit(at.clone(), place);
        if done.is_err() {
            let _ = self.decommit(at); // report the first error
        }
        done
    }

    fn try_commit(&self, at: Range<usize>, place: Place) -> Result<Option<Instead>, Error> {
        let instead = self.map(at.clone(), place)?;
        let addr = self.base() + at.start;
        if !self.params.inherit_on_fork && !self.space.is_callers() {
            let remedy = "this kernel cannot exclude the memory from child processes: set inherit_on_fork";
            let no = Error::of_call("madvise(MADV_DONTFORK)", || remedy.into());
            memory::advise(addr, at.len(), Advice::DontFork).map_err(no)?;
        }
        if self.params.prefault || self.params.queries_nodes() {
            let no = Error::of_call("madvise(MADV_POPULATE_WRITE)", || out_of_memory(at.len() as u64));
            self.space.prefault(at.clone()).map_err(no)?;
        }
        if self.params.mlock {
            let no = Error::of_call("mlock", || mlock_remedy(self.params.max_bytes));
            memory::mlock(addr, at.len()).map_err(no)?;
        }
        Ok(instead)
    }

    fn map(&self, at: Range<usize>, place: Place) -> Result<Option<Instead>, Error> {
        let backing = self.params.backing;
        match backing {
            Backing::Caller => Ok(None),
            Backing::Anonymous4k | Backing::TransparentHuge => self.map_plain(at, place, backing),
            Backing::Memfd { huge } => {
                self.map_file(at, place, huge && self.fell_back.is_none()).map(|()| self.fell_back.clone())
            }
            Backing::Huge2M | Backing::Huge1G => match self.map_huge(at.clone(), place) {
                Ok(()) => Ok(None),
                Err(error) if self.params.on_missing_huge == OnMissingHuge::Fail => Err(error),
                Err(error) => {
                    let further = self.map_plain(at, place, backing.instead())?.map(|(kind, _)| kind);
                    Ok(Some((further.unwrap_or(backing.instead()), why(&error))))
                }
            },
        }
    }

    fn map_plain(&self, at: Range<usize>, place: Place, kind: Backing) -> Result<Option<Instead>, Error> {
        let no = Error::of_call("mprotect", || out_of_memory(at.len() as u64));
        self.space.commit(at.clone()).map_err(no)?;
        put_on(place, self.base() + at.start, at.len())?;
        let addr = self.base() + at.start;
        if kind != Backing::TransparentHuge {
            let _ = memory::advise(addr, at.len(), Advice::NoHugePage); // a kernel without huge pages refuses
            return Ok(None);
        }
        let must_be_it = kind == self.params.backing && self.params.on_missing_huge == OnMissingHuge::Fail;
        let refused = match memory::advise(addr, at.len(), Advice::HugePage) {
            Err(error) => Some(format!("madvise(MADV_HUGEPAGE): {error}")),
            Ok(()) => no_transparent_huge_pages(|file| read_file(file).ok()),
        };
        match refused {
            Some(reason) if must_be_it => {
                Err(Error::Unsupported { what: format!("{reason}, or set on_missing_huge: Fallback") })
            }
            other => Ok(other.map(|reason| (Backing::Anonymous4k, reason))),
        }
    }

    fn map_huge(&self, at: Range<usize>, place: Place) -> Result<(), Error> {
        let shift = self.params.backing.huge_shift().expect("only hugetlb kinds come here");
        let missing = |source| missing_huge("mmap(MAP_HUGETLB)", shift, at.len() as u64, source);
        self.map_staged(Mapped::huge(at.len(), shift), at.clone(), place, missing)
    }

    /// Populates a staged mapping of huge pages, and moves it into its place.
    fn map_staged(
        &self,
        staged: io::Result<Mapped>,
        at: Range<usize>,
        place: Place,
        missing: impl Fn(io::Error) -> Error,
    ) -> Result<(), Error> {
        let staged = staged.map_err(&missing)?;
        put_on(place, staged.addr(), at.len())?;
        staged.populate().map_err(&missing)?;
        self.space.commit_staged(at, staged).map_err(missing)
    }

    fn map_file(&self, at: Range<usize>, place: Place, huge: bool) -> Result<(), Error> {
        let file = self.file().expect("a memfd arena has a file");
        if !huge {
            let no = Error::of_call("mmap(memfd)", || out_of_memory(at.len() as u64));
            self.space.commit_file(at.clone(), file).map_err(no)?;
            return put_on(place, self.base() + at.start, at.len());
        }
        let missing = |source| missing_huge("mmap(MFD_HUGETLB)", 21, at.len() as u64, source);
        self.map_staged(Mapped::file(at.clone(), file), at.clone(), place, missing)
    }

    /// Frees a region's memory and keeps its addresses.
    pub(crate) fn decommit(&self, at: Range<usize>) -> io::Result<()> {
        self.space.decommit(at.clone())?;
        self.file().map_or(Ok(()), |file| memory::punch_hole(file, at))
    }
}

fn put_on(place: Place, addr: usize, len: usize) -> Result<(), Error> {
    let Some((placement, node)) = place else { return Ok(()) };
    let remedy = || {
        format!(
            "{node} does not provide {len} bytes: check that it is in this process's cpuset (Mems_allowed)"
        )
    };
    memory::mbind(addr, len, placement, node.0).map_err(Error::of_call("mbind", remedy))
}

/// An error's text with its cause, for descriptions.
pub(crate) fn why(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error} ({source})"),
        None => error.to_string(),
    }
}

fn missing_huge(call: &'static str, shift: u32, need_bytes: u64, source: io::Error) -> Error {
    let directory = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", 1u64 << (shift - 10));
    let number = |file: &str| read_file(&format!("{directory}/{file}")).ok();
    let number = |file: &str| number(file).and_then(|text| text.trim().parse::<u64>().ok());
    let need = need_bytes.div_ceil(1 << shift);
    let size = bytes(1 << shift);
    let remedy = || match (number("free_hugepages"), number("nr_hugepages")) {
        (Some(free), Some(all)) => format!(
            "it requires {need} pages of {size}, but {free} of {all} are free: use \
             `echo {} > {directory}/nr_hugepages`, or set on_missing_huge: Fallback",
            all - free + need
        ),
        _ => format!(
            "this kernel has no pages of {size} ({}): use another backing, or set on_missing_huge: Fallback",
            huge_pages_there()
        ),
    };
    Error::of_call(call, remedy)(source)
}

/// The number of huge page sizes, in powers of two from 1 KiB: the largest is 16 GiB (POWER).
const HUGE_SIZES: u32 = 25;

/// Names the sizes of huge pages that this kernel has.
fn huge_pages_there() -> String {
    // Tries each: listing a directory is a cancellation point in musl.
    let count = |kib: u64| format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages");
    let sizes = (0..HUGE_SIZES).map(|shift| 1 << shift).filter(|&kib| read_file(&count(kib)).is_ok());
    let sizes: Vec<_> = sizes.map(|kib| bytes(kib << 10)).collect();
    if sizes.is_empty() { "it has none".into() } else { format!("it has {}", sizes.join(", ")) }
}

/// Why the kernel uses no transparent huge pages here; `None` if it does.
fn no_transparent_huge_pages(read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let directory = "/sys/kernel/mm/transparent_hugepage";
    let is_off = |file: &str| read(file).map(|text| text.contains("[never]"));
    let file = format!("{directory}/enabled");
    if is_off(&file)? {
        return Some(format!("transparent huge pages are off: echo madvise > {file}"));
    }
    let size: u64 = read(&format!("{directory}/hpage_pmd_size"))?.trim().parse().ok()?;
    let region = 1 << REGION_SHIFT;
    let switch = |size: u64| format!("{directory}/hugepages-{}kB/enabled", size >> 10);
    // An arm64 kernel with pages of 64 KiB has huge pages of 512 MiB, and smaller ones with a switch each.
    let smaller =
        || std::iter::successors(Some(region), |size| Some(size / 2)).take_while(|&size| size >= 1 << 14);
    if size <= region || smaller().any(|size| is_off(&switch(size)) == Some(false)) {
        return None;
    }
    let remedy = match smaller().map(switch).find(|file| is_off(file).is_some()) {
        Some(file) => format!("echo madvise > {file}"),
        None => "use the backing Huge2M".into(),
    };
    let (size, region) = (bytes(size), bytes(region));
    Some(format!(
        "transparent huge pages are {size} here, larger than an arena's region of {region}: {remedy}"
    ))
}

fn out_of_memory(len_bytes: u64) -> String {
    format!(
        "{} are not available: use a smaller arena, or raise this process's memory limit",
        bytes(len_bytes)
    )
}

fn too_much_address_space(len_bytes: u64) -> String {
    format!(
        "no {} of address space: use a smaller max_bytes, or raise RLIMIT_AS (ulimit -v)",
        bytes(len_bytes)
    )
}

fn mlock_remedy(arena_bytes: u64) -> String {
    let limit = memory::memlock_limit().map_or(0, |(soft, _)| soft);
    mlock_text(limit, arena_bytes)
}

fn mlock_text(limit_bytes: u64, arena_bytes: u64) -> String {
    format!(
        "RLIMIT_MEMLOCK is {}, this arena locks {}: raise it with `ulimit -l {}` (limits.conf, or \
         LimitMEMLOCK= in the unit), or leave mlock off",
        bytes(limit_bytes),
        bytes(arena_bytes),
        arena_bytes.div_ceil(1024)
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_refused_lock_has_limit_size_and_remedy() {
        let text = mlock_text(64 << 10, 64 << 20);
        assert!(text.starts_with(
            "RLIMIT_MEMLOCK is 64 KiB, this arena locks 64 MiB: raise it with `ulimit -l 65536`"
        ));
        assert!(text.ends_with("or leave mlock off"));
        assert!(mlock_text(u64::MAX, 5).contains("is unlimited, this arena locks 5 bytes"));
    }

    #[test]
    fn huge_pages_larger_than_a_region_are_as_good_as_none() {
        let system = |size: &'static str, smaller: Option<&'static str>| {
            no_transparent_huge_pages(move |file| match file.rsplit('/').next()? {
                "hpage_pmd_size" => Some(size.into()),
                "enabled" if file.contains("hugepages-2048kB") => smaller.map(str::to_owned),
                "enabled" if file.contains("hugepages-") => None,
                _ => Some("always [madvise] never\n".into()),
            })
        };
        assert_eq!(system("2097152\n", None), None, "x86-64, and arm64 with pages of 4 KiB");
        let why = system("536870912\n", Some("always inherit madvise [never]\n")).unwrap();
        assert!(
            why.starts_with(
                "transparent huge pages are 512 MiB here, larger than an arena's region of 4 MiB"
            ),
            "{why}"
        );
        assert!(
            why.ends_with("echo madvise > /sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled"),
            "{why}"
        );
        assert!(system("33554432\n", None).unwrap().ends_with("use the backing Huge2M"));
        assert_eq!(system("536870912\n", Some("always inherit [madvise] never\n")), None);
    }

    #[test]
    fn missing_huge_pages_say_how_many_are_free_and_what_to_do() {
        let error = missing_huge("mmap(MAP_HUGETLB)", 21, 4 << 20, io::Error::from_raw_os_error(12));
        let text = why(&error);
        assert!(text.contains("2 pages of 2 MiB") || text.contains("has no pages of 2 MiB"), "{text}");
        assert!(text.contains("Fallback") && text.contains("memory"), "{text}");
        let there = huge_pages_there();
        assert!(there == "it has none" || there.starts_with("it has ") && there.ends_with("iB"), "{there}");
        let none = missing_huge("mmap", 50, 1 << 50, io::Error::from_raw_os_error(22)).to_string();
        assert!(none.contains("this kernel has no pages of 1048576 GiB"), "{none}");
    }
}
