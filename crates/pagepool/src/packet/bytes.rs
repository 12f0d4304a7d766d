//! Packets as `bytes::Bytes`, without a copy.
//!
//! What   each buffer of a packet, or a range of one buffer, becomes one `Bytes` that owns it. The buffer
//!        returns to its pool when the last clone or slice is dropped, on any thread. Feature `bytes`.
//! Cost   one box per buffer, from `Bytes::from_owner`; no copy and no other allocation.

use bytes::Bytes;

use crate::buf::page_buf::PageBuf;
use crate::packet::chain::MAX_FRAGS;
use crate::packet::xdp_frame::XdpFrame;

impl PageBuf {
    /// Converts `len` bytes of the buffer, from `offset` on, into a `Bytes` without a copy. Cheapest for a
    /// packet of one buffer: one box.
    ///
    /// `Err(buffer)` if the range is not within it or the CPU cannot read it.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut buffer = pool.alloc_page().unwrap();
    /// buffer.packet_mut().unwrap()[..3].copy_from_slice(b"abc");
    /// let at = buffer.packet_offset();
    /// let bytes = buffer.into_bytes(at, 3).unwrap();
    /// std::thread::spawn(move || assert_eq!(bytes, &b"abc"[..])).join().unwrap();
    /// assert_eq!(pool.inflight().out, 0);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn into_bytes(self, offset: usize, len: usize) -> Result<Bytes, PageBuf> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        if !inside || self.as_ptr().is_none() {
            return Err(self);
        }
        Ok(Bytes::from_owner(Apart { buffer: self, data: offset, len }))
    }
}

impl XdpFrame {
    /// Converts the packet into one `Bytes` for each of its buffers, in order, without a copy. One box per
    /// buffer.
    ///
    /// `Err(frame)` if the CPU cannot read all of it.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, XdpBuff, XdpFrame, Pool, PoolParams};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
    /// packet.data_mut().fill(7);
    /// let bytes = XdpFrame::from(packet).into_bytes().unwrap().next().unwrap();
    /// let payload = bytes.slice(14..);
    /// drop(bytes);
    /// assert_eq!((&payload[..], pool.inflight().out), (&[7; 46][..], 1));
    /// drop(payload);
    /// assert_eq!(pool.inflight().out, 0);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn into_bytes(self) -> Result<impl Iterator<Item = Bytes>, XdpFrame> {
        if self.segments().any(|segment| segment.data().len() < segment.len) {
            return Err(self);
        }
        let mut parts = BytesParts::new();
        let (buffer, range, _) = self.take_apart(|frag| {
            let (data, len) = (frag.offset(), frag.len());
            parts.push(Bytes::from_owner(Apart { buffer: frag.into_buffer(), data, len }));
        });
        let (data, len) = (range.start as usize, range.len());
        if len > 0 {
            parts.push_front(Bytes::from_owner(Apart { buffer, data, len }));
        }
        Ok(parts.into_iter())
    }
}

/// Owns the `len` bytes of a packet from `data` on.
struct Apart {
    buffer: PageBuf,
    data: usize,
    len: usize,
}

impl AsRef<[u8]> for Apart {
    fn as_ref(&self) -> &[u8] {
        self.buffer.bytes().map_or(&[], |bytes| &bytes[self.data..self.data + self.len])
    }
}

/// At most one `Bytes` for each buffer of a packet.
struct BytesParts {
    count: usize,
    parts: [Bytes; MAX_FRAGS + 1],
}

impl BytesParts {
    fn new() -> Self {
        Self { count: 0, parts: [const { Bytes::new() }; MAX_FRAGS + 1] }
    }

    /// A packet never has more parts than fit.
    fn push(&mut self, part: Bytes) {
        self.parts[self.count] = part;
        self.count += 1;
    }

    fn push_front(&mut self, part: Bytes) {
        self.push(part);
        self.parts[..self.count].rotate_right(1);
    }

    fn into_iter(self) -> impl Iterator<Item = Bytes> {
        self.parts.into_iter().take(self.count)
    }
}
