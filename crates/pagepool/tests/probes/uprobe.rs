//! The probes as the kernel sees them: a uprobe at each note, and the registers that hold the arguments.

// UNSAFETY: perf_event_open is a system call without a function, and its ring is memory of the kernel's.
#![expect(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use pagepool::PoolProbe;

use crate::notes::Note;
use crate::provoke::{self, Fired};

/// `struct perf_event_attr` of 96 bytes (PERF_ATTR_SIZE_VER3).
#[derive(Default)]
#[repr(C)]
struct PerfAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    path: u64,
    offset: u64,
    branch_sample_type: u64,
    user_registers: u64,
    user_stack: u32,
    clock: i32,
}

/// `PERF_SAMPLE_REGS_USER`.
const USER_REGISTERS: u64 = 1 << 12;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: u64 = 8;
/// A page that describes the ring, and the ring.
const RING_BYTES: usize = 64 << 10;

/// Names of the registers in the order of the kernel's bits (`asm/perf_regs.h`), where it has them.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [&str; 24] = [
    "%rax", "%rbx", "%rcx", "%rdx", "%rsi", "%rdi", "%rbp", "%rsp", "", "", "", "", "", "", "", "", "%r8",
    "%r9", "%r10", "%r11", "%r12", "%r13", "%r14", "%r15",
];
#[cfg(not(target_arch = "x86_64"))]
const REGISTERS: [&str; 31] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
    "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30",
];

/// Where this thread passes a note, and what it had in its registers.
struct Uprobe<'a> {
    note: &'a Note,
    ring: NonNull<u8>,
    bytes: usize,
    _file: File,
}

impl<'a> Uprobe<'a> {
    fn at(note: &'a Note, kind: u32) -> io::Result<Self> {
        let path = CString::new(std::env::current_exe()?.into_os_string().into_encoded_bytes())?;
        let named = |&(_, name): &(usize, &&str)| !name.is_empty();
        let attr = PerfAttr {
            kind,
            size: 96,
            sample_period: 1,
            sample_type: USER_REGISTERS,
            path: path.as_ptr() as u64,
            offset: note.offset,
            user_registers: REGISTERS.iter().enumerate().filter(named).map(|(bit, _)| 1 << bit).sum(),
            ..PerfAttr::default()
        };
        // SAFETY: the kernel reads the attributes and the path, which outlive the call.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attr, 0, -1, -1, CLOSE_ON_EXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened just now, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd as i32) };
        let bytes = RING_BYTES + pagepool::system_page_size();
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, of the event's ring.
        let ring = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, kind, file.as_raw_fd(), 0) };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { note, ring: NonNull::new(ring.cast()).unwrap(), bytes, _file: file })
    }

    /// What fired, by the samples in the ring.
    fn fired(&self) -> Vec<Fired> {
        // SAFETY: `data_head` is in the first page, which is mapped as long as this is.
        let head = unsafe { self.ring.add(1024) }.cast::<AtomicU64>();
        // SAFETY: it is an aligned word, which the kernel writes.
        let head = unsafe { head.as_ref() }.load(Ordering::Acquire);
        assert!((head as usize) < RING_BYTES, "nothing was overwritten");
        // SAFETY: the mapping has more than a page.
        let begin = unsafe { self.ring.add(pagepool::system_page_size()) };
        // SAFETY: the kernel wrote as much behind the first page, and this thread passes no note meanwhile.
        let mut rest = unsafe { std::slice::from_raw_parts(begin.as_ptr(), head as usize) };
        let mut fired = Vec::new();
        while let [k0, k1, k2, k3, _, _, s0, s1, ..] = *rest {
            let (sample, after) = rest.split_at(u16::from_le_bytes([s0, s1]).into());
            rest = after;
            assert_eq!(u32::from_le_bytes([k0, k1, k2, k3]), 9, "PERF_RECORD_SAMPLE, and no loss");
            let longs = sample[16..].chunks(8).map(|long| i64::from_le_bytes(long.try_into().unwrap()));
            fired.push(self.read(&longs.collect::<Vec<_>>()));
        }
        fired
    }

    fn read(&self, values: &[i64]) -> Fired {
        let named: Vec<_> = REGISTERS.iter().filter(|name| !name.is_empty()).collect();
        let value = |arg: &String| {
            let register = arg.strip_prefix("-8@").expect("eight bytes with a sign");
            values[named.iter().position(|name| **name == register).expect("a register of the list")]
        };
        let probe = PoolProbe::ALL.iter().find(|probe| probe.name == self.note.name).unwrap();
        Fired { probe: probe.name, args: self.note.args.iter().map(value).collect() }
    }
}

impl Drop for Uprobe<'_> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this event's, and no reference into it is left.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.bytes) };
    }
}

#[test]
fn the_kernel_finds_each_probe_and_its_arguments() {
    let Ok(kind) = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type") else {
        return println!("SKIP: the kernel has no uprobes for perf (CONFIG_UPROBE_EVENTS)");
    };
    let kind = kind.trim().parse().unwrap();
    let notes = crate::own_notes();
    let uprobes: io::Result<Vec<_>> = notes.iter().map(|note| Uprobe::at(note, kind)).collect();
    let uprobes = match uprobes {
        Ok(uprobes) => uprobes,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
            return println!("SKIP: needs CAP_PERFMON for uprobes: {error}");
        }
        Err(error) => panic!("perf_event_open of a uprobe: {error}"),
    };
    let provoked = provoke::all();
    let fired: Vec<_> = uprobes.iter().flat_map(Uprobe::fired).collect();
    crate::assert_same(fired, provoked);
}
