//! The XDP program: UDP packets to port 7 go to the socket of their queue, all others to the kernel.

#![no_std]
#![no_main]

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::macros::{map, xdp};
use aya_ebpf::maps::XskMap;
use aya_ebpf::programs::XdpContext;

/// A socket for each queue of the interface.
#[map]
static SOCKETS: XskMap = XskMap::with_max_entries(64, 0);

#[xdp]
pub fn udp_port_7(packet: XdpContext) -> u32 {
    if !is_ours(&packet) {
        return XDP_PASS;
    }
    // SAFETY: the kernel passes a context that is valid while the program runs.
    let queue = unsafe { (*packet.ctx).rx_queue_index };
    // A queue without a socket leaves its packets to the kernel.
    SOCKETS.redirect(queue, XDP_PASS.into()).unwrap_or_else(|action| action)
}

/// An unfragmented IPv4 packet without options, to UDP port 7.
fn is_ours(packet: &XdpContext) -> bool {
    let begin = packet.data();
    if begin + 38 > packet.data_end() {
        return false;
    }
    // SAFETY: the packet contains that many bytes: the verifier demands the check.
    let bytes = unsafe { &*(begin as *const [u8; 38]) };
    bytes[12..14] == [8, 0]
        && bytes[14] == 0x45
        && (bytes[20] & 0x3f, bytes[21]) == (0, 0)
        && bytes[23] == 17
        && bytes[36..38] == [0, 7]
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// The kernel allows some helper functions only to programs with a GPL-compatible license.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
