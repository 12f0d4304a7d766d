//! Entries of the receive and transmit rings.

/// Linux: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) options: u32,
}

impl Descriptor {
    #[inline(always)]
    pub(crate) fn place(self) -> (u64, u32) {
        (self.addr, self.len)
    }

    #[inline(always)]
    pub(crate) fn to_words(self) -> [u64; 2] {
        let ([a, b, c, d], [e, f, g, h]) = (self.len.to_ne_bytes(), self.options.to_ne_bytes());
        [self.addr, u64::from_ne_bytes([a, b, c, d, e, f, g, h])]
    }

    #[inline(always)]
    pub(crate) fn of_words([addr, rest]: [u64; 2]) -> Self {
        let [a, b, c, d, e, f, g, h] = rest.to_ne_bytes();
        Self { addr, len: u32::from_ne_bytes([a, b, c, d]), options: u32::from_ne_bytes([e, f, g, h]) }
    }
}
