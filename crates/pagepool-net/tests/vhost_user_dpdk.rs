//! vhost-user devices with offloads over DPDK's net_vhost: it passes on what packets request.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagepool::{Arena, ArenaParams, Backing, Bound, Error, PoolParams, XdpBuff, XdpFrameBulk};
use pagepool_lab::TempFolder;
use pagepool_net::{
    Device, DeviceExt, OpenParams, RxMetadata, RxMetadataReader, TxChecksum, TxMetadata, TxQueue, TxSegment,
    open_devices,
};

const LIMIT: Duration = Duration::from_secs(60);

/// DPDK's forwarder between two sockets. Dropping it ends it.
struct Testpmd {
    program: Child,
    folder: TempFolder,
}

impl Testpmd {
    /// Says what is missing.
    fn start(options: &str) -> Result<Self, String> {
        let folder = TempFolder::new("pagepool-dpdk").unwrap();
        let vdev = |number: u8| {
            let path = socket(folder.path(), number);
            format!("net_vhost{number},iface={},legacy-ol-flags=1{options}", path.display())
        };
        let prefix = Path::new(folder.path().file_name().unwrap());
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        // Without huge pages; `timeout` ends it should this process be killed.
        let program = Command::new("timeout")
            .args([
                "120",
                "dpdk-testpmd",
                "--no-huge",
                "-m",
                "256",
                "--no-pci",
                "--no-telemetry",
                "-l",
                "0,1",
            ])
            .arg(format!("--file-prefix={}", prefix.display()))
            .args(["--vdev", &vdev(0), "--vdev", &vdev(1), "--", "--auto-start", "--forward-mode=io"])
            .args(["--total-num-mbufs=4096", "--no-flush-rx", "--disable-link-check"])
            .stdin(Stdio::piped())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn()
            .map_err(|error| format!("timeout: {error}"))?;
        let mut this = Self { program, folder };
        let start = Instant::now();
        while !(socket(this.folder.path(), 0).exists() && socket(this.folder.path(), 1).exists()) {
            if let Some(status) = this.program.try_wait().unwrap() {
                let log = std::fs::read_to_string(this.folder.path().join("log")).unwrap_or_default();
                return Err(format!("dpdk-testpmd does not start ({status}): {}", log.trim()));
            }
            assert!(start.elapsed() < LIMIT, "dpdk-testpmd makes no sockets");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(this)
    }

    fn open(&self, number: u8, arena: &Arc<Arena>) -> Result<Port, Error> {
        let pool = PoolParams { wakeup: true, headroom: 256, ..Default::default() };
        let params = OpenParams { rx_ring: 256, tx_ring: 256, pool, offloads: true, ..Default::default() };
        let name = format!("vhost_user:{}", socket(self.folder.path(), number).display());
        let start = Instant::now();
        let mut opened = loop {
            match open_devices(&[(&name, &[0])], &params, arena) {
                // On a busy machine it takes longer than a second to answer.
                Err(Error::System { .. }) if start.elapsed() < LIMIT => {}
                opened => break opened?,
            }
        };
        let opened = opened.remove(0).remove(0);
        let (reader, pool) = (opened.metadata.unwrap(), opened.pool.bind());
        Ok(Port { device: opened.device, pool, reader })
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        if let Some(mut input) = self.program.stdin.take() {
            let _ = input.write_all(b"\n"); // it ends with the next line
        }
        let _ = self.program.wait();
    }
}

fn socket(folder: &Path, number: u8) -> PathBuf {
    folder.join(format!("sw{number}.sock"))
}

/// What a port sends to find out whether it is heard.
const HELLO: [u8; 60] = [0; 60];

struct Port {
    device: Box<dyn Device>,
    pool: Bound,
    reader: RxMetadataReader,
}

impl Port {
    fn send(&mut self, bytes: &[u8], asks: TxMetadata) {
        let mut packet = self.pool.packet(bytes.len()).unwrap();
        let (first, rest) = bytes.split_at(packet.data_len());
        packet.data_mut().copy_from_slice(first);
        let mut rest = rest;
        for frag in packet.frags_mut() {
            let (now, later) = rest.split_at(frag.len());
            frag.data_mut().copy_from_slice(now);
            rest = later;
        }
        asks.write(&mut packet).unwrap();
        let mut queue = TxQueue::from_iter([packet]);
        assert_eq!((self.device.transmit(&mut queue), queue.refused()), (1, 0), "{:?}", self.device.stats());
    }

    /// Waits until DPDK passes packets on to `far`. It drops what it gets before it knows that the other port is
    /// ready, and does not say when it does.
    fn is_heard_by(&mut self, far: &mut Port) {
        let start = Instant::now();
        while far.receive_within(Duration::from_millis(10)).is_none() {
            assert!(start.elapsed() < LIMIT, "nothing came: {:?}", far.device.stats());
            self.send(&HELLO, TxMetadata::default());
            let _ = self.device.complete(&mut XdpFrameBulk::new(), 64);
        }
    }

    /// The next packet that is no `HELLO`.
    fn receive(&mut self) -> (RxMetadata, Vec<u8>) {
        loop {
            let packet = self.receive_within(LIMIT);
            let packet = packet.unwrap_or_else(|| panic!("nothing came: {:?}", self.device.stats()));
            if packet.1 != HELLO {
                return packet;
            }
        }
    }

    fn receive_within(&mut self, limit: Duration) -> Option<(RxMetadata, Vec<u8>)> {
        let start = Instant::now();
        let mut packets: Vec<XdpBuff> = Vec::with_capacity(1);
        while self.device.receive(&self.pool, &mut packets, 1) == 0 {
            let left = limit.checked_sub(start.elapsed())?;
            let _ = self.device.wait(&self.pool, left);
        }
        let mut packet = packets.remove(0);
        let read = self.reader.read(&mut packet).unwrap();
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes);
        Some((read, bytes))
    }

    fn end(mut self) {
        let _ = self.device.complete(&mut XdpFrameBulk::new(), 64);
        self.device.close();
        assert_eq!(self.pool.inflight().out, 0, "{:?}", self.device.stats());
    }
}

/// A packet of TCP over IPv4, of any length, with the checksum of its IP header.
fn tcp(len: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..len).map(|at| at as u8).collect();
    let [high, low] = ((len - 14) as u16).to_be_bytes();
    packet[12..34]
        .copy_from_slice(&[8, 0, 0x45, 0, high, low, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    packet[46] = 8 << 4;
    let words = packet[14..34].as_chunks().0.iter();
    let sum: u32 = words.map(|&word| u32::from(u16::from_be_bytes(word))).sum();
    packet[24..26].copy_from_slice(&(!((sum >> 16) + (sum & 0xffff)) as u16).to_be_bytes());
    packet
}

#[test]
fn dpdk_passes_on_what_packets_request() {
    let testpmd = match Testpmd::start(",tso=1") {
        Ok(testpmd) => testpmd,
        Err(why) => return println!("SKIP dpdk_passes_on_what_packets_request: {why}"),
    };
    let backing = Backing::Memfd { huge: false };
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, backing, ..Default::default() }).unwrap();
    let (mut near, mut far) = (testpmd.open(0, &arena).unwrap(), testpmd.open(1, &arena).unwrap());
    near.is_heard_by(&mut far);
    for len in [66, 1500, 9000, 40_000, 65_549] {
        let mut bytes = tcp(len);
        let checksum = TxChecksum::prepare(&mut bytes);
        assert!(checksum.is_some());
        let segment = TxSegment::find(&bytes, 1448).filter(|_| len > 1500);
        near.send(&bytes, TxMetadata { checksum, segment, ..Default::default() });
        let (read, received) = far.receive();
        let differ: Vec<_> = (0..len.min(received.len())).filter(|&at| bytes[at] != received[at]).collect();
        // DPDK leaves the length out of the sum that a packet to be cut begins with.
        let allowed: &[usize] = if segment.is_some() { &[50, 51] } else { &[] };
        assert_eq!((received.len(), &*differ), (bytes.len(), allowed), "{len}");
        assert_eq!((read.checksum_ok, read.checksum, read.segment), (true, checksum, segment), "{len}");
    }
    near.send(&tcp(100), TxMetadata::default());
    assert_eq!(far.receive(), (RxMetadata::default(), tcp(100)), "it requested nothing");
    near.end();
    far.end();
    drop(testpmd);
    // After it: each keeps a CPU busy.
    let testpmd = Testpmd::start("").unwrap();
    let error = testpmd.open(0, &arena).map(drop).unwrap_err().to_string();
    assert!(error.contains("lacks VIRTIO_NET_F_") && error.contains("`tso=1`"), "{error}");
}
