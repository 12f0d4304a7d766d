//! A socket without its queue, which another socket may still have.
//!
//! What   the rings, the BPF program that sends, the UMEM's registration. Making them takes milliseconds and
//!        can fail; binding then takes one call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use pagepool::Error;
use pagepool_link::LinkInfo;

use crate::error::parameter;
use crate::interface::lookup;
use crate::sys::remedy::{failed, failed_unless};
use crate::sys::{capability, errno, socket};
use crate::xsk::bpf_batch::BpfBatch;
use crate::xsk::params::{BusyPoll, XskMode, XskParams};
use crate::xsk::queue::{Queue, check_queue};
use crate::xsk::receiver::RxRings;
use crate::xsk::sender::TxRings;
use crate::xsk::sys::ring::{Consumer, Producer};
use crate::xsk::sys::socket::{self as sys, Mapped, Ring};
use crate::xsk::umem::Umem;

/// Bytes of sent packets that may wait in the kernel, per slot.
const SEND_BUFFER_PER_SLOT: u32 = 4096;

#[derive(Debug)]
pub(crate) struct UnboundSocket {
    pub(super) params: XskParams,
    pub(super) umem: Arc<Umem>,
    /// Before the socket, which the kernel keeps while its rings are mapped.
    pub(super) rx: RxRings,
    pub(super) tx: TxRings,
    pub(super) fd: Arc<OwnedFd>,
    /// Whether the UMEM is registered with this socket.
    has_memory: bool,
    pub(super) queue: Queue,
    pub(super) link: LinkInfo,
    /// Number of buffers for the kernel.
    pub(super) buffers: u32,
    /// The BPF program that sends, or why none does.
    pub(super) batch: Option<BpfBatch>,
    pub(super) why_ring: Option<String>,
}

impl UnboundSocket {
    /// Makes a socket for a queue of an interface in this thread's network namespace, of which it takes
    /// nothing.
    pub(crate) fn make(mut params: XskParams, umem: &Arc<Umem>) -> Result<Self, Error> {
        params.check()?;
        let link = lookup::look_up(&params.interface)?;
        params.interface.clone_from(&link.name); // it may be an alternative name
        check_queue(&params.interface, params.queue, lookup::channels(&params.interface))?;
        let (fd, has_memory) = umem.take_socket()?;
        let buffers = rx_buffers(&params, umem)?;
        let (rx, tx) = make_rings(fd.as_fd(), &params, buffers)?;
        // A full ring exceeds the default send buffer, at which the kernel would stop sending.
        sys::raise_send_buffer(fd.as_fd(), params.tx_ring.saturating_mul(SEND_BUFFER_PER_SLOT));
        let _ = sys::raise_transmit_budget(fd.as_fd(), params.tx_ring); // on failure, a call sends less
        params.busy_poll.map_or(Ok(()), |busy| set_busy_poll(fd.as_fd(), busy))?;
        let fd = Arc::new(fd);
        let queue =
            Queue { namespace: socket::namespace(fd.as_fd()), index: link.index, number: params.queue };
        let (batch, why_ring) = BpfBatch::choose(&params, umem, queue, &link)?;
        let umem = umem.clone();
        Ok(Self { params, umem, rx, tx, fd, has_memory, queue, link, buffers, batch, why_ring })
    }

    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.params.interface, self.params.queue)
    }

    /// Binds the socket; tries again while the queue is busy.
    pub(super) fn bind(&self) -> Result<(), Error> {
        self.umem.bind(&self.fd, self.has_memory, self.queue, &self.params)
    }
}

/// Number of buffers for the kernel.
fn rx_buffers(params: &XskParams, umem: &Umem) -> Result<u32, Error> {
    let hardware = match umem.params().mode {
        XskMode::Copy => 0,
        _ => lookup::hardware_ring(&params.interface),
    };
    let buffers =
        if params.rx_buffers == 0 { params.rx_ring.saturating_add(hardware) } else { params.rx_buffers };
    let chunks = umem.layout().pages();
    if buffers as usize > chunks {
        let must_be = format!("at most the UMEM's {chunks} chunks");
        return Err(parameter("rx_buffers", buffers, must_be));
    }
    Ok(buffers)
}

fn set_busy_poll(fd: BorrowedFd<'_>, BusyPoll { micros, budget }: BusyPoll) -> Result<(), Error> {
    sys::set_busy_poll(fd, micros, budget).map_err(|(call, source)| {
        let own = match source.raw_os_error() {
            Some(errno::EPERM) => Some(format!(
                "{}; busy polling requires it, as does a budget of {budget} packets (more than the \
                 kernel's 8)",
                capability::remedy(capability::ADMIN)
            )),
            Some(errno::ENOPROTOOPT) => Some(
                "busy polling of AF_XDP requires Linux 5.11, with CONFIG_NET_RX_BUSY_POLL: leave busy_poll \
                 off"
                .into(),
            ),
            _ => None,
        };
        let known = format!(
            "the kernel refuses {micros} microseconds with a budget of {budget} packets: leave busy_poll off"
        );
        failed_unless(own, call, source, known)
    })
}

fn make_rings(fd: BorrowedFd<'_>, params: &XskParams, buffers: u32) -> Result<(RxRings, TxRings), Error> {
    let ring = |ring, entries| -> Result<Mapped, Error> {
        let sized = sys::set_ring_size(fd, ring, entries).map_err(|error| ("setsockopt(AF_XDP ring)", error));
        sized.and_then(|()| Mapped::new(fd, ring, entries)).map_err(|(call, source)| {
            let remedy = format!("the kernel did not create a ring of {entries} entries: use a smaller one");
            failed(call, source, remedy)
        })
    };
    // Twice as many: the kernel moves its index late, and no buffer must wait for that.
    let fill = 2 * buffers.next_power_of_two();
    let (rx, tx) = (params.rx_ring, params.tx_ring);
    let (fill, received) = (Producer::new(ring(Ring::Fill, fill)?, fill), ring(Ring::Receive, rx)?);
    let (send, done) = (ring(Ring::Transmit, tx)?, ring(Ring::Completion, tx)?);
    let rx = RxRings { fill, received: Consumer::new(received, rx) };
    Ok((rx, TxRings { send: Producer::new(send, tx), done: Consumer::new(done, tx) }))
}
