//! `vhost_net:NAME`: pairs of virtio queues, with the kernel and a TAP behind them.

use std::sync::Arc;

use pagepool::{Arena, Error};
use pagepool_link::Tap;

use super::open_params::OpenParams;
use super::opened_device::OpenedDevice;
use super::queues::Queues;
use super::vhost::{Pairs, open_each};
use crate::device::device::{HEADERS, VLAN_TAG};
use crate::error::{parameter, within};
use crate::interface::lookup;
use crate::vhost::vhost_net::VhostNet;

const KIND: &str = "vhost_net";
/// The most queues of a TAP.
const MAX_QUEUES: u32 = 256;

pub(super) fn open(
    names: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    open_each(names, params, arena, |queues| pairs(queues, params))
}

fn pairs<'a>(queues: &Queues<'a>, params: &OpenParams) -> Result<Pairs<'a>, Error> {
    let (name, numbers) = (format!("{KIND}:{}", queues.argument), queues.numbers);
    numbers.iter().try_for_each(|&number| within("queue", number, 0..=MAX_QUEUES - 1))?;
    let back_end = VhostNet::new(&name, numbers, taps(queues, params)?)?;
    let mtu = back_end.link().mtu as usize;
    let (back_end, later, max_packet) = (Box::new(back_end), false, mtu + HEADERS + VLAN_TAG);
    Ok(Pairs { name, kind: KIND, numbers, back_end, later, max_packet, mtu })
}

/// A queue of the TAP for each pair: those that the caller opened, or new ones.
fn taps(queues: &Queues<'_>, params: &OpenParams) -> Result<Vec<Arc<Tap>>, Error> {
    let (name, count) = (queues.argument, queues.numbers.len());
    let open: Vec<_> = params.taps.iter().filter(|tap| tap.name() == name).cloned().collect();
    if open.is_empty() {
        let taps = Tap::open_with_header(name, count).map_err(lookup::system)?;
        return Ok(taps.into_iter().map(Arc::new).collect());
    }
    match open.len() == count && open.iter().all(|tap| tap.has_header()) {
        true => Ok(open),
        false => {
            let must_be = format!("{count} queues of {name}, opened by `Tap::open_with_header`");
            Err(parameter("taps", format!("{} queues of it", open.len()), must_be))
        }
    }
}
