//! Packets against the plainest model of one: random moves of head, tail and metadata, and buffers added and
//! taken off, with every byte compared after each.

#![allow(clippy::unwrap_used)]

use pagepool::{
    AdjustError, Bound, ETH_HEADER, MAX_FRAGS, MAX_META, PageBuf, Pool, PoolParams, XdpBuff, XdpFrame,
};
use pagepool_testing::{PlainMemory, seed};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const HEADROOM: usize = 256;
const MAX_LEN: usize = 1514;
const TAILROOM: usize = 320;
const PAGE: usize = 4096;

#[derive(Clone, Debug)]
enum ChainOp {
    Head(isize),
    Tail(isize),
    Meta(isize),
    Write(u8),
    AddPage { offset: usize, len: usize },
    AddFrag { size: usize },
    PopFrag,
    ThereAndBack { elsewhere: bool },
}

fn op() -> impl Strategy<Value = ChainOp> {
    prop_oneof![
        3 => (-300isize..300).prop_map(ChainOp::Head),
        3 => (-2500isize..2500).prop_map(ChainOp::Tail),
        1 => (-80isize..80).prop_map(ChainOp::Tail),
        2 => (-70isize..70).prop_map(|words| ChainOp::Meta(words * 4)),
        1 => (-9isize..9).prop_map(ChainOp::Meta),
        2 => any::<u8>().prop_map(ChainOp::Write),
        2 => (0usize..4200, 0usize..2000).prop_map(|(offset, len)| ChainOp::AddPage { offset, len }),
        3 => (1usize..2200).prop_map(|size| ChainOp::AddFrag { size }),
        1 => Just(ChainOp::PopFrag),
        1 => any::<bool>().prop_map(|elsewhere| ChainOp::ThereAndBack { elsewhere }),
    ]
}

/// A further buffer: its data, the bytes behind them that it could grow by, and where it lies.
#[derive(Debug)]
struct FragModel {
    data: Vec<u8>,
    room: usize,
    starts_at: usize,
}

/// A packet as vectors: what lies before the data in the first buffer, the data, and the further buffers.
#[derive(Debug)]
struct PacketModel {
    /// All bytes before the packet; its metadata are the last of them.
    before: Vec<u8>,
    meta: usize,
    data: Vec<u8>,
    /// All bytes behind the packet that it may have.
    room: usize,
    parts: Vec<FragModel>,
    /// Fragments that began their page right behind the last one's end, and so in the page before.
    began_next_page: usize,
}

impl PacketModel {
    fn len(&self) -> usize {
        self.data.len() + self.parts.iter().map(|part| part.data.len()).sum::<usize>()
    }

    fn head(&mut self, delta: isize) -> Result<(), AdjustError> {
        let meta = self.before.split_off(self.before.len() - self.meta);
        let outcome = if -delta > self.before.len() as isize {
            Err(AdjustError::NoRoom)
        } else if delta > self.data.len() as isize - ETH_HEADER as isize {
            Err(AdjustError::TooShort)
        } else {
            // The metadata is moved by copying: what is before and in the packet then is what lay there.
            let mut bytes = [&self.before[..], &meta, &self.data].concat();
            let from = self.before.len();
            let new = (from + self.meta).checked_add_signed(delta).expect("delta was checked above");
            bytes.copy_within(from..from + self.meta, new - self.meta);
            self.data = bytes.split_off(new);
            bytes.truncate(new - self.meta);
            self.before = bytes;
            Ok(())
        };
        self.before.extend_from_slice(&meta);
        outcome
    }

    fn meta(&mut self, delta: isize) -> Result<(), AdjustError> {
        let new = self.meta as isize - delta;
        if new < 0 || new > self.before.len() as isize {
            return Err(AdjustError::NoRoom);
        }
        if new % 4 != 0 || new > MAX_META as isize {
            return Err(AdjustError::BadMeta);
        }
        self.meta = new as usize;
        Ok(())
    }

    fn tail(&mut self, delta: isize) -> Result<(), AdjustError> {
        if delta < 0 {
            return self.shrink(delta.unsigned_abs());
        }
        let more = delta as usize;
        if let Some(last) = self.parts.last_mut() {
            last.room = last.room.checked_sub(more).ok_or(AdjustError::NoRoom)?;
            last.data.resize(last.data.len() + more, 0);
            return Ok(());
        }
        if more > self.room {
            return Err(AdjustError::NoRoom);
        }
        if self.data.len() + more < ETH_HEADER {
            return Err(AdjustError::TooShort);
        }
        self.room -= more;
        self.data.resize(self.data.len() + more, 0);
        Ok(())
    }

    fn shrink(&mut self, less: usize) -> Result<(), AdjustError> {
        if self.len() < less + ETH_HEADER {
            return Err(AdjustError::TooShort);
        }
        for _ in 0..less {
            match self.parts.last_mut() {
                Some(part) => {
                    part.data.pop();
                    part.room += 1;
                    if part.data.is_empty() {
                        self.parts.pop();
                    }
                }
                None => {
                    self.data.pop();
                    self.room += 1;
                }
            }
        }
        Ok(())
    }

    /// A buffer was added at this address: it may go on where the last one ends.
    fn add(&mut self, data: Vec<u8>, room: usize, starts_at: usize, begins_page: bool) -> bool {
        if let Some(last) = self.parts.last_mut()
            && last.room == 0
            && last.starts_at + last.data.len() == starts_at
        {
            self.began_next_page += usize::from(begins_page);
            if !begins_page {
                last.data.extend(data);
                last.room = room;
                return true;
            }
        }
        let fits = self.parts.len() < MAX_FRAGS;
        if fits {
            self.parts.push(FragModel { data, room, starts_at });
        }
        fits
    }

    fn compare(&self, packet: &XdpBuff) {
        assert_eq!((packet.len(), packet.headroom()), (self.len(), self.before.len() - self.meta));
        assert_eq!(packet.offset(), self.before.len());
        assert_eq!(packet.tailroom(), self.parts.last().map_or(self.room, |part| part.room));
        assert_eq!(packet.data(), self.data);
        assert_eq!(packet.meta(), &self.before[self.before.len() - self.meta..]);
        let theirs: Vec<&[u8]> = packet.frags().iter().map(|frag| frag.data()).collect();
        let ours: Vec<&[u8]> = self.parts.iter().map(|part| &part.data[..]).collect();
        assert_eq!(theirs, ours);
    }
}

fn start(pool: &Bound, len: usize) -> (XdpBuff, PacketModel) {
    let mut buffer = pool.alloc_page().unwrap();
    buffer.bytes_mut().unwrap().iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    let bytes = buffer.bytes().unwrap();
    let (before, data) = (bytes[..HEADROOM].to_vec(), bytes[HEADROOM..HEADROOM + len].to_vec());
    let room = PAGE - TAILROOM - HEADROOM - len;
    (
        XdpBuff::received(buffer, len).unwrap(),
        PacketModel { before, meta: 0, data, room, parts: Vec::new(), began_next_page: 0 },
    )
}

fn add(
    packet: &mut XdpBuff,
    model: &mut PacketModel,
    mut buffer: PageBuf,
    offset: usize,
    len: usize,
    fill: u8,
) {
    let (start, size) = (buffer.as_ptr().unwrap().addr(), buffer.len());
    buffer.bytes_mut().unwrap().fill(fill);
    // A whole page never goes on where another ends, nor does data that does not begin with its fragment.
    let starts_at = if !buffer.is_frag() || offset > 0 { usize::MAX / 2 } else { start };
    let begins_page = buffer.offset() == 0; // and the last one is of another page, which may lie before it
    let lies_in_it = len > 0 && offset + len <= size;
    let fits = lies_in_it && model.add(vec![fill; len], size - offset - len, starts_at, begins_page);
    assert_eq!(packet.add_frag(buffer, offset, len).is_ok(), fits);
}

fn apply(pool: &Bound, packet: XdpBuff, model: &mut PacketModel, op: &ChainOp, fill: u8) -> XdpBuff {
    let mut packet = packet;
    match *op {
        ChainOp::Head(delta) => assert_eq!(packet.adjust_head(delta), model.head(delta)),
        ChainOp::Tail(delta) => assert_eq!(packet.adjust_tail(delta), model.tail(delta)),
        ChainOp::Meta(delta) => assert_eq!(packet.adjust_meta(delta), model.meta(delta)),
        ChainOp::Write(byte) => {
            packet.data_mut().fill(byte);
            packet.frags_mut().iter_mut().for_each(|frag| frag.data_mut().fill(byte));
            model.data.fill(byte);
            model.parts.iter_mut().for_each(|part| part.data.fill(byte));
            packet.meta_mut().fill(!byte);
            let from = model.before.len() - model.meta;
            model.before[from..].fill(!byte);
        }
        ChainOp::AddPage { offset, len } => {
            add(&mut packet, model, pool.alloc_page().unwrap(), offset, len, fill);
        }
        ChainOp::AddFrag { size } => {
            add(&mut packet, model, pool.alloc_frag(size).unwrap(), 0, size, fill);
        }
        ChainOp::PopFrag => {
            let popped = packet.pop_frag().map(|frag| frag.data().to_vec());
            assert_eq!(popped, model.parts.pop().map(|part| part.data));
        }
        ChainOp::ThereAndBack { elsewhere } => {
            let frame = XdpFrame::from(packet);
            assert_eq!((frame.len(), frame.segment_count()), (model.len(), 1 + model.parts.len()));
            let whole: Vec<u8> = frame.segments().flat_map(|segment| segment.data().to_vec()).collect();
            let ours = model.parts.iter().flat_map(|part| &part.data);
            assert!(whole.iter().eq(model.data.iter().chain(ours)));
            let look = move || frame.into_buff();
            packet = if elsewhere { std::thread::spawn(look).join().unwrap() } else { look() };
        }
    }
    packet
}

#[test]
fn packets_do_what_vectors_do() {
    let rng_seed = RngSeed::Fixed(seed("PROPTEST_RNG_SEED"));
    let config = ProptestConfig { cases: 800, rng_seed, failure_persistence: None, ..Default::default() };
    proptest!(config, |(len in 0..=MAX_LEN, ops in prop::collection::vec(op(), 1..60))| {
        run(len, &ops);
    });
}

/// A packet of this length, through all of these, in a pool of its own. What the model is in the end.
fn run(len: usize, ops: &[ChainOp]) -> PacketModel {
    let memory = PlainMemory::new(256, 0).unwrap();
    let params = PoolParams {
        headroom: HEADROOM,
        max_len: MAX_LEN,
        tailroom: TAILROOM,
        colour: false,
        chains: 1,
        frag_align: 8,
        ..Default::default()
    };
    let pool = Pool::new(params, memory.clone()).unwrap().bind();
    let (mut packet, mut model) = start(&pool, len);
    for (at, op) in ops.iter().enumerate() {
        packet = apply(&pool, packet, &mut model, op, at as u8);
        model.compare(&packet);
    }
    drop(packet);
    assert_eq!(pool.inflight().out, 0);
    let (mut again, _) = start(&pool, 60);
    assert!(again.add_frag(pool.alloc_page().unwrap(), 0, 1).is_ok(), "the only chain is free again");
    drop(again);
    let end = pool.destroy();
    assert!(end.is_complete(), "{}", end.report());
    assert_eq!(memory.free(), 256);
    model
}

#[test]
fn fragments_of_neighbouring_pages_stay_two() {
    let frag = |size| ChainOp::AddFrag { size };
    let one = ChainOp::AddPage { offset: 0, len: 1 };
    let to_the_end_of_a_page = [frag(881), frag(1025), frag(112)];
    let before = [frag(945), frag(1081), one, frag(2057), ChainOp::PopFrag, ChainOp::Tail(-1)];
    let model = run(0, &[&before[..], &to_the_end_of_a_page, &[frag(1)]].concat());
    assert_eq!(model.began_next_page, 1, "the two pages are neighbours");
}
