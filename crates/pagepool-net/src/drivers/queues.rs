//! What to open of one device.

/// Queues of a device whose name was found in the table.
#[derive(Clone, Copy, Debug)]
pub struct Queues<'a> {
    /// What followed the colon.
    pub argument: &'a str,
    /// Which of its queues.
    pub numbers: &'a [u32],
}
