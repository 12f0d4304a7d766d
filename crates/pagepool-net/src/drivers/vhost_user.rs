//! `vhost_user:PATH[,server=1]`: pairs of virtio queues, with a switch behind them.

use std::path::Path;
use std::sync::Arc;

use pagepool::{Arena, Error};

use super::open_params::OpenParams;
use super::opened_device::OpenedDevice;
use super::queues::{Queues, without_options};
use super::vhost::{Pairs, open_each, pairs_up_to_last};
use crate::device::device::HEADERS;
use crate::error::{parameter, within};
use crate::vhost::vhost_user::VhostUser;

const KIND: &str = "vhost_user";
/// The longest packet, unless a single buffer is shorter: a jumbo frame with its header and check sequence.
const MAX_PACKET: usize = 9018;
/// Messages number queues by 8 bits, two for each pair.
const LAST_PAIR: u32 = 127;

pub(super) fn open(
    sockets: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    open_each(sockets, params, arena, |queues| pairs(queues, arena))
}

fn pairs<'a>(queues: &Queues<'a>, arena: &Arena) -> Result<Pairs<'a>, Error> {
    let (path, later) = parse(queues.argument)?;
    let (name, numbers) = (format!("{KIND}:{path}"), queues.numbers);
    numbers.iter().try_for_each(|&number| within("queue", number, 0..=LAST_PAIR))?;
    if arena.memfd().is_none() {
        let what = format!("the memory of {name} must be a memfd: open the arena with `Backing::Memfd`");
        return Err(Error::Unsupported { what });
    }
    let back_end = VhostUser::new(&name, Path::new(path), later, pairs_up_to_last(numbers)?)?;
    let (back_end, mtu) = (Box::new(back_end), MAX_PACKET - HEADERS);
    Ok(Pairs { name, kind: KIND, numbers, back_end, later, max_packet: MAX_PACKET, mtu })
}

/// The path, and whether this process listens.
fn parse(argument: &str) -> Result<(&str, bool), Error> {
    let path = without_options(argument);
    if path.is_empty() {
        return Err(parameter("device", format!("{KIND}:{argument}"), format!("{KIND}:PATH of a socket")));
    }
    match &argument[path.len()..] {
        "" | ",server=0" => Ok((path, false)),
        ",server=1" => Ok((path, true)),
        other => {
            let must_be = "server=1 to listen, or server=0 to connect; a path has no comma";
            Err(parameter("the option", &other[1..], must_be))
        }
    }
}
