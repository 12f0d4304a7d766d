//! `pagepool gen IF`: sends numbered frames of a given size and rate.
//!
//! The frames are those that `drop --verify` checks: EtherType 0x88b5, which is for experiments, a number and
//! a checksum.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::drop::DropHandler;
use clap::Args;
use pagepool::{Bound, ETH_HEADER, XdpBuff, XdpFrame};
use pagepool_link::{Mac, shell_word};
use pagepool_net::{BUDGET, Forwarder, NumberedFrames, PacketHandler, PortId, Stack, TxQueue, ticks};

use crate::report::{count_of, error_chain};
use crate::traffic::capture::CaptureTap;
use crate::traffic::command::{ThreadContext, TrafficCommand, TrafficPlan};
use crate::traffic::options::{TrafficOptions, TransmitOptions};
use crate::traffic::poll_loop::{FrameSource, SourceState};
use crate::traffic::sockets::{Interface, SocketSizes};

#[derive(Args, Clone, Debug)]
pub struct GenArgs {
    /// eth0, af_xdp:eth0, tap:NAME, vhost_net:NAME or vhost_user:PATH
    ///
    /// gen receives nothing: packets that arrive go to the kernel as before, or are dropped if they come from
    /// a TAP or a switch. The source address is the interface's. With vhost_user:PATH it is 02:00 and the
    /// PID.
    #[arg(value_name = "IF")]
    interface: String,
    /// Bytes of a packet, 64 to 9000
    ///
    /// Includes the Ethernet header, but not the frame check sequence. The maximum is the MTU of the
    /// interface plus 14.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    #[arg(value_parser = count_of::<u32>("bytes", 64..=9000))]
    size: u32,
    /// Packets per second, over all queues: 1000, or 1k, 2.5M [default: as many as possible]
    #[arg(long, value_name = "PPS")]
    #[arg(value_parser = count_of::<u64>("packets a second", 1..=1_000_000_000))]
    rate: Option<u64>,
    /// Stop after N packets: 1000, or 1k, 2.5M [default: at the end of --seconds, or at Ctrl-C]
    #[arg(long, value_name = "N", value_parser = count_of::<u64>("packets", 1..=u64::MAX))]
    count: Option<u64>,
    /// Destination MAC address [default: ff:ff:ff:ff:ff:ff, broadcast]
    #[arg(long, value_name = "MAC", default_value = "ff:ff:ff:ff:ff:ff", hide_default_value = true)]
    #[arg(value_parser = mac)]
    dst: Mac,
    #[command(flatten)]
    transmit: TransmitOptions,
    #[command(flatten)]
    options: TrafficOptions,
    /// The next number, shared by the threads.
    #[arg(skip)]
    numbers: Arc<AtomicU64>,
}

/// Reads `02:00:00:00:00:01`.
fn mac(text: &str) -> Result<Mac, String> {
    let byte = |part: &str| u8::from_str_radix(part, 16).ok().filter(|_| !part.starts_with('+'));
    let bytes = text.split(':').map(byte).collect::<Option<Vec<u8>>>();
    let mac = bytes.and_then(|bytes| bytes.try_into().ok()).map(Mac);
    mac.ok_or_else(|| "a MAC address is six bytes, for example 02:00:00:00:00:01".into())
}

/// The address of a process whose device has no interface: locally administered, with the PID.
fn own_mac() -> Mac {
    let [a, b, c, d] = std::process::id().to_be_bytes();
    Mac([0x02, 0, a, b, c, d])
}

impl TrafficCommand for GenArgs {
    type Handler = DropHandler;
    type Source = Generator;

    fn plan(&self) -> TrafficPlan<'_> {
        let plan = TrafficPlan::new("gen", vec![&self.interface], &self.options);
        TrafficPlan { tx_mode: Some(self.transmit.tx_mode()), ..plan }
    }

    fn check(&self, interfaces: &[Interface]) -> Result<(), String> {
        let Some(Interface { link: Some(link), .. }) = interfaces.first() else { return Ok(()) };
        let most = link.mtu as usize + ETH_HEADER;
        if self.size as usize > most {
            let mtu = self.size as usize - ETH_HEADER;
            let (name, size) = (&link.name, self.size);
            return Err(format!(
                "--size is {size} bytes, but {name} with its MTU of {} takes 64 to {most}; use `ip link set \
                 {} mtu {mtu}` at both ends",
                link.mtu,
                shell_word(name)
            ));
        }
        Ok(())
    }

    fn mtu(&self, _: &[Interface]) -> u32 {
        self.size - ETH_HEADER as u32 // the longest packet sent: nothing is received
    }

    fn work(&self, thread: &mut ThreadContext<'_>) -> (DropHandler, Generator) {
        let link = thread.interfaces.first().and_then(|interface| interface.link.as_ref());
        let from = link.and_then(|link| link.mac).unwrap_or_else(own_mac);
        let frames = NumberedFrames::new(from, self.dst, self.size as usize);
        let generator = Generator {
            // The size was checked: 64 to 9000.
            frames: frames.unwrap_or_else(|error| unreachable!("{}", error_chain(&error))),
            numbers: self.numbers.clone(),
            count: self.count.unwrap_or(u64::MAX),
            mine: 0..0,
            pace: self.rate.map(|rate| Pace::new(rate as f64 / thread.threads as f64)),
            sizes: *thread.sizes,
            whole: vec![0; self.size as usize],
            tap: thread.tap.take(),
            make_ticks: 0,
            ports: thread.sides.len() as u32,
            port: PortId(0),
        };
        (DropHandler::default(), generator) // nothing is received
    }
}

pub struct Generator {
    frames: NumberedFrames,
    /// The next number, shared by all threads, and the end of the numbers.
    numbers: Arc<AtomicU64>,
    count: u64,
    /// Numbers that this thread has taken and not sent yet.
    mine: std::ops::Range<u64>,
    pace: Option<Pace>,
    sizes: SocketSizes,
    /// A frame of several buffers, as one.
    whole: Vec<u8>,
    tap: Option<CaptureTap>,
    make_ticks: u64,
    /// The number of the thread's ports, and the port that gets frames next.
    ports: u32,
    port: PortId,
}

/// The longest time until the next check for room.
const FULL: Duration = Duration::from_millis(1);

impl FrameSource for Generator {
    fn send_due<H: PacketHandler, S: Stack>(&mut self, forwarder: &mut Forwarder<H, S>) -> SourceState {
        if !self.find_room(forwarder) {
            return SourceState::Later(FULL); // the transmit rings are full
        }
        if self.is_finished() {
            return SourceState::Finished;
        }
        let due = match &mut self.pace {
            None => BUDGET as u64,
            Some(pace) => match pace.due(Instant::now(), BUDGET as u64) {
                Ok(due) => due,
                Err(nap) => return SourceState::Later(nap),
            },
        };
        if !self.take_numbers(due) {
            return SourceState::Finished;
        }
        let start = ticks();
        let sent = self.send(forwarder, due);
        self.make_ticks += ticks() - start;
        sent
    }

    fn make_ticks(&self) -> u64 {
        self.make_ticks
    }
}

impl Generator {
    /// Moves to the next port whose transmit ring has room. Returns whether there is one.
    fn find_room<H: PacketHandler, S: Stack>(&mut self, forwarder: &Forwarder<H, S>) -> bool {
        let next = (1..=self.ports).map(|step| PortId((self.port.0 + step) % self.ports));
        let has_room = |&port: &PortId| forwarder.waiting(port).is_some_and(TxQueue::is_empty);
        let found = next.into_iter().find(has_room);
        self.port = found.unwrap_or(self.port);
        found.is_some()
    }

    /// Whether all numbers are taken, and this thread has sent its own.
    fn is_finished(&self) -> bool {
        self.mine.is_empty() && self.numbers.load(Ordering::Relaxed) >= self.count
    }

    /// Takes numbers to send, at most `most`, if it has none. Returns whether it has some.
    fn take_numbers(&mut self, most: u64) -> bool {
        if self.mine.is_empty() {
            let first = self.numbers.fetch_add(most, Ordering::Relaxed);
            self.mine = first..first.saturating_add(most).min(self.count);
        }
        !self.mine.is_empty()
    }

    fn send<H: PacketHandler, S: Stack>(
        &mut self,
        forwarder: &mut Forwarder<H, S>,
        most: u64,
    ) -> SourceState {
        for _ in 0..most.min(self.mine.end - self.mine.start) {
            let number = self.mine.start;
            let Some(frame) = forwarder.pool(self.port).and_then(|pool| self.make(number, pool)) else {
                return SourceState::Later(FULL); // all pages are in use
            };
            if let Some(tap) = &mut self.tap {
                tap.take(&frame);
            }
            if forwarder.send(self.port, XdpFrame::from(frame)).is_err() {
                return SourceState::Later(FULL); // the interface is gone
            }
            self.mine.start += 1;
            if let Some(pace) = &mut self.pace {
                pace.sent += 1.0;
            }
        }
        SourceState::Active
    }

    /// Makes the frame with a number, in as many buffers as it needs.
    fn make(&mut self, number: u64, pool: &Bound) -> Option<XdpBuff> {
        let (size, room) = (self.frames.size(), self.sizes.room());
        if size <= room {
            let mut packet = self.buffer(pool, size)?;
            self.frames.write(number, packet.data_mut());
            return Some(packet);
        }
        self.frames.write(number, &mut self.whole);
        let mut packet = self.buffer(pool, room)?;
        let (first, rest) = self.whole.split_at(room);
        packet.data_mut().copy_from_slice(first);
        for part in rest.chunks(room) {
            let mut more = self.buffer(pool, part.len())?;
            more.data_mut().copy_from_slice(part);
            let offset = more.offset();
            packet.add_frag(more.into_buffer(), offset, part.len()).ok()?;
        }
        Some(packet)
    }

    /// A chunk with a packet of `len` bytes that are not written yet.
    fn buffer(&self, pool: &Bound, len: usize) -> Option<XdpBuff> {
        XdpBuff::received(pool.alloc_page()?, len).ok()
    }
}

/// A rate. Frames that are more than a moment late are skipped, because sending them would make a burst.
#[derive(Debug)]
struct Pace {
    per_second: f64,
    start: Option<Instant>,
    sent: f64,
}

/// The most delay that is made up for.
const LATE: Duration = Duration::from_millis(100);

impl Pace {
    fn new(per_second: f64) -> Self {
        Self { per_second, start: None, sent: 0.0 }
    }

    /// How many frames are due, at most `most`; or the time until one is.
    fn due(&mut self, now: Instant, most: u64) -> Result<u64, Duration> {
        let start = *self.start.get_or_insert(now);
        let should = (now - start).as_secs_f64() * self.per_second + 1.0;
        self.sent = self.sent.max(should - LATE.as_secs_f64() * self.per_second - 1.0);
        match (should - self.sent) as u64 {
            0 => Err(Duration::from_secs_f64((self.sent + 1.0 - should) / self.per_second)),
            due => Ok(due.min(most)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_refused() {
        assert_eq!(mac("02:00:00:00:0A:ff"), Ok(Mac([2, 0, 0, 0, 10, 255])));
        for bad in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "02:00:00:00:00:100",
            "g2:00:00:00:00:00",
            "+2:00:00:00:00:00",
        ] {
            assert!(mac(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pace_skips_missed_frames() {
        let (mut pace, start) = (Pace::new(1000.0), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(pace.due(start, 64), Ok(1), "the first one at once");
        pace.sent += 1.0;
        let nap = pace.due(start, 64).unwrap_err();
        assert!((0.0009..0.0011).contains(&nap.as_secs_f64()), "{nap:?}");
        assert_eq!(pace.due(at(10), 64), Ok(10));
        pace.sent += 10.0;
        assert_eq!(pace.due(at(10_000), 1_000_000), Ok(101), "not all of ten seconds");
    }
}
