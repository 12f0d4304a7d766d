//! Makes cards spread flows over only the queues of a command, while it runs.

use pagepool_link::{HeldFlowSpread, LinkError, LinkInfo};

use crate::report::{OWN_LINE, error_chain, output, ranges};
use crate::traffic::sockets::Interface;

/// The changed flow tables. Dropping it restores them, and warns if that fails.
pub struct FlowSpread(Vec<HeldFlowSpread>);

impl FlowSpread {
    /// Refuses an interface that has no flow table, or whose table another run holds. Call it before anything
    /// is opened.
    pub fn check(interfaces: &[Interface]) -> Result<(), String> {
        let mut links = interfaces.iter().filter_map(|interface| interface.link.as_ref());
        links.try_for_each(HeldFlowSpread::check).map_err(|error| refused(&error))
    }

    /// Spreads flows over the used queues of each interface. After an error all tables are as before.
    pub fn over(interfaces: &[Interface]) -> Result<Self, String> {
        let with_link = |of: &'_ Interface| Some((of.link.clone()?, of.queues.clone()));
        let hold = |(link, queues): (LinkInfo, Vec<u32>)| {
            let held = HeldFlowSpread::over(&link, &queues);
            let mut held = held.map_err(|error| refused(&error))?;
            output::note(format_args!(
                "{} spreads flows over its queues {} until this command ends; if it is killed, undo that \
                 with{OWN_LINE}{}",
                link.name,
                ranges(&queues),
                held.undo()
            ));
            Ok(held)
        };
        interfaces.iter().filter_map(with_link).map(hold).collect::<Result<_, _>>().map(Self)
    }
}

fn refused(error: &LinkError) -> String {
    format!("--rss: {}", error_chain(error))
}

impl Drop for FlowSpread {
    fn drop(&mut self) {
        for mut held in self.0.drain(..) {
            let undo = held.undo();
            if let Err(error) = held.restore() {
                let why = error_chain(&error);
                output::warn(format_args!("cannot restore the spread of flows: {why}; run{OWN_LINE}{undo}"));
            }
        }
    }
}
