//! The queues to open of one device.

/// Queues of a device whose name was found in the table.
#[derive(Clone, Copy, Debug)]
pub struct Queues<'a> {
    /// The part of the name after the colon.
    pub argument: &'a str,
    /// The numbers of its queues.
    pub numbers: &'a [u32],
}
