//! A peer: a process in a host's network namespace that sends numbered frames at full speed, and checks those
//! that arrive. The fault injector starts it, with the counter file as standard input; the peer ends with it.

use std::error::Error as _;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pagepool_lab::{FrameBatch, FrameSocket};
use pagepool_link::{LinkError, Mac};
use pagepool_net::NumberedFrames;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU};
use signal_hook::flag;

use crate::arrivals::{Arrivals, LIFE_SHIFT};
use crate::counts::{CountsFile, Order, PeerCounts};
use crate::sys;

const BURST: usize = 64;
const ROOM: usize = 2048;
/// The longest sleep when nothing can be sent or received.
const NAP: Duration = Duration::from_micros(100);

/// The options of a peer.
#[derive(Args, Clone, Debug)]
pub struct PeerParams {
    /// The interface.
    #[arg(long)]
    pub link: String,
    /// How many processes ran before this one: the upper bits of its numbers.
    #[arg(long)]
    pub life: u64,
    /// Bytes of each frame.
    #[arg(long)]
    pub size: usize,
    /// The source MAC address, as a number.
    #[arg(long)]
    pub from: u64,
    /// The destination MAC address, as a number.
    #[arg(long)]
    pub to: u64,
    /// The parent process: the peer ends when it does.
    #[arg(long)]
    pub parent: u32,
}

pub fn number_of(mac: Mac) -> u64 {
    mac.0.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn mac_of(number: u64) -> Mac {
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    Mac([a, b, c, d, e, f])
}

/// Leaves these signals to the process that started this one: a service manager and `pkill` send them to
/// both. So does the kernel, if both have the same limit on CPU time.
fn leave_to_parent() -> Result<(), String> {
    let all = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU];
    let left = all.into_iter().try_for_each(|signal| flag::register(signal, Arc::default()).map(drop));
    left.map_err(|error| format!("cannot handle signals: {error}"))
}

pub fn run(task: &PeerParams) -> Result<ExitCode, String> {
    leave_to_parent()?;
    let stays = sys::die_with(task.parent).map_err(|error| format!("prctl(PR_SET_PDEATHSIG): {error}"))?;
    if !stays {
        return Ok(ExitCode::SUCCESS); // the parent ended before prctl
    }
    let input = io::stdin().as_fd().try_clone_to_owned();
    let record = CountsFile::over(File::from(input.map_err(|error| format!("standard input: {error}"))?));
    let mut peer = Peer::new(task)?;
    peer.work(&record)
}

pub fn counter_file(error: io::Error) -> String {
    format!("the counter file of the peer: {error}")
}

struct Peer {
    socket: FrameSocket,
    frames: NumberedFrames,
    next: u64,
    bytes: Vec<u8>,
    received: FrameBatch,
    arrivals: Arrivals,
    counts: PeerCounts,
}

impl Peer {
    fn new(task: &PeerParams) -> Result<Self, String> {
        let frames = NumberedFrames::new(mac_of(task.from), mac_of(task.to), task.size);
        Ok(Self {
            socket: FrameSocket::open_here(&task.link).map_err(|error| error.to_string())?,
            frames: frames.map_err(|error| error.to_string())?,
            next: task.life << LIFE_SHIFT,
            bytes: vec![0; BURST * task.size],
            received: FrameBatch::new(ROOM),
            arrivals: Arrivals::new(),
            counts: PeerCounts::default(),
        })
    }

    fn work(&mut self, record: &CountsFile) -> Result<ExitCode, String> {
        loop {
            let order = record.order().map_err(counter_file)?;
            if order == Order::End {
                return Ok(ExitCode::SUCCESS);
            }
            let mut moved = 0;
            if order == Order::Send {
                self.counts.begun = self.counts.sent + BURST as u64;
                record.write(&self.counts).map_err(counter_file)?;
                moved += self.send().map_err(|error| error.to_string())?;
            }
            moved += self.receive().map_err(|error| error.to_string())?;
            self.counts.begun = self.counts.sent;
            record.write(&self.counts).map_err(counter_file)?;
            if moved == 0 {
                self.socket.wait(NAP);
            }
        }
    }

    /// Sends as much of a burst as the socket takes; the rest follows next.
    fn send(&mut self) -> Result<usize, LinkError> {
        let frames = self.bytes.chunks_exact_mut(self.frames.size());
        frames.zip(self.next..).for_each(|(frame, number)| self.frames.write(number, frame));
        let sent = match self.socket.send_many(&self.bytes, self.frames.size()) {
            Err(error) if is_down(&error) => {
                self.counts.down += 1;
                return Ok(0);
            }
            sent => sent?,
        };
        self.counts.sent += sent as u64;
        self.next += sent as u64;
        Ok(sent)
    }

    /// Receives at most twice as many frames as it sends, against a backlog.
    fn receive(&mut self) -> Result<usize, LinkError> {
        let mut all = 0;
        for _ in 0..2 {
            let got = match self.socket.receive_many(&mut self.received) {
                Err(error) if is_down(&error) => 0,
                got => got?,
            };
            let Self { received, arrivals, counts, .. } = self;
            received.frames().for_each(|frame| arrivals.take(frame, counts));
            all += got;
            if got < BURST {
                break;
            }
        }
        Ok(all)
    }
}

/// Whether the interface is down, which is temporary.
fn is_down(error: &LinkError) -> bool {
    let errno = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    errno.is_some_and(|errno| errno.kind() == io::ErrorKind::NetworkDown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_number_and_back() {
        let mac = Mac([2, 0x70, 0x70, 0, 1, 255]);
        assert_eq!(mac_of(number_of(mac)), mac);
    }
}
