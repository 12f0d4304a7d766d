//! Watches the vhost back ends of a run: whether they are there.
//!
//! What  While there is no back end, no packets move: the user is warned, and again when there is one. A
//!       device without a back end has no buffers on its rings, so the threads' counts say that. The device
//!       connects by itself.

use std::time::Duration;

use crate::report::output;
use crate::traffic::figures::QueueName;
use crate::traffic::sockets::OpenedInterface;
use crate::traffic::{PortSample, SharedState};

/// The time between two looks.
const EVERY: Duration = Duration::from_millis(200);

pub struct BackEndWatch {
    back_ends: Vec<WatchedBackEnd>,
    looked: Duration,
}

#[derive(Debug)]
struct WatchedBackEnd {
    /// The name of its device.
    name: String,
    /// The numbers of its ports among all samples.
    ports: Vec<usize>,
    is_there: bool,
    /// How often its queues were lost.
    lost: u64,
}

/// What changed between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Came,
    Went,
    Restarted,
}

impl BackEndWatch {
    /// `names`: those of the ports, in the order of their samples. Warns if a back end has not come yet.
    pub fn new(interfaces: &[OpenedInterface], names: &[QueueName], ports: &[PortSample]) -> Self {
        let of = |device: &&OpenedInterface| {
            let all = names.iter().enumerate().filter(|(_, name)| name.interface == device.name);
            let (name, all) = (device.name.clone(), all.map(|(number, _)| number).collect());
            let mut back_end = WatchedBackEnd { name, ports: all, is_there: false, lost: 0 };
            if back_end.change(ports).is_none() {
                output::warn(format_args!(
                    "no back end has connected to {}: no packets move until one does",
                    back_end.name
                ));
            }
            back_end
        };
        let back_ends = interfaces.iter().filter(|device| device.has_back_end()).map(|device| of(&device));
        Self { back_ends: back_ends.collect(), looked: Duration::ZERO }
    }

    /// Looks, if it is time.
    pub fn look(&mut self, at: Duration, state: &SharedState) {
        if at < self.looked + EVERY || self.back_ends.is_empty() {
            return;
        }
        self.looked = at;
        let ports = state.sample().ports;
        for back_end in &mut self.back_ends {
            let (change, name) = (back_end.change(&ports), &back_end.name);
            match change {
                None => {}
                Some(Change::Came) => output::note(format_args!("the back end of {name} is connected")),
                Some(Change::Restarted) => output::note(format_args!(
                    "the back end of {name} closed the connection, and is connected again"
                )),
                Some(Change::Went) => output::warn(format_args!(
                    "the back end of {name} is gone: no packets move until one is connected again"
                )),
            }
        }
    }
}

/// Whether a device has a back end: then it has buffers on its rings, unless its pool is empty.
fn has_back_end(port: &PortSample) -> bool {
    let pages = &port.pool.1;
    port.nic.in_rx > 0 || pages.cache + pages.lanes + pages.ring == 0
}

impl WatchedBackEnd {
    fn change(&mut self, all: &[PortSample]) -> Option<Change> {
        let ports = || self.ports.iter().filter_map(|&port| all.get(port));
        let is_there = ports().all(has_back_end);
        let lost = ports().map(|port| port.nic.link_lost).sum();
        let (was_there, lost_before) = (self.is_there, self.lost);
        (self.is_there, self.lost) = (is_there, lost);
        match (was_there, is_there) {
            (false, true) => Some(Change::Came),
            (true, false) => Some(Change::Went),
            (true, true) if lost > lost_before => Some(Change::Restarted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_end_goes_comes_and_restarts() {
        let mut of = WatchedBackEnd { name: "x".into(), ports: vec![1, 2], is_there: false, lost: 0 };
        let mut look = |in_rx: u64, lost: u64| {
            let mut ports = [PortSample::default(); 4];
            (ports[0].nic.link_lost, ports[0].pool.1.ring) = (7, 7); // of another device
            (ports[2].nic.in_rx, ports[2].pool.1.ring, ports[1].nic.link_lost) = (in_rx, 7, lost);
            ports[1].nic.in_rx = 7; // its thread has not noticed the loss yet
            of.change(&ports)
        };
        assert_eq!([look(0, 0), look(5, 0), look(9, 0)], [None, Some(Change::Came), None]);
        assert_eq!([look(0, 1), look(0, 1), look(5, 1)], [Some(Change::Went), None, Some(Change::Came)]);
        assert_eq!([look(5, 2), look(5, 2)], [Some(Change::Restarted), None], "between two looks");
        let mut empty = PortSample::default();
        assert!(has_back_end(&empty), "its pool has no page for it");
        empty.pool.1.cache = 1;
        assert!(!has_back_end(&empty));
    }
}
