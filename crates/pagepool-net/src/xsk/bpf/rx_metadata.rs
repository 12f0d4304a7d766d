//! Metadata of received packets: our XDP program queries the driver, and writes the answers before the
//! packet.
//!
//! ```text
//!   r6 = r1
//!   r2 = -28
//!   call bpf_xdp_adjust_meta      ; helper 54
//!   if r0 != 0 goto end
//!   *(u64 *)(r10 - 8), (r10 - 16), (r10 - 24) = 0
//!   r7 = 0
//!   each function of the kernel's that there is:
//!     r1 = r6, r2 = r10 - 8 ...   ; where its answers go
//!     call it
//!     if r0 == 0: r7 |= its bit
//!   r2 = *(u32 *)(r6 + 8)         ; data_meta
//!   r3 = *(u32 *)(r6 + 0)         ; data
//!   r1 = r2 + 28
//!   if r1 > r3 goto end
//!   *(u32 *)(r2 + 0..) = bits, answers, mark
//! end:
//!   r1 = r6
//! ```
//!
//! The redirecting program follows. The mark, a random number, distinguishes metadata from earlier bytes.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use pagepool::{Error, XdpBuff};

use super::btf;
use crate::device::rx_metadata::{RxHash, RxMetadata, VlanTag};
use crate::sys::bpf::Insn;
use crate::sys::bpf::assembler::{
    ADD_IMM, CALL, Code, IF_ABOVE, IF_NOT_EQUAL_IMM, LOAD_WORD, OR_IMM, STORE_LONG_IMM, STORE_WORD,
    STORE_WORD_IMM, call, copy, op, set,
};
use crate::sys::remedy::failed;
use crate::virtio::net_header;

/// The source register of a call by BTF number. Linux: `BPF_PSEUDO_KFUNC_CALL`.
const KFUNC: u8 = 2;
pub(super) const ADJUST_META: i32 = 54;
/// Offsets in `struct xdp_md`.
pub(super) const DATA: i16 = 0;
pub(super) const DATA_META: i16 = 8;
/// The kernel's own BTF.
const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// A kernel function: name, bit, and where on the stack its results go.
struct Question {
    name: &'static str,
    bit: u32,
    answers: &'static [i32],
}

const QUESTIONS: [Question; 3] = [
    Question { name: "bpf_xdp_metadata_rx_timestamp", bit: 1, answers: &[-8] },
    Question { name: "bpf_xdp_metadata_rx_hash", bit: 2, answers: &[-16, -12] },
    Question { name: "bpf_xdp_metadata_rx_vlan_tag", bit: 4, answers: &[-24, -22] },
];
/// Bytes before the packet: bits; timestamp; hash, its type; VLAN protocol and tag; the mark.
const LEN: usize = 28;
/// Words of the stack, and their offsets in the metadata.
const WORDS: [(i16, i16); 5] = [(-8, 4), (-4, 8), (-16, 12), (-12, 16), (-24, 20)];

/// The numbers of this kernel's metadata functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions([Option<u32>; 3]);

impl Functions {
    pub(super) fn of_kernel() -> Result<Self, Error> {
        let known = format!("metadata requires {KERNEL}: a kernel with CONFIG_DEBUG_INFO_BTF");
        let kernel = std::fs::read(KERNEL).map_err(|source| failed("open", source, known))?;
        let remedy = match btf::functions(&kernel, QUESTIONS.map(|source| source.name)) {
            Ok(found) if found.iter().any(Option::is_some) => return Ok(Self(found)),
            Ok(_) => "the kernel has no functions for metadata: they require Linux 6.3, VLAN tags 6.8".into(),
            Err(why) => format!("metadata requires the kernel's BTF, but {KERNEL} {why}"),
        };
        let source = std::io::ErrorKind::Unsupported.into();
        Err(Error::System { call: "bpf(BPF_PROG_LOAD)", remedy, source })
    }

    /// The instructions that write metadata. They leave the context in r1.
    pub(super) fn instructions(self, mark: u32) -> Vec<Insn> {
        let mut code = Code::default();
        code.extend([copy(6, 1), set(2, -(LEN as i32)), call(ADJUST_META)]);
        code.jump((), op(IF_NOT_EQUAL_IMM, 0, 0, 0, 0));
        code.extend([-8, -16, -24].map(|at| op(STORE_LONG_IMM, 10, 0, at, 0)));
        code.extend([set(7, 0)]);
        for (source, number) in QUESTIONS.iter().zip(self.0) {
            let Some(number) = number else { continue };
            code.extend([copy(1, 6)]);
            for (register, &at) in (2..).zip(source.answers) {
                code.extend([copy(register, 10), op(ADD_IMM, register, 0, 0, at)]);
            }
            code.extend([
                op(CALL, 0, KFUNC, 0, number as i32),
                op(IF_NOT_EQUAL_IMM, 0, 0, 1, 0),
                op(OR_IMM, 7, 0, 0, source.bit as i32),
            ]);
        }
        code.extend([op(LOAD_WORD, 2, 6, DATA_META, 0), op(LOAD_WORD, 3, 6, DATA, 0)]);
        code.extend([copy(1, 2), op(ADD_IMM, 1, 0, 0, LEN as i32)]);
        code.jump((), op(IF_ABOVE, 1, 3, 0, 0));
        code.extend([op(STORE_WORD, 2, 7, 0, 0)]);
        for (from, to) in WORDS {
            code.extend([op(LOAD_WORD, 1, 10, from, 0), op(STORE_WORD, 2, 1, to, 0)]);
        }
        code.extend([op(STORE_WORD_IMM, 2, 0, LEN as i16 - 4, mark as i32)]);
        code.mark(());
        code.extend([copy(1, 6)]);
        code.finish()
    }
}

/// An odd random number.
pub(super) fn random_mark() -> u32 {
    RandomState::new().hash_one(LEN) as u32 | 1
}

/// Reads the metadata before received packets: of an XDP program of
/// [`Redirect::load_with_metadata`](crate::Redirect::load_with_metadata), or of a virtio device that was
/// opened with [`offloads`](crate::OpenParams::offloads).
/// [`OpenedDevice::metadata`](crate::OpenedDevice::metadata) is that of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMetadataReader(Source);

/// Who writes the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// An XDP program, with its mark.
    Program { mark: u32 },
    /// A virtio device: its header.
    VirtioHeader,
}

impl RxMetadataReader {
    /// The reader of virtio headers.
    pub(crate) const VIRTIO: Self = Self(Source::VirtioHeader);

    /// The reader of what a program writes with this mark.
    pub(super) fn of_program(mark: u32) -> Self {
        Self(Source::Program { mark })
    }

    /// Reads a packet's metadata. Call it right after `receive`, before the packet's beginning is moved.
    ///
    /// `None` if another program redirected the packet, the driver has no room for metadata, or it was read
    /// before. Any thread; about 30 instructions, and reads and writes the cache line before the packet. That
    /// room is then free again. Unread metadata stays in memory: a later packet there without its own gets
    /// it. The metadata of a virtio device has no mark: read only packets of such devices.
    pub fn read(&self, packet: &mut XdpBuff) -> Option<RxMetadata> {
        match self.0 {
            Source::Program { mark } => read_marked(packet, mark),
            Source::VirtioHeader => net_header::take(packet),
        }
    }
}

fn read_marked(packet: &mut XdpBuff, mark: u32) -> Option<RxMetadata> {
    packet.adjust_meta(packet.meta().len() as isize - LEN as isize).ok()?;
    let read = packet.meta().first_chunk().and_then(|bytes| parse(bytes, mark));
    if let Some(mark) = packet.meta_mut().last_chunk_mut().filter(|_| read.is_some()) {
        *mark = [0; 4]; // a mark is odd
    }
    let _ = packet.adjust_meta(LEN as isize); // it had as much before
    read
}

fn parse(bytes: &[u8; LEN], expected: u32) -> Option<RxMetadata> {
    let mut words = [0; LEN / 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    let [bits, low, high, value, kind, _, mark] = words;
    if mark != expected {
        return None;
    }
    let has = |at: usize| bits & QUESTIONS[at].bit != 0;
    let timestamp = u64::from(high) << 32 | u64::from(low);
    let [.., a, b, c, d, _, _, _, _] = *bytes;
    let vlan = VlanTag { protocol: u16::from_be_bytes([a, b]), tci: u16::from_ne_bytes([c, d]) };
    Some(RxMetadata {
        // A driver without a timestamp for this packet may report 0.
        timestamp: Some(timestamp).filter(|&timestamp| has(0) && timestamp > 0),
        hash: has(1).then_some(RxHash { value, kind }),
        vlan: has(2).then_some(vlan),
        ..RxMetadata::default()
    })
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, DeviceExt, Wake};
    use crate::interface::lookup;
    use crate::sys::bpf;
    use crate::veth;
    use crate::{Redirect, Umem, UmemParams, XskDevice, XskMode, XskParams};
    use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    use std::os::fd::AsFd;
    use std::time::Duration;

    fn written(mark: u32, bits: u32) -> [u8; LEN] {
        let words = [bits, 7, 1, 0xabcd, 8, 0, mark];
        let mut bytes = [0; LEN];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
        bytes[20..22].copy_from_slice(&[0x81, 0]);
        bytes[22..24].copy_from_slice(&(5u16 << 13 | 100).to_ne_bytes());
        bytes
    }

    #[test]
    fn what_a_driver_has_not_is_none() {
        let parse = |bytes: &[u8; LEN]| super::parse(bytes, 77);
        let all = parse(&written(77, 7)).unwrap();
        assert_eq!(all.timestamp, Some(1 << 32 | 7));
        assert_eq!(all.hash.map(|hash| (hash.value, hash.has_ports())), Some((0xabcd, true)));
        let vlan = all.vlan.unwrap();
        assert_eq!((vlan.protocol, vlan.id(), vlan.priority()), (0x8100, 100, 5));
        assert_eq!(parse(&written(77, 0)), Some(RxMetadata::default()));
        let only = |bits| parse(&written(77, bits)).unwrap();
        assert_eq!(
            [1, 2, 4].map(only).map(|some| (
                some.timestamp.is_some(),
                some.hash.is_some(),
                some.vlan.is_some()
            )),
            [(true, false, false), (false, true, false), (false, false, true)]
        );
        assert_eq!(parse(&written(78, 7)), None, "it is another's");
    }

    /// A BPF program that sends a packet with a VLAN tag outside its bytes.
    fn tagging(interface: u32, tci: u16) -> [Insn; 9] {
        const VLAN_PUSH: i32 = 18;
        const CLONE_REDIRECT: i32 = 13;
        [
            copy(6, 1),
            set(2, i32::from(0x8100u16.to_be())),
            set(3, i32::from(tci)),
            call(VLAN_PUSH),
            copy(1, 6),
            set(2, interface as i32),
            set(3, 0),
            call(CLONE_REDIRECT),
            op(0x95, 0, 0, 0, 0), // exit
        ]
    }

    #[test]
    fn a_tag_that_is_not_in_the_packet_is_known() {
        let name = "a_tag_that_is_not_in_the_packet_is_known";
        if let Some(why) = veth::missing().or_else(veth::no_metadata) {
            return println!("SKIP {name}: {why}");
        }
        let veth = veth::Veth::new(1, 1500);
        let redirect = Redirect::load_with_metadata("near0", false).unwrap();
        let arena = ArenaParams { max_bytes: 4 << 20, commit_all: true, ..Default::default() };
        let arena = Arena::new(arena).unwrap();
        let umem = UmemParams { mode: XskMode::Copy, ..Default::default() };
        let umem = Umem::new(umem, &arena).unwrap();
        let pool =
            PoolParams { headroom: 256, wakeup: true, domains: vec![umem.clone()], ..Default::default() };
        let pool = Pool::new(pool, arena).unwrap().bind();
        let params = XskParams { interface: "near0".into(), rx_ring: 8, tx_ring: 8, ..Default::default() };
        let params = XskParams { redirect: Some(redirect.clone()), ..params };
        let mut device = XskDevice::open(params, &umem, &pool).unwrap();
        let mut packets = Vec::with_capacity(8);
        device.receive(&pool, &mut packets, 8);
        redirect.start().unwrap();
        veth.far().run(|| {
            let index = lookup::look_up("far0").unwrap().index;
            let program = bpf::load(&tagging(index, 5 << 13 | 100), bpf::Kind::Packet).unwrap();
            let frame = [7u8; 60];
            bpf::run_packet(program.as_fd(), (frame.as_ptr().addr() as u64, 60), [0; 2]).unwrap();
        });
        while packets.is_empty() && device.wait(&pool, Duration::from_secs(5)) == Wake::Ready {
            device.receive(&pool, &mut packets, 8);
        }
        assert_eq!(packets[0].data(), [7; 60]);
        let read = redirect.rx_metadata().unwrap().read(&mut packets[0]).unwrap();
        if let Some(why) = veth::older_than((6, 8)) {
            return println!("SKIP {name}: tags require {why}");
        }
        let tag = read.vlan.expect("a veth has it");
        assert_eq!((tag.protocol, tag.id(), tag.priority()), (0x8100, 100, 5));
    }
}
