//! A capture file: whole packets with timestamps in nanoseconds, written by a separate thread.
//!
//! ```text
//!   thread of queue 0 ── record by record, bytes ──►┐
//!   thread of queue 1 ── record by record, bytes ──►┴ writer ──► FILE
//! ```
//!
//! Cost   for the thread that has the packet: reading the time, and copying the packet into a ring of 8 MiB
//!        that another core reads. The thread never waits. A packet that does not fit the ring is left out as
//!        a whole, and counted. If the file cannot be written, the user is warned at once; later packets are
//!        left out and counted.
//! Format the rings hold records in the format of the file, so the writer only copies bytes. For this reason
//!        no library makes the records. See draft-ietf-opsawg-pcap. The packets of one queue are in order,
//!        those of several queues nearly.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use pagepool::XdpBuff;
use pagepool_net::{Action, Ingress, PacketHandler, Tally};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use crate::report::{no_thread, output};
use crate::traffic::poll_loop::PortHandler;

const RING: usize = 8 << 20;
const NAP: Duration = Duration::from_millis(1);
/// The longest packet: 18 buffers of a page.
const SNAP: u32 = 18 * 4096;
/// The magic number of timestamps in nanoseconds, and the link type Ethernet.
const MAGIC: u32 = 0xa1b2_3c4d;
const ETHERNET: u32 = 1;

/// A file that is open for writing, but unchanged: the command may still be refused.
pub struct CaptureFile {
    file: File,
    path: String,
    /// Removes the file when dropped, if it was created here, until writing starts.
    created: Option<CreatedFile>,
    rings: Vec<Consumer<u8>>,
    left_out: Arc<AtomicU64>,
}

pub struct Capture {
    writer: JoinHandle<CaptureResult>,
    left_out: Arc<AtomicU64>,
}

const ELSEWHERE: &str = "use a FIFO, or `--pcap >(COMMAND)` in bash";

/// The descriptor of this process that a path names: `/dev/fd/63`, for example, which a shell makes for
/// `>(gzip)`.
fn descriptor(path: &Path) -> Option<u32> {
    match path.to_str()? {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        path => ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|of| path.strip_prefix(of)?.parse().ok()),
    }
}

/// A thread's end of the capture.
#[derive(Debug)]
pub struct CaptureTap {
    ring: Producer<u8>,
    left_out: Arc<AtomicU64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureResult {
    pub written: u64,
    /// Packets that did not fit the ring, or came after the file had failed.
    pub left_out: u64,
    /// Why the file is incomplete.
    pub failed: Option<String>,
}

impl CaptureFile {
    /// Opens the file, or creates it with access only for its owner, to keep packets private. Does not follow
    /// symbolic links, which may be a trap, except to descriptors of this process. Never waits for the reader
    /// of a FIFO.
    pub fn open(path: &Path) -> Result<Self, String> {
        let named = path.display().to_string();
        let follow = match descriptor(path) {
            Some(1) => {
                return Err(format!("the capture file {named} is the command's own output: {ELSEWHERE}"));
            }
            Some(_) => OFlags::empty(),
            None => OFlags::NOFOLLOW,
        };
        let open = |options: &mut OpenOptions| {
            options.write(true).mode(0o600).custom_flags((follow | OFlags::NONBLOCK).bits() as i32);
            options.open(path)
        };
        let failed = |error: io::Error| not_opened(&named, &error);
        let (file, created) = match open(File::options().create_new(true)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (open(&mut File::options()).map_err(failed)?, false)
            }
            opened => (opened.map_err(failed)?, true),
        };
        let created = created.then(|| CreatedFile::new(path, &file)).transpose().map_err(failed)?;
        fcntl_setfl(&file, OFlags::empty()).map_err(|error| failed(error.into()))?; // writes may wait
        Ok(Self { file, path: named, created, rings: Vec::new(), left_out: Arc::default() })
    }

    /// Makes a tap for another thread.
    pub fn tap(&mut self) -> CaptureTap {
        let (ring, end) = RingBuffer::new(RING);
        self.rings.push(end);
        CaptureTap { ring, left_out: self.left_out.clone() }
    }

    /// Empties the file, and starts the writer.
    pub fn start(self) -> Result<Capture, String> {
        let Self { mut file, path, created, mut rings, left_out } = self;
        let emptied = file.metadata().and_then(|of| if of.is_file() { file.set_len(0) } else { Ok(()) });
        emptied.and_then(|()| file.write_all(&header())).map_err(|error| not_written(&path, &error))?;
        created.into_iter().for_each(std::mem::forget); // it stays
        let writer = FileWriter { file, path, captured: CaptureResult::default() };
        let thread = std::thread::Builder::new().name("pcap".into());
        let writer = thread.spawn(move || writer.write(&mut rings)).map_err(|error| no_thread(&error))?;
        Ok(Capture { writer, left_out })
    }
}

/// A file that was created here, and is removed when this is dropped.
struct CreatedFile {
    path: PathBuf,
    /// Its device and inode.
    id: (u64, u64),
}

impl CreatedFile {
    fn new(path: &Path, file: &File) -> io::Result<Self> {
        let of = file.metadata()?;
        Ok(Self { path: path.to_owned(), id: (of.dev(), of.ino()) })
    }
}

impl Drop for CreatedFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|there| (there.dev(), there.ino()) == self.id) {
            let _ = fs::remove_file(&self.path); // the user knows already why the command is refused
        }
    }
}

fn not_opened(path: &str, error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::LOOP) => {
            format!("the capture file {path} is a symbolic link: use the file that it points to")
        }
        Some(Errno::NXIO) => format!("the FIFO {path} has no reader: start its reader first"),
        _ => not_written(path, error),
    }
}

fn not_written(path: &str, error: &io::Error) -> String {
    format!("cannot write the capture file {path}: {error}")
}

impl Capture {
    /// Writes what is left. Call it when all threads have ended.
    pub fn finish(self) -> Result<CaptureResult, String> {
        let captured = self.writer.join();
        let mut captured = captured.map_err(|_| "the thread that writes the capture panicked".to_owned())?;
        captured.left_out += self.left_out.load(Ordering::Relaxed);
        Ok(captured)
    }
}

fn header() -> Vec<u8> {
    let [magic, snap, link] = [MAGIC, SNAP, ETHERNET].map(u32::to_ne_bytes);
    let version = [2, 4].map(u16::to_ne_bytes); // 2.4
    [&magic[..], version.as_flattened(), &[0; 8], &snap, &link].concat()
}

/// Bytes of the header of a packet record.
const RECORD: usize = 16;

fn record(len: usize) -> [u8; RECORD] {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let words = [now.as_secs() as u32, now.subsec_nanos(), len as u32, len as u32].map(u32::to_ne_bytes);
    let mut record = [0; RECORD];
    record.as_chunks_mut::<4>().0.copy_from_slice(&words);
    record
}

impl CaptureTap {
    /// Copies a packet into the ring.
    pub fn take(&mut self, packet: &XdpBuff) {
        let len = packet.len();
        let Ok(mut room) = self.ring.write_chunk(RECORD + len) else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (mut one, mut two) = room.as_mut_slices(); // the second one is beyond the end of the ring
        let mut put = |bytes: &[u8]| {
            let (here, there) = bytes.split_at(bytes.len().min(one.len()));
            one.split_off_mut(..here.len()).into_iter().for_each(|to| to.copy_from_slice(here));
            two.split_off_mut(..there.len()).into_iter().for_each(|to| to.copy_from_slice(there));
        };
        put(&record(len));
        put(packet.data());
        packet.frags().iter().for_each(|frag| put(frag.data()));
        room.commit_all();
    }
}

/// A handler whose packets are written to a file before it gets them.
pub struct Tapped<H> {
    pub handler: H,
    pub tap: Option<CaptureTap>,
}

impl<H: PacketHandler> PacketHandler for Tapped<H> {
    #[inline]
    fn handle(&mut self, packet: &mut XdpBuff, at: Ingress) -> Action {
        if let Some(tap) = &mut self.tap {
            tap.take(packet);
        }
        self.handler.handle(packet, at)
    }

    #[inline]
    fn reads(&self) -> bool {
        self.tap.is_some() || self.handler.reads()
    }
}

impl<H: PortHandler> PortHandler for Tapped<H> {
    fn tally(&self) -> Option<&Tally> {
        self.handler.tally()
    }
}

/// Writes the records in the rings, which are always whole.
struct FileWriter {
    file: File,
    path: String,
    captured: CaptureResult,
}

impl FileWriter {
    /// Writes until the taps are dropped.
    fn write(mut self, rings: &mut [Consumer<u8>]) -> CaptureResult {
        loop {
            // Looked at first: if all taps are gone, the rings below have their last records.
            let last = rings.iter().all(Consumer::is_abandoned);
            let mut moved = 0;
            for ring in rings.iter_mut() {
                let available = ring.slots();
                let Ok(chunk) = ring.read_chunk(available) else { continue };
                let (one, two) = chunk.as_slices();
                self.write_records(one, two);
                chunk.commit_all();
                moved += available;
            }
            match (moved, last) {
                (0, true) => return self.captured,
                (0, false) => std::thread::sleep(NAP),
                _ => {}
            }
        }
    }

    /// Writes records that are in two parts. If that fails, the file ends after its last whole record.
    fn write_records(&mut self, one: &[u8], two: &[u8]) {
        let (records, _) = whole_records(one, two, usize::MAX);
        let mut kept = 0;
        if self.captured.failed.is_none() {
            let (bytes, ended) = self.write_parts([one, two]);
            let (written, end) = whole_records(one, two, bytes);
            kept = written;
            if let Err(error) = ended {
                self.truncate((bytes - end) as u64);
                self.fail(&error);
            }
        }
        self.captured.written += kept;
        self.captured.left_out += records - kept;
    }

    /// The number of bytes written, and an error if not all were.
    fn write_parts(&mut self, parts: [&[u8]; 2]) -> (usize, io::Result<()>) {
        let mut written = 0;
        for mut part in parts {
            while !part.is_empty() {
                match self.file.write(part) {
                    Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
                    Ok(n) => (written, part) = (written + n, &part[n..]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return (written, Err(error)),
                }
            }
        }
        (written, Ok(()))
    }

    /// Cuts the last bytes off the file. Bytes in a pipe stay there.
    fn truncate(&mut self, bytes: u64) {
        let end = self.file.stream_position().map(|at| at.saturating_sub(bytes));
        let _ = end.and_then(|end| self.file.set_len(end)); // in any case the file is reported as incomplete
    }

    fn fail(&mut self, error: &io::Error) {
        let why = format!("the capture file {} is incomplete: {error}", self.path);
        output::warn(format_args!("{why}; no more packets are written to it"));
        self.captured.failed = Some(why);
    }
}

/// The number of whole records in the first `most` bytes of two parts, and where they end.
fn whole_records(one: &[u8], two: &[u8], most: usize) -> (u64, usize) {
    let byte = |at: usize| one.get(at).or_else(|| two.get(at - one.len())).copied().unwrap_or(0);
    let (all, mut at, mut records) = (most.min(one.len() + two.len()), 0, 0);
    while at + RECORD <= all {
        let len = u32::from_ne_bytes([8, 9, 10, 11].map(|offset| byte(at + offset)));
        let end = at + RECORD + len as usize;
        if end > all {
            break;
        }
        (at, records) = (end, records + 1);
    }
    (records, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_whole_through_the_end_of_a_ring() {
        let arena = pagepool::Arena::new(pagepool::ArenaParams { max_bytes: 1 << 20, ..Default::default() });
        let pool = pagepool::Pool::new(pagepool::PoolParams::default(), arena.unwrap()).unwrap().bind();
        let (ring, mut end) = RingBuffer::new(200);
        let mut tap = CaptureTap { ring, left_out: Arc::default() };
        for round in 0..50u8 {
            let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
            packet.data_mut().fill(round);
            packet.add_frag(pool.alloc_page().unwrap(), 0, 7).unwrap();
            tap.take(&packet);
            tap.take(&packet);
            tap.take(&packet); // no room for a third one
            let (mut got, n) = (Vec::new(), end.slots());
            let chunk = end.read_chunk(n).unwrap();
            got.extend_from_slice(chunk.as_slices().0);
            got.extend_from_slice(chunk.as_slices().1);
            let (one, two) = chunk.as_slices();
            assert_eq!((got.len(), whole_records(one, two, usize::MAX)), (2 * (16 + 67), (2, 2 * (16 + 67))));
            assert_eq!(whole_records(one, two, got.len() - 1), (1, 16 + 67), "the second one is not whole");
            assert_eq!((&got[16..76], &got[99..159]), (packet.data(), packet.data()), "{round}");
            chunk.commit_all();
        }
        assert_eq!(tap.left_out.load(Ordering::Relaxed), 50);
    }

    #[test]
    fn own_descriptors_are_not_refused_as_symbolic_links() {
        use std::os::fd::AsRawFd;
        let (mut reader, writer) = io::pipe().unwrap();
        for folder in ["/dev/fd", "/proc/self/fd"] {
            let path = PathBuf::from(format!("{folder}/{}", writer.as_raw_fd()));
            let mut file = CaptureFile::open(&path).unwrap();
            file.file.write_all(b"pcap").unwrap();
            let mut read = [0; 4];
            io::Read::read_exact(&mut reader, &mut read).unwrap();
            assert_eq!(&read, b"pcap");
            drop(file);
            assert!(path.exists(), "it was not created here");
        }
        let refused = CaptureFile::open(Path::new("/dev/stdout")).err().unwrap();
        assert!(refused.contains("the command's own output") && refused.contains(ELSEWHERE), "{refused}");
        let own = format!("/proc/{}/fd/{}", std::process::id(), writer.as_raw_fd());
        assert!(CaptureFile::open(Path::new(&own)).is_err_and(|error| error.contains("symbolic link")));
    }

    #[test]
    fn a_failed_capture_is_reported_and_missing_packets_counted() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (mut ring, end) = RingBuffer::new(1000);
        for record in [record(60), record(7)] {
            ring.push_entire_slice(&record).unwrap();
            ring.push_entire_slice(&vec![7; record[8] as usize]).unwrap();
        }
        let writer = FileWriter { file: full, path: "full".into(), captured: CaptureResult::default() };
        drop(ring);
        let captured = writer.write(&mut [end]);
        assert_eq!((captured.written, captured.left_out), (0, 2));
        assert!(captured.failed.is_some_and(|why| why.contains("capture file full is incomplete")));
    }

    #[test]
    fn records_are_counted_over_the_end_of_the_ring() {
        let all: Vec<u8> =
            [5, 0, 60].iter().flat_map(|&len| [&record(len)[..], &vec![7; len]].concat()).collect();
        for cut in 0..=all.len() {
            let counted = |most| whole_records(&all[..cut], &all[cut..], most);
            assert_eq!(counted(usize::MAX), (3, all.len()), "{cut}");
            assert_eq!((counted(20), counted(all.len() - 1)), ((0, 0), (2, 21 + 16)), "{cut}");
        }
        assert_eq!(whole_records(&[], &[], usize::MAX), (0, 0));
    }
}
