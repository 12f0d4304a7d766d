//! A page pool of the kernel, parsed from its netlink messages.

use std::time::Duration;

use super::family::HEADER;
use crate::message::{Attributes, Malformed, NetlinkMessage, u32_at, u64_at};
use crate::sys::clock::since_boot;
use crate::sys::uapi;

/// A page pool of the kernel. Drivers make one for each receive queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelPagePool {
    /// Its id, unique in this kernel.
    pub id: u32,
    /// The interface of its driver; `None` if that was removed while pages are out.
    pub ifindex: Option<u32>,
    /// The NAPI instance that allocates from it, if any.
    pub napi: Option<u32>,
    /// Pages that it has from the system: in cache and ring, with the driver, in packets.
    pub inflight: u64,
    /// Their bytes.
    pub inflight_bytes: u64,
    /// When the driver destroyed the pool, which now waits for its last pages: time since boot
    /// (`CLOCK_BOOTTIME`), in whole seconds. `None` for a pool in use.
    pub detached_at: Option<Duration>,
    /// The source of its memory, if that is not the system.
    pub provider: Option<KernelPoolProvider>,
    /// Its counters; `None` for a kernel without `CONFIG_PAGE_POOL_STATS`.
    pub stats: Option<KernelPoolStats>,
}

/// A source of memory other than the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelPoolProvider {
    /// A device: the dma-buf with this id (Linux 6.12).
    DmaBuf(u32),
    /// An area of io_uring's zero-copy receive (Linux 6.15).
    IoUring,
}

macro_rules! kernel_stats {
    ($($name:ident = $attribute:literal,)+) => {
        /// The eleven counters of a page pool of the kernel, with the names of [`pagepool::Stats`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[expect(missing_docs, reason = "pagepool::Stats says what each counts")]
        #[non_exhaustive]
        pub struct KernelPoolStats { $(pub $name: u64,)+ }

        impl KernelPoolStats {
            /// Names and values, in the kernel's order.
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }

            /// The counts since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name)),+ }
            }

            fn parse(attributes: Attributes<'_>) -> Result<Self, Malformed> {
                Ok(Self { $($name: number(attributes, $attribute)?.unwrap_or(0),)+ })
            }
        }
    };
}

// With the numbers of `NETDEV_A_PAGE_POOL_STATS_ALLOC_FAST` and so on (include/uapi/linux/netdev.h, v7.3).
kernel_stats! {
    alloc_fast = 8,
    alloc_slow = 9,
    alloc_slow_high_order = 10,
    alloc_empty = 11,
    alloc_refill = 12,
    alloc_waive = 13,
    recycle_cached = 14,
    recycle_cache_full = 15,
    recycle_ring = 16,
    recycle_ring_full = 17,
    recycle_released_refcnt = 18,
}

impl KernelPoolStats {
    /// Recycled pages per hundred allocations, like [`pagepool::Stats::recycle_percent`]; `None` before the
    /// first allocation.
    pub fn recycle_percent(&self) -> Option<f64> {
        let allocated = [self.alloc_fast, self.alloc_refill, self.alloc_slow, self.alloc_slow_high_order];
        let allocated: f64 = allocated.into_iter().map(|count| count as f64).sum();
        let recycled = self.recycle_ring as f64 + self.recycle_cached as f64;
        (allocated > 0.0).then(|| recycled * 100.0 / allocated)
    }
}

impl KernelPagePool {
    /// How long it has waited for its last pages, if the driver destroyed it.
    pub fn detached_for(&self) -> Option<Duration> {
        self.detached_at.map(|at| since_boot().saturating_sub(at))
    }

    /// Parses a pool, without its counters.
    pub(crate) fn parse(message: &NetlinkMessage<'_>) -> Result<Self, Malformed> {
        let attributes = message.split(HEADER)?.1;
        let short = |kind| small(attributes, kind);
        let long = |kind| number(attributes, kind);
        let dma_buf = short(uapi::NETDEV_A_PAGE_POOL_DMABUF)?.map(KernelPoolProvider::DmaBuf);
        let uring = attributes.find(uapi::NETDEV_A_PAGE_POOL_IO_URING)?.map(|_| KernelPoolProvider::IoUring);
        Ok(Self {
            id: identity(attributes)?,
            ifindex: short(uapi::NETDEV_A_PAGE_POOL_IFINDEX)?.filter(|&index| index != 0),
            napi: short(uapi::NETDEV_A_PAGE_POOL_NAPI_ID)?,
            inflight: long(uapi::NETDEV_A_PAGE_POOL_INFLIGHT)?.unwrap_or(0),
            inflight_bytes: long(uapi::NETDEV_A_PAGE_POOL_INFLIGHT_MEM)?.unwrap_or(0),
            detached_at: long(uapi::NETDEV_A_PAGE_POOL_DETACH_TIME)?.map(Duration::from_secs),
            provider: dma_buf.or(uring),
            stats: None,
        })
    }

    pub(crate) fn parse_stats(message: &NetlinkMessage<'_>) -> Result<(u32, KernelPoolStats), Malformed> {
        let attributes = message.split(HEADER)?.1;
        let info = attributes.find(uapi::NETDEV_A_PAGE_POOL_STATS_INFO)?;
        let info = info.ok_or(Malformed("counters without their pool"))?;
        Ok((identity(Attributes(info))?, KernelPoolStats::parse(attributes)?))
    }
}

fn identity(attributes: Attributes<'_>) -> Result<u32, Malformed> {
    small(attributes, uapi::NETDEV_A_PAGE_POOL_ID)?.ok_or(Malformed("a page pool without its number"))
}

/// A number of four or eight bytes; the kernel sends eight only if needed.
fn number(attributes: Attributes<'_>, kind: u16) -> Result<Option<u64>, Malformed> {
    let Some(value) = attributes.find(kind)? else { return Ok(None) };
    let number = u64_at(value, 0).or_else(|| u32_at(value, 0).map(u64::from));
    number.map(Some).ok_or(Malformed("a number of less than four bytes"))
}

/// A number of four or eight bytes whose value must fit four.
fn small(attributes: Attributes<'_>, kind: u16) -> Result<Option<u32>, Malformed> {
    let too_large = |_| Malformed("a number that takes more than four bytes");
    number(attributes, kind)?.map(|number| u32::try_from(number).map_err(too_large)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{NetlinkMessages, Request, nested};
    use crate::netdev::family::read;

    fn answer(command: u8) -> Request {
        Request::new(20, 0, &[command, 1, 0, 0])
    }

    /// Linux 7.3's answer about the pool of a virtio-net card with one queue: the pool's message, its
    /// counters' message, and the ends of both dumps.
    const OF_VIRTIO_NET: &str = "\
        3c0000001600000007000000a1000000050100000800010003000000080002000200000008000300012000000800\
        0400800000000800050000000800140000000300020007000000a100000000000000800000001600000007000000\
        a1000000090100001400018008000100030000000800020002000000080008007e00000008000900020000000800\
        0a000000000008000b000200000008000c000000000008000d000000000008000e000000000008000f0000000000\
        080010000000000008001100000000000800120000000000140000000300020007000000a100000000000000";

    #[test]
    fn a_recorded_answer_is_read() {
        let byte = |at| u8::from_str_radix(&OF_VIRTIO_NET[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..OF_VIRTIO_NET.len()).step_by(2).map(byte).collect();
        let messages: Vec<_> = NetlinkMessages(&bytes).map(Result::unwrap).collect();
        let expected = KernelPagePool {
            id: 3,
            ifindex: Some(2),
            napi: Some(8193),
            inflight: 128,
            inflight_bytes: 128 << 12,
            ..KernelPagePool::default()
        };
        assert_eq!((messages.len(), KernelPagePool::parse(&messages[0])), (4, Ok(expected)));
        let counted =
            KernelPoolStats { alloc_fast: 126, alloc_slow: 2, alloc_empty: 2, ..Default::default() };
        assert_eq!(KernelPagePool::parse_stats(&messages[2]), Ok((3, counted)));
    }

    #[test]
    fn pools_are_read_with_numbers_of_both_widths() {
        let mut live = answer(5);
        live.number(1, 18).number(2, 3).number(3, 8193).number(4, 320).number(5, 320 << 12);
        let expected = KernelPagePool {
            id: 18,
            ifindex: Some(3),
            napi: Some(8193),
            inflight: 320,
            inflight_bytes: 320 << 12,
            ..KernelPagePool::default()
        };
        assert_eq!(read(&mut live, KernelPagePool::parse), Ok(expected));
        let mut orphan = answer(5);
        orphan.number(1, 19).number(4, 1 << 21).attribute(5, &(1u64 << 33).to_ne_bytes()).number(6, 4711);
        let orphan = read(&mut orphan, KernelPagePool::parse).unwrap();
        assert_eq!((orphan.ifindex, orphan.napi, orphan.inflight_bytes), (None, None, 1 << 33));
        assert_eq!(orphan.detached_at, Some(Duration::from_secs(4711)));
        let just_now = KernelPagePool { detached_at: Some(since_boot()), ..KernelPagePool::default() };
        assert!(just_now.detached_for().is_some_and(|time| time < Duration::from_secs(60)), "{just_now:?}");
        let provider = |fill: &dyn Fn(&mut Request)| {
            let mut pool = answer(5);
            fill(pool.number(1, 1));
            read(&mut pool, KernelPagePool::parse).unwrap().provider
        };
        let dma_buf = |pool: &mut Request| {
            pool.number(7, 6);
        };
        let uring = |pool: &mut Request| {
            pool.nest(nested(8), |_| ());
        };
        assert_eq!(
            (provider(&dma_buf), provider(&uring)),
            (Some(KernelPoolProvider::DmaBuf(6)), Some(KernelPoolProvider::IoUring))
        );
    }

    #[test]
    fn kernel_counters_are_read_and_named_as_in_stats() {
        let mut stats = answer(9);
        stats.nest(nested(1), |info| {
            info.number(1, 18).number(2, 3);
        });
        for kind in 8..=18 {
            stats.number(kind, u32::from(kind) * 10);
        }
        let (id, stats) = read(&mut stats, KernelPagePool::parse_stats).unwrap();
        let values: Vec<_> = stats.fields().into_iter().map(|(_, value)| value).collect();
        assert_eq!((id, values), (18, (8..=18).map(|kind| kind * 10).collect()));
        let ours = pagepool::Stats::default().fields();
        for (name, _) in stats.fields() {
            assert!(ours.iter().any(|(ours, _)| *ours == name), "{name} is none of ours");
        }
        assert_eq!(stats.since(&stats), KernelPoolStats::default());
    }

    #[test]
    fn recycling_is_what_ours_is() {
        let (mut kernel, mut ours) = (KernelPoolStats::default(), pagepool::Stats::default());
        (kernel.alloc_fast, kernel.alloc_slow, kernel.alloc_refill) = (90, 8, 2);
        (ours.alloc_fast, ours.alloc_slow, ours.alloc_refill) = (90, 8, 2);
        (kernel.recycle_ring, kernel.recycle_cached) = (60, 30);
        (ours.recycle_ring, ours.recycle_cached) = (60, 30);
        assert_eq!(kernel.recycle_percent(), ours.recycle_percent());
        assert_eq!(KernelPoolStats::default().recycle_percent(), None);
    }

    #[test]
    fn answers_that_cannot_be_are_errors() {
        let errors = [
            read(&mut answer(5), KernelPagePool::parse),
            read(answer(5).attribute(1, &[1; 3]), KernelPagePool::parse),
            read(answer(5).attribute(1, &u64::MAX.to_ne_bytes()), KernelPagePool::parse),
        ];
        assert!(errors.iter().all(Result::is_err), "{errors:?}");
        let no_pool = answer(9).number(8, 1).numbered(1).to_vec();
        let message = NetlinkMessages(&no_pool).next().unwrap().unwrap();
        assert!(KernelPagePool::parse_stats(&message).is_err());
    }
}
