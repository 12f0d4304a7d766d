//! A device whose packets lie in memory of their own, for comparison: one allocation and one copy each.

use smoltcp::phy::{self, DeviceCapabilities, RxToken as _};
use smoltcp::time::Instant;

use crate::nic::{Gone, Nic};

/// Copies each packet of a device to and from a `Vec`.
pub struct OwnMemory<N>(pub N);

/// A received packet.
pub struct RxToken(Vec<u8>);

impl phy::RxToken for RxToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

/// Room for a packet.
pub struct TxToken<T>(T);

impl<T: phy::TxToken> phy::TxToken for TxToken<T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut bytes = vec![0; len];
        let result = write(&mut bytes);
        self.0.consume(len, |page| page.copy_from_slice(&bytes));
        result
    }
}

impl<N: phy::Device + 'static> phy::Device for OwnMemory<N> {
    type RxToken<'a> = RxToken;
    type TxToken<'a> = TxToken<N::TxToken<'a>>;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let (received, token) = self.0.receive(now)?;
        Some((RxToken(received.consume(<[u8]>::to_vec)), TxToken(token)))
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        self.0.transmit(now).map(TxToken)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.0.capabilities()
    }
}

impl<N: Nic + 'static> Nic for OwnMemory<N> {
    fn turn(&mut self) -> usize {
        self.0.turn()
    }

    fn wait(&mut self, timeout: std::time::Duration) -> Result<(), Gone> {
        self.0.wait(timeout)
    }
}
