//! Sets the queues over which a card spreads flows (RSS), for a while, and restores them.

use super::claim::Claim;
use crate::error::LinkError;
use crate::ethtool::Ethtool;
use crate::link_info::LinkInfo;
use crate::netlink::Netlink;
use crate::shell_word::shell_word;

/// A card that spreads flows over some of its queues until this is dropped, which restores the table.
///
/// Packets without a hash (ARP, for example) keep their queue, usually queue 0. A table that another program
/// set in between is not restored. Only one per card: a second one is refused, in other processes too. A
/// renamed link is found again. A process that is killed, or aborts, restores nothing: [`undo`](Self::undo)
/// returns the command to do it by hand.
///
/// ```no_run
/// // It changes a card of the machine that runs this.
/// use pagepool_link::{HeldFlowSpread, Netlink};
/// let link = Netlink::open()?.link("eth0")?;
/// let mut held = HeldFlowSpread::over(&link, &[2, 3])?;
/// eprintln!("if this process is killed: {}", held.undo());
/// held.restore()?;
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct HeldFlowSpread {
    netlink: Netlink,
    ethtool: Ethtool,
    link: LinkInfo,
    before: Vec<u32>,
    /// Empty if the table was restored, or never changed.
    held: Vec<u32>,
    /// Queues that receive.
    queues: u32,
    _claim: Claim,
}

impl HeldFlowSpread {
    /// Checks that this link of the calling thread's namespace has a table, and that no process spreads its
    /// flows; the error names the process. [`over`](Self::over) checks this, too; call this to know it
    /// before.
    ///
    /// ```
    /// use pagepool_link::{HeldFlowSpread, LinkError, Netlink};
    /// let link = Netlink::open()?.link("lo")?;
    /// let refused = HeldFlowSpread::check(&link).expect_err("lo has no table");
    /// assert!(matches!(refused, LinkError::NoIndirection { .. }));
    /// # Ok::<(), LinkError>(())
    /// ```
    pub fn check(link: &LinkInfo) -> Result<(), LinkError> {
        Claim::is_free(link)?;
        table(&Ethtool::open()?, link).map(drop)
    }

    /// Spreads the flows of a link of the calling thread's namespace evenly over these queues. Fails, and
    /// changes nothing, if another one exists for this card, or if the card has no table, or lacks one of the
    /// queues.
    pub fn over(link: &LinkInfo, queues: &[u32]) -> Result<Self, LinkError> {
        let (netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
        table(&ethtool, link)?;
        let claim = Claim::take(link)?; // only now can no other process change the table
        let before = table(&ethtool, link)?;
        let there = ethtool.channels(&link.name)?.map_or(link.rx_queues, |channels| channels.rx);
        if queues.is_empty() || queues.iter().any(|&queue| queue >= there) {
            let value = format!("{queues:?} of {there}");
            return Err(LinkError::OutOfRange { field: "queues", value, range: "queues of the card" });
        }
        let mut held: Vec<u32> = queues.iter().copied().cycle().take(before.len()).collect();
        if held == before {
            held.clear();
        } else {
            ethtool.set_indirection(&link.name, &held)?;
        }
        Ok(Self { netlink, ethtool, link: link.clone(), before, held, queues: there, _claim: claim })
    }

    /// The command that restores the table by hand, with the link's current name. If no single command can
    /// restore it, this one sets an even spread over all queues.
    pub fn undo(&mut self) -> String {
        let how = match (even(&self.before), weights(&self.before)) {
            (Some((first, count)), _) if (first, count) != (0, self.queues) => {
                format!("start {first} equal {count}")
            }
            (None, Some(weights)) => {
                let weights: Vec<_> = weights.iter().map(usize::to_string).collect();
                format!("weight {}", weights.join(" "))
            }
            _ => "default".into(),
        };
        format!("ethtool -X {} {how}", shell_word(&self.netlink.name_now(&self.link)))
    }

    /// Restores the table now. A link that was removed is no error.
    pub fn restore(mut self) -> Result<(), LinkError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), LinkError> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        let Some(link) = self.netlink.link_at(self.link.index)? else { return Ok(()) };
        if self.ethtool.indirection(&link.name)?.is_none_or(|now| now != held) {
            return Ok(());
        }
        // Restored as the driver's default, not entry by entry: it then follows later changes of the number
        // of queues.
        let is_default = even(&self.before) == Some((0, self.queues));
        let default = is_default.then(|| self.ethtool.set_indirection(&link.name, &[]));
        match default {
            Some(Ok(())) => Ok(()),
            _ => self.ethtool.set_indirection(&link.name, &self.before),
        }
    }
}

impl Drop for HeldFlowSpread {
    fn drop(&mut self) {
        let _ = self.put_back(); // `restore` reports errors
    }
}

/// The table of a card; fails if it has none.
fn table(ethtool: &Ethtool, link: &LinkInfo) -> Result<Vec<u32>, LinkError> {
    ethtool.indirection(&link.name)?.ok_or_else(|| LinkError::NoIndirection { link: link.name.clone() })
}

/// The first queue and the number of queues, if the spread is even.
fn even(table: &[u32]) -> Option<(u32, u32)> {
    let first = *table.first()?;
    let count = table.iter().max()?.checked_sub(first)? + 1;
    let spread = (first..).take(count as usize).cycle();
    table.iter().copied().eq(spread.take(table.len())).then_some((first, count))
}

/// The number of entries of each queue, if they are grouped in the order of the queues.
fn weights(table: &[u32]) -> Option<Vec<usize>> {
    let last = *table.last()?;
    let count = |queue| table.iter().filter(|&&of| of == queue).count();
    table.is_sorted().then(|| (0..=last).map(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_spread_is_recognised() {
        assert_eq!(even(&[0, 1, 2, 0, 1, 2, 0, 1]), Some((0, 3)));
        assert_eq!((even(&[2, 3, 2, 3]), even(&[5, 5])), (Some((2, 2)), Some((5, 1))));
        assert_eq!([&[][..], &[0, 0, 1, 1], &[1, 0], &[0, 2]].map(even), [None; 4]);
    }

    #[test]
    fn queues_whose_entries_are_together_have_weights() {
        assert_eq!(weights(&[0, 0, 1, 1]), Some(vec![2, 2]));
        assert_eq!((weights(&[2, 3, 3]), weights(&[1, 0])), (Some(vec![0, 0, 1, 2]), None));
    }

    #[test]
    fn a_link_without_a_table_is_said_to_be_one() {
        let link = Netlink::open().unwrap().link("lo").unwrap();
        let refused = HeldFlowSpread::over(&link, &[0]).unwrap_err();
        assert!(matches!(refused, LinkError::NoIndirection { .. }), "{refused}");
        assert!(refused.to_string().contains("`ethtool -x lo` shows"), "{refused}");
    }
}
