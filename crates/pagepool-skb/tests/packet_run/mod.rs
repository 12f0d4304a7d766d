//! Runs operations on real packets and on plain vectors of bytes, and compares them after each.
//!
//! The packets lie in a pool that a checking IOMMU maps for a device. The device writes received packets and
//! reads sent ones, so a missed sync shows as a fault or as wrong bytes. Every packet has its own pattern, so
//! memory that is reused too early shows at the next comparison. At the end everything has returned. The
//! fuzzer includes this folder: `fuzz/fuzz_targets/packets.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use pagepool::{
    Bound, DeviceAddr, DmaDomain, MAX_FRAGS, PageBuf, Pool, PoolParams, Shutdown, XdpBuff, XdpFrame,
};
use pagepool_skb::{SkBuff, SkbCache, SkbError, SkbMemory};
use pagepool_testing::{CheckingIommu, PlainMemory};

mod packet_op;

pub use packet_op::{PacketOp, PacketSetup};

/// Most objects of a kind at once; beyond that the oldest is dropped.
const MOST: usize = 12;

/// An object, and its expected bytes.
#[derive(Debug)]
struct With<T> {
    what: T,
    bytes: Vec<u8>,
}

struct PacketRun {
    setup: PacketSetup,
    iommu: Arc<CheckingIommu>,
    memory: Arc<PlainMemory>,
    pool: Bound,
    cache: SkbCache,
    shutdowns: Vec<Shutdown>,
    frames: VecDeque<With<XdpFrame>>,
    packets: VecDeque<With<SkBuff>>,
    parts: VecDeque<With<bytes::Bytes>>,
    /// All lent memory has a count of this.
    lent: Arc<()>,
    seed: usize,
}

/// Memory lent to packets, overwritten when it returns.
struct Lent {
    bytes: Vec<u8>,
    _lender: Arc<()>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.bytes.fill(0xdb);
    }
}

/// Runs the list, then returns everything. Panics if a packet has wrong bytes, the device met a fault, or
/// anything is out at the end.
pub fn run_packets(setup: PacketSetup, ops: &[PacketOp]) {
    let mut run = PacketRun::new(setup);
    for &op in ops {
        run.apply(op);
        run.check(op);
    }
    run.end();
}

fn pool_in(setup: PacketSetup, memory: &Arc<PlainMemory>, iommu: &Arc<CheckingIommu>) -> Bound {
    let params = PoolParams {
        cache_size: 4,
        refill: 2,
        ring_size: 4,
        headroom: setup.headroom,
        chains: setup.chains,
        domains: vec![iommu.clone()],
        sync_for_device: true,
        ..Default::default()
    };
    Pool::new(params, memory.clone()).expect("checked sizes").bind()
}

fn pick<T>(things: &mut VecDeque<T>, at: u8) -> Option<T> {
    things.remove(at as usize % things.len().max(1))
}

fn drop_oldest<T>(things: &mut VecDeque<T>) {
    drop(things.drain(..things.len().saturating_sub(MOST)));
}

fn sixteenths(len: usize, n: u8) -> usize {
    (len * (n as usize & 15) / 16 + (n as usize >> 4) * 3).min(len)
}

fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|threads| threads.spawn(work).join().expect("what is done elsewhere does not panic"))
}

/// Whether the chunks together are these bytes.
fn is<'a>(chunks: impl Iterator<Item = &'a [u8]>, bytes: &[u8]) -> bool {
    let mut rest = Some(bytes);
    chunks.for_each(|chunk| rest = rest.and_then(|rest| rest.strip_prefix(chunk)));
    rest == Some(&[])
}

impl PacketRun {
    fn new(setup: PacketSetup) -> Self {
        let memory = PlainMemory::new(setup.pages, 0).expect("small");
        let iommu = CheckingIommu::new("nic0");
        let pool = pool_in(setup, &memory, &iommu);
        Self {
            setup,
            pool,
            memory,
            iommu,
            cache: SkbCache::new(setup.blocks).expect("small"),
            shutdowns: Vec::new(),
            frames: VecDeque::new(),
            packets: VecDeque::new(),
            parts: VecDeque::new(),
            lent: Arc::new(()),
            seed: 0,
        }
    }

    fn apply(&mut self, op: PacketOp) {
        match op {
            PacketOp::Receive(len, frags) => self.receive(len, frags),
            PacketOp::FromFrame(at) => self.convert(at),
            PacketOp::DropFrame(at, how) => self.drop_frame(at, how & 1 == 0),
            PacketOp::Ordinary(headroom, len) => self.ordinary(headroom, len),
            PacketOp::AddFrag(at, len) => self.add_frag(at, len),
            PacketOp::AddOrdinary(at, len) => self.add_ordinary(at, len),
            PacketOp::Split(at, n) => self.split(at, n),
            PacketOp::Coalesce(at, with) => self.coalesce(at, with),
            PacketOp::Copy(at) => self.copy(at),
            PacketOp::Send(at) => self.send(at),
            PacketOp::IntoBytes(at, kind) => self.part(at, kind & 1 == 0),
            PacketOp::DropBytes(at) => self.drop_part(at),
            PacketOp::Drop(at) => drop(pick(&mut self.packets, at)),
            PacketOp::DropRemote(at) => elsewhere(|| drop(pick(&mut self.packets, at))),
            PacketOp::DropCache => self.cache = SkbCache::new(self.setup.blocks).expect("small"),
            PacketOp::Destroy => self.destroy(),
            op => self.change(op),
        }
    }

    /// Operations that change one packet and nothing else.
    fn change(&mut self, op: PacketOp) {
        let (PacketOp::Clone(at)
        | PacketOp::Pull(at, _)
        | PacketOp::Trim(at, _)
        | PacketOp::Push(at, _)
        | PacketOp::Put(at, _)
        | PacketOp::CowHead(at, _)
        | PacketOp::Write(at)
        | PacketOp::MakeLinear(at, _)
        | PacketOp::Linearize(at)
        | PacketOp::Unclone(at)
        | PacketOp::PullElsewhere(at, _)) = op
        else {
            return;
        };
        let Some(mut packet) = pick(&mut self.packets, at) else { return };
        match op {
            PacketOp::Clone(_) => {
                let clone = With { what: packet.what.clone(), bytes: packet.bytes.clone() };
                assert!(clone.what.is_cloned() && clone.what.recycles() == packet.what.recycles());
                self.packets.push_back(clone);
            }
            PacketOp::Pull(_, n) => packet.pull(n),
            PacketOp::Trim(_, n) => packet.trim(n),
            PacketOp::Push(_, n) => packet.push(n as usize),
            PacketOp::Put(_, n) => packet.put(n as usize),
            PacketOp::CowHead(_, n) => packet.cow_head(n as usize * 2),
            PacketOp::Write(_) => packet.write(),
            PacketOp::MakeLinear(_, n) => packet.make_linear(sixteenths(packet.bytes.len(), n)),
            PacketOp::Linearize(_) => packet.make_linear(packet.bytes.len()),
            PacketOp::Unclone(_) => packet.cow_head(0),
            _ => packet = packet.elsewhere(op),
        }
        self.packets.push_back(packet);
    }

    /// Checks that every packet has its bytes and consistent lengths.
    fn check(&mut self, after: PacketOp) {
        for With { what, bytes } in &self.packets {
            let chunks = what.chunks().expect("all of it is readable");
            assert!(is(chunks, bytes), "{what:?} has other bytes after {after:?}");
            assert_eq!(what.len(), what.head_len() + what.data_len());
            assert_eq!(what.data_len(), what.frags().iter().map(|frag| frag.len()).sum::<usize>());
            assert!(what.truesize() >= what.nr_frags());
        }
        for With { what, bytes } in &self.frames {
            let chunks = what.segments().map(|segment| segment.data());
            assert!(is(chunks, bytes), "{what:?} has other bytes after {after:?}");
        }
        for With { what, bytes } in &self.parts {
            assert_eq!(what[..], bytes[..], "after {after:?}");
        }
        drop_oldest(&mut self.packets);
        drop_oldest(&mut self.frames);
    }

    /// Returns everything, and checks that all of it arrived.
    fn end(mut self) {
        self.frames.clear();
        while let Some(packet) = self.packets.pop_front() {
            if self.packets.len().is_multiple_of(2) { elsewhere(|| drop(packet)) } else { drop(packet) }
        }
        self.parts.clear();
        self.destroy();
        for shutdown in &self.shutdowns {
            assert!(shutdown.is_complete(), "a buffer is missing: {}", shutdown.report());
        }
        let blocks: Vec<_> = std::iter::from_fn(|| SkBuff::from_bytes(&self.cache, 0, &[]).ok()).collect();
        assert_eq!(blocks.len(), self.setup.blocks, "a block is missing");
        assert_eq!(Arc::strong_count(&self.lent), 1, "lent memory is missing");
        drop(self.pool.destroy());
        assert_eq!(self.memory.free(), self.setup.pages, "a page is missing");
        let counts = self.iommu.counts();
        assert_eq!((counts.faults, counts.bad_syncs, counts.bad_unmaps), (0, 0, 0), "{counts:?}");
        assert_eq!(counts.maps, counts.unmaps, "{counts:?}");
    }

    // ---- The device -----------------------------------------------------------------------------

    fn pattern(&mut self, len: usize) -> Vec<u8> {
        self.seed += 1;
        (0..len).map(|at| (self.seed * 37 + at * 11 + at / 251) as u8).collect()
    }

    /// The device writes into a buffer at an offset; returns the bytes.
    fn device_writes(&mut self, buffer: &mut PageBuf, offset: usize, len: usize) -> Vec<u8> {
        let bytes = self.pattern(len);
        let at = buffer.dma_addr_in(self.iommu.id()).expect("the pool is mapped");
        let at = DeviceAddr(at.0 + offset as u64);
        self.iommu.device_write(at, &bytes).expect("the pool handed the buffer to the device");
        buffer.sync_for_cpu(offset, len);
        bytes
    }

    fn receive(&mut self, len: u8, frags: u8) {
        let Some(mut buffer) = self.pool.alloc_page() else { return };
        let len = buffer.packet_capacity() * (len as usize + 1) / 256;
        let offset = buffer.packet_offset();
        let mut bytes = self.device_writes(&mut buffer, offset, len);
        let mut packet = XdpBuff::received(buffer, len).expect("it is within the buffer");
        for n in 0..frags & 7 {
            let Some(mut buffer) = self.pool.alloc_page() else { break };
            let (offset, len) = (buffer.packet_offset(), 1 + 97 * (frags as usize >> 3) + n as usize);
            let more = self.device_writes(&mut buffer, offset, len);
            if packet.add_frag(buffer, offset, len).is_ok() {
                bytes.extend(more);
            }
        }
        self.frames.push_back(With { what: packet.into(), bytes });
    }

    fn add_frag(&mut self, at: u8, len: u8) {
        let Some(mut packet) = pick(&mut self.packets, at) else { return };
        if let Some(mut frag) = self.pool.alloc_frag(64 + 200 * (len as usize & 15)) {
            let offset = (len as usize >> 4).min(frag.len() - 1);
            let len = frag.len() - offset;
            frag.sync_for_device(0, frag.len());
            let bytes = self.device_writes(&mut frag, offset, len);
            let refused = packet.what.is_cloned() || packet.what.nr_frags() == MAX_FRAGS;
            let added = packet.what.add_frag(frag, offset, len);
            assert_eq!(added.is_err(), refused);
            if added.is_ok() {
                packet.bytes.extend(bytes);
            }
        }
        self.packets.push_back(packet);
    }

    /// The device reads each mapped buffer of a packet.
    fn send(&mut self, at: u8) {
        let Some(With { what, bytes }) = pick(&mut self.packets, at) else { return };
        let id = self.iommu.id();
        let mut place = what.head_len();
        if let (Some(buffer), Some(at)) = (what.head_buffer(), what.head_dma_addr_in(id)) {
            buffer.sync_for_device(what.headroom(), what.head_len());
            self.device_reads(at, &bytes[..place]);
        }
        for frag in what.frags() {
            if let Some(at) = frag.dma_addr_in(id) {
                frag.sync_for_device();
                self.device_reads(at, &bytes[place..place + frag.len()]);
            }
            place += frag.len();
        }
        self.packets.push_back(With { what, bytes });
    }

    fn device_reads(&self, at: DeviceAddr, expected: &[u8]) {
        if expected.is_empty() {
            return;
        }
        let mut seen = vec![0; expected.len()];
        self.iommu.device_read(at, &mut seen).expect("it was synced for the device");
        assert_eq!(seen, expected, "what the device sent");
        self.iommu.sync_for_cpu(at, seen.len());
    }

    // ---- Conversions ----------------------------------------------------------------------------

    fn convert(&mut self, at: u8) {
        let Some(With { what, bytes }) = pick(&mut self.frames, at) else { return };
        match SkBuff::from_frame(&self.cache, what) {
            Ok(what) => {
                assert!(what.recycles() && !what.is_cloned());
                self.packets.push_back(With { what, bytes });
            }
            Err(what) => self.frames.push_back(With { what, bytes }),
        }
    }

    fn drop_frame(&mut self, at: u8, here: bool) {
        let Some(frame) = pick(&mut self.frames, at) else { return };
        if here { drop(frame) } else { elsewhere(|| drop(frame)) }
    }

    fn ordinary(&mut self, headroom: u8, len: u8) {
        let bytes = self.pattern(len as usize * 4);
        match SkBuff::from_bytes(&self.cache, headroom as usize, &bytes) {
            Ok(what) => self.packets.push_back(With { what, bytes }),
            Err(error) => assert_eq!(error, SkbError::Exhausted),
        }
    }

    fn add_ordinary(&mut self, at: u8, len: u8) {
        let Some(mut packet) = pick(&mut self.packets, at) else { return };
        let bytes = self.pattern(len as usize * 3);
        let added = bytes[len as usize..2 * len as usize].to_vec();
        let memory: SkbMemory = if len.is_multiple_of(2) {
            Arc::<[u8]>::from(bytes).into()
        } else {
            SkbMemory::owned(Lent { bytes, _lender: self.lent.clone() })
        };
        if packet.what.add_frag(memory, len as usize, len as usize).is_ok() {
            packet.bytes.extend(added);
        }
        self.packets.push_back(packet);
    }

    fn split(&mut self, at: u8, n: u8) {
        let Some(mut packet) = pick(&mut self.packets, at) else { return };
        let bound = sixteenths(packet.bytes.len(), n);
        assert_eq!(packet.what.split(packet.bytes.len() + 1).err(), Some(SkbError::TooShort));
        match packet.what.split(bound) {
            Ok(what) => {
                assert!(!packet.what.is_cloned() && what.recycles() == packet.what.recycles());
                self.packets.push_back(With { what, bytes: packet.bytes.split_off(bound) });
            }
            Err(error) => assert_eq!(error, SkbError::Exhausted),
        }
        self.packets.push_back(packet);
    }

    fn coalesce(&mut self, at: u8, with: u8) {
        let Some(mut to) = pick(&mut self.packets, at) else { return };
        if let Some(from) = pick(&mut self.packets, with) {
            let before = to.what.truesize();
            let barred = to.what.is_cloned() || to.what.recycles() != from.what.recycles();
            match to.what.try_coalesce(from.what) {
                Ok(merged) => {
                    assert!(!barred && to.what.truesize() == before + merged.truesize, "{merged:?}");
                    to.bytes.extend(from.bytes);
                }
                Err(what) => self.packets.push_back(With { what, bytes: from.bytes }),
            }
        }
        self.packets.push_back(to);
    }

    fn copy(&mut self, at: u8) {
        let Some(packet) = pick(&mut self.packets, at) else { return };
        match packet.what.copy() {
            Ok(what) => self.packets.push_back(With { what, bytes: packet.bytes.clone() }),
            Err(error) => assert_eq!(error, SkbError::Exhausted),
        }
        self.packets.push_back(packet);
    }

    fn part(&mut self, at: u8, packet: bool) {
        let (parts, mut bytes): (Vec<_>, _) = if packet {
            let Some(With { what, bytes }) = pick(&mut self.packets, at) else { return };
            (what.into_bytes().expect("all of it is readable").collect(), bytes)
        } else {
            let Some(With { what, bytes }) = pick(&mut self.frames, at) else { return };
            (what.into_bytes().expect("all of it is readable").collect(), bytes)
        };
        for what in parts {
            let rest = bytes.split_off(what.len());
            self.parts.push_back(With { what, bytes: std::mem::replace(&mut bytes, rest) });
        }
        assert_eq!(bytes.len(), 0, "the parts are the whole");
        drop_oldest(&mut self.parts);
    }

    fn drop_part(&mut self, at: u8) {
        if let Some(part) = pick(&mut self.parts, at) {
            elsewhere(|| drop(part));
        }
    }

    fn destroy(&mut self) {
        let next = pool_in(self.setup, &self.memory, &self.iommu);
        self.shutdowns.push(std::mem::replace(&mut self.pool, next).destroy());
    }
}

/// One packet, and the effect of each operation on its bytes.
impl With<SkBuff> {
    /// Checks that an operation beyond the head succeeded, or failed only because no block is left.
    fn done(&self, result: Result<(), SkbError>, cloned: bool) -> bool {
        assert!(result.is_ok() || (cloned && result == Err(SkbError::Exhausted)), "{result:?}");
        result.is_ok()
    }

    fn pull(&mut self, n: u8) {
        let (n, cloned) = (sixteenths(self.bytes.len(), n), self.what.is_cloned());
        assert_eq!(self.what.pull(self.bytes.len() + 1), Err(SkbError::TooShort));
        let result = self.what.pull(n);
        if self.done(result, cloned) {
            self.bytes.drain(..n);
        }
    }

    fn trim(&mut self, n: u8) {
        let (n, cloned) = (sixteenths(self.bytes.len(), n), self.what.is_cloned());
        let result = self.what.trim(n);
        if self.done(result, cloned) {
            self.bytes.truncate(n);
        }
    }

    /// The expected error of adding bytes to the head, if any.
    fn refused(&self, fits: bool) -> Option<SkbError> {
        match (self.what.is_cloned(), fits) {
            (true, _) => Some(SkbError::Cloned),
            (false, false) => Some(SkbError::NoRoom),
            (false, true) => None,
        }
    }

    fn push(&mut self, n: usize) {
        let expected = self.refused(n <= self.what.headroom());
        let pushed = self.what.push(n).map(|room| room.fill(n as u8));
        assert_eq!(pushed.err(), expected);
        if expected.is_none() {
            self.bytes.splice(..0, std::iter::repeat_n(n as u8, n));
        }
    }

    fn put(&mut self, n: usize) {
        let expected = self.refused(n <= self.what.tailroom());
        let put = self.what.put(n).map(|room| room.fill(n as u8));
        assert_eq!(put.err(), expected);
        if expected.is_none() {
            self.bytes.extend(std::iter::repeat_n(n as u8, n));
        }
    }

    fn cow_head(&mut self, headroom: usize) {
        let cloned = self.what.is_cloned();
        let result = if headroom == 0 { self.what.unclone() } else { self.what.cow_head(headroom) };
        if self.done(result, cloned) {
            assert!(!self.what.is_cloned() && self.what.headroom() >= headroom);
        }
    }

    fn write(&mut self) {
        let cloned = self.what.is_cloned();
        let written = self.what.data_mut().map(|data| data.iter_mut().for_each(|byte| *byte ^= 0x55));
        assert_eq!(written.is_none(), cloned);
        if !cloned {
            let head = self.what.head_len();
            self.bytes[..head].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
    }

    fn make_linear(&mut self, n: usize) {
        let cloned = self.what.is_cloned();
        let result = self.what.make_linear(n);
        if self.done(result, cloned) {
            assert!(self.what.head_len() >= n);
        }
    }

    /// Sends the packet to another thread for an operation there, and back.
    fn elsewhere(mut self, op: PacketOp) -> Self {
        elsewhere(move || {
            assert!(
                self.what.chunks().is_some_and(|chunks| is(chunks, &self.bytes)),
                "what another thread sees"
            );
            if let PacketOp::PullElsewhere(_, n) = op {
                self.pull(n);
            }
            self
        })
    }
}
