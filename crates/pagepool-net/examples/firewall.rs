//! Drops what a source address sends above a rate, and passes the rest on to the kernel. A flood from one
//! address does not disturb an ssh session from another one. It sees queue 0 of the interface.
//!
//! ```sh
//! cargo build -p pagepool-net --example firewall && sudo target/debug/examples/firewall eth1 1000
//! ```

use pagepool_net::{Action, Forwarder, KernelStack, XskDevice};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};
use std::{net::IpAddr, sync::atomic::AtomicBool};

/// A bucket holds the tokens of one second.
const FULL: Duration = Duration::from_secs(1);

/// The token bucket of a source address, and when it will be full.
type Bucket = (Option<IpAddr>, Duration);

/// Takes a token from the source's bucket, which is in this row. Returns whether there was one. A new source
/// gets the fullest bucket; the source that loses it also loses its debt.
fn take(row: &mut [Bucket; 8], source: IpAddr, now: Duration, token: Duration) -> bool {
    let (owner, full_at) =
        row.iter_mut().min_by_key(|(owner, full_at)| (*owner != Some(source), *full_at)).expect("8 buckets");
    if owner.replace(source) != Some(source) {
        *full_at = now;
    }
    let after = now.max(*full_at) + token;
    let has_token = after <= now + FULL;
    if has_token {
        *full_at = after;
    }
    has_token
}

/// The source address of an IP packet.
fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.get(12..14)? {
        [0x08, 0x00] => Some(IpAddr::from(*packet.get(26..)?.first_chunk::<4>()?)),
        [0x86, 0xdd] => Some(IpAddr::from(*packet.get(22..)?.first_chunk::<16>()?)),
        _ => None,
    }
}

/// Runs until Ctrl-C, or until the interface is gone.
pub fn main() -> Result<(), pagepool::Error> {
    let (interface, rate) = (std::env::args().nth(1).unwrap_or_default(), std::env::args().nth(2));
    let token = FULL / rate.and_then(|rate| rate.parse().ok()).unwrap_or(1000).max(1);
    let (mut rows, hasher, start) = (vec![[(None, FULL); 8]; 1024], RandomState::new(), Instant::now());
    let (device, pool) = XskDevice::simple(&interface, 0)?;
    let verdict = move |packet: &mut pagepool::XdpBuff, _| match source(packet.data()) {
        Some(source) => {
            let row = &mut rows[hasher.hash_one(source) as usize % 1024]; // a hash that nobody can foresee
            if take(row, source, start.elapsed(), token) { Action::Pass } else { Action::Drop }
        }
        None => Action::Pass, // not IP, or with a VLAN tag
    };
    let mut forwarder = Forwarder::with_stack(verdict, KernelStack::new(&interface)?);
    forwarder.add_port(device, pool);
    forwarder.run(&AtomicBool::new(false))
}
