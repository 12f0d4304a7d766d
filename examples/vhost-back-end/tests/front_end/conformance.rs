//! The conformance suite for devices. The test moves each packet of the back end itself.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use pagepool_lab::TempFolder;
use pagepool_net::{OpenParams, open_device};
use pagepool_testing::{Allowed, FarEnd, Rig, conformance_device};
use pagepool_vhost_back_end::{BackEnd, FEATURES, Mode, Params, QueuePair};

use crate::{LIMIT, arena, place, short_rings};

/// The other end of the device. It is gone once it is dropped.
struct Wire {
    pair: Arc<QueuePair>,
    _back_end: BackEnd,
    _folder: Rc<TempFolder>,
    met: bool,
    stalled: bool,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("counts", &self.pair.counts()).finish_non_exhaustive()
    }
}

impl FarEnd for Wire {
    fn send(&mut self, packet: &[u8]) -> bool {
        self.settle();
        self.pair.put(packet)
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> bool {
        self.settle();
        !self.stalled && self.pair.take(packet)
    }

    /// The front end may be open before the back end has read all its messages.
    fn settle(&mut self) {
        self.met = self.met || self.pair.wait(LIMIT, |connected, _| connected);
        assert!(self.met, "no front end connects");
    }

    fn stall(&mut self, on: bool) -> bool {
        self.stalled = on;
        true
    }

    fn lost(&self) -> Option<u64> {
        Some(self.pair.counts().lost)
    }
}

fn keeps_the_rules(features: u64, params: &OpenParams) {
    conformance_device(|| {
        let (folder, socket) = place();
        let params_of_back_end = Params { features, ..Params::new(&socket, Mode::Manual) };
        let back_end = BackEnd::start(params_of_back_end).unwrap();
        let provider = arena();
        let opened = open_device(&format!("vhost_user:{}", socket.display()), params, &provider).unwrap();
        let (device, pool) = (opened.device, opened.pool.bind());
        let (pair, folder) = (back_end.pair(0), Rc::new(folder));
        let pair_of_wire = pair.clone();
        let far = Box::new(Wire {
            pair: pair_of_wire,
            _back_end: back_end,
            _folder: folder,
            met: false,
            stalled: false,
        });
        let verify = Box::new(move || assert_eq!(pair.counts().bad, 0, "the front end broke a rule"));
        Rig { device, far, pool, provider, allowed: Allowed::default(), verify }
    });
}

#[test]
fn it_keeps_the_rules_of_devices() {
    keeps_the_rules(FEATURES, &OpenParams { multi_buffer: false, ..short_rings() });
}

#[test]
fn it_keeps_them_with_packets_of_several_buffers() {
    keeps_the_rules(FEATURES, &short_rings());
}

#[test]
fn it_keeps_them_without_features() {
    keeps_the_rules(0, &OpenParams { multi_buffer: false, ..short_rings() });
}
