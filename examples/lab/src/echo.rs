//! A host that sends UDP packets to an example and checks the answers.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use pagepool_lab::FrameSocket;
use pagepool_link::{LinkError, LinkInfo, Mac, TwoHosts, TwoHostsParams};

use crate::{Error, Skip};

/// Longest time without an answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Packets to port 7 that the example must answer.
const ANSWERS: usize = 200;
/// Bytes per packet.
const SIZE: usize = 60;

/// Kills the example on drop.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program in a network namespace, with `near0` and then `arguments`. Sends it UDP packets to port 7
/// and port 9, alternately, until it has answered 200 packets to port 7, each once and unchanged. Returns how
/// many packets to port 9 it answered.
pub fn ask(program: &Path, arguments: &[&str]) -> Result<usize, Error> {
    let hosts = TwoHosts::new(&TwoHostsParams::default()).map_err(skip_or_fail)?;
    let mut command = Command::new(program);
    command.arg(&hosts.near[0].name).args(arguments);
    // A child inherits the namespace of the thread that starts it.
    let mut example = Example(hosts.run_between(move || command.spawn())?);
    let (socket, macs) = (FrameSocket::of(&hosts.a)?, [mac(&hosts.a.link)?, mac(&hosts.near[0])?]);
    let (mut answered, mut number, mut last) = ([BTreeSet::new(), BTreeSet::new()], 0, Instant::now());
    while answered[0].len() < ANSWERS {
        if let Some(status) = example.0.try_wait()? {
            return Err(format!("the example exited: {status}").into());
        }
        if last.elapsed() > TIMEOUT {
            return Err(format!("only {} of {ANSWERS} packets were answered", answered[0].len()).into());
        }
        // The example answers once it has opened its device. A full queue drops the packet.
        let _ = socket.send(&question(macs, number))?;
        number += 1;
        socket.wait(Duration::from_millis(1));
        while let Some(number) = answer(&socket, macs)? {
            if !answered[number as usize % 2].insert(number) {
                return Err(format!("packet {number} was answered twice").into());
            }
            last = Instant::now();
        }
    }
    Ok(answered[1].len())
}

fn skip_or_fail(error: LinkError) -> Error {
    if error.is_permission() { Skip(error.to_string()).into() } else { error.into() }
}

fn mac(link: &LinkInfo) -> Result<Mac, Error> {
    link.mac.ok_or_else(|| format!("{} has no MAC address", link.name).into())
}

/// The packet with this number. Even numbers go to port 7, odd numbers to port 9.
fn question([from, to]: [Mac; 2], number: u32) -> [u8; SIZE] {
    let mut packet = [0; SIZE];
    packet[..6].copy_from_slice(&to.0);
    packet[6..12].copy_from_slice(&from.0);
    packet[12..24].copy_from_slice(b"\x08\0\x45\0\0\x20\0\0\0\0\x40\x11"); // IPv4 without a checksum
    packet[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 3]);
    packet[34..40].copy_from_slice(&[0x30, 0x39, 0, if number % 2 == 0 { 7 } else { 9 }, 0, 12]);
    packet[42..46].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The number of the next answered packet. Fails on a packet that is not an answer.
fn answer(socket: &FrameSocket, macs: [Mac; 2]) -> Result<Option<u32>, Error> {
    let mut packet = [0; SIZE];
    if socket.receive(&mut packet)?.is_none() {
        return Ok(None);
    }
    let number = u32::from_be_bytes([packet[42], packet[43], packet[44], packet[45]]);
    let mut expected = question(macs, number);
    for (one, other, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        let (head, tail) = expected.split_at_mut(other);
        head[one..one + len].swap_with_slice(&mut tail[..len]);
    }
    if packet != expected {
        return Err(format!("{packet:02x?} is not an answer").into());
    }
    Ok(Some(number))
}
