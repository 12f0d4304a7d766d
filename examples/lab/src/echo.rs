//! A host that asks an example, which answers UDP packets on an interface.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use pagepool_lab::FrameSocket;
use pagepool_link::{LinkInfo, Mac, LinkError, TwoHosts, TwoHostsParams};

use crate::{Error, Missing};

/// How long nothing may be answered.
const PATIENCE: Duration = Duration::from_secs(60);
/// Packets to port 7 that are to be answered.
const ANSWERS: usize = 200;
/// Bytes of a packet.
const SIZE: usize = 60;

/// Ends the example.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program in a network namespace, with `near0` and then `arguments`; asks it by UDP, at port 7 and
/// port 9 in turn, until 200 packets to port 7 were answered, each once and as it was sent. Gives how many
/// packets to port 9 were answered.
pub fn ask(program: &Path, arguments: &[&str]) -> Result<usize, Error> {
    let hosts = TwoHosts::new(&TwoHostsParams::default()).map_err(unless_missing)?;
    let mut command = Command::new(program);
    command.arg(&hosts.near[0].name).args(arguments);
    // A child is where the thread is that starts it.
    let mut example = Example(hosts.run_between(move || command.spawn())?);
    let (socket, macs) = (FrameSocket::of(&hosts.a)?, [mac(&hosts.a.link)?, mac(&hosts.near[0])?]);
    let (mut answered, mut number, mut last) = ([BTreeSet::new(), BTreeSet::new()], 0, Instant::now());
    while answered[0].len() < ANSWERS {
        if let Some(status) = example.0.try_wait()? {
            return Err(format!("the example ended: {status}").into());
        }
        if last.elapsed() > PATIENCE {
            return Err(format!("{} of {ANSWERS} packets were answered", answered[0].len()).into());
        }
        // Not answered before the example has opened its device, and lost where there is no room.
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

fn unless_missing(error: LinkError) -> Error {
    if error.is_permission() { Missing(error.to_string()).into() } else { error.into() }
}

fn mac(link: &LinkInfo) -> Result<Mac, Error> {
    link.mac.ok_or_else(|| format!("{} has a MAC address", link.name).into())
}

/// The packet with a number: even ones go to port 7, odd ones to port 9.
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

/// The number of the next packet that was answered; an error for one that is no answer.
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
        return Err(format!("{packet:02x?} is no answer").into());
    }
    Ok(Some(number))
}
