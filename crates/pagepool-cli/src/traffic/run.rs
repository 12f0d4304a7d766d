//! Runs a command on interfaces, in phases. Each phase is a struct that owns what it must undo. Dropping one
//! undoes it. After an error only two things stay: a link that `--pin` keeps, and a capture file.
//!
//! | phase | what it has done | packets go to |
//! |---|---|---|
//! | [`Planned`] | looked up the interfaces, checked options and capabilities | the kernel |
//! | [`Opened`] | turned off offloads, opened sockets over memory of their own | the kernel |
//! | [`Attached`] | filled the rings, attached XDP programs that pass all packets | the kernel |
//! | [`Running`] | redirected packets to the sockets | the threads |
//! | [`Ended`] | closed the sockets, restored the interfaces | the kernel |

mod attached;
mod back_end_watch;
mod ended;
mod environment;
mod flow_spread;
mod kept_capabilities;
mod link_watch;
mod live_figures;
mod offloads;
mod opened;
mod planned;
mod queue_threads;
mod required_capabilities;
mod running;
mod sent_by_links;
mod service_status;
mod summary;
mod warnings;

use std::process::ExitCode;

use self::attached::Attached;
use self::ended::Ended;
use self::opened::Opened;
use self::planned::Planned;
use self::running::Running;
use super::command::TrafficCommand;
use crate::command::Command;

impl<C: TrafficCommand> Command for C {
    fn execute(&self) -> Result<ExitCode, String> {
        let planned = Planned::new(self)?;
        let opened = Opened::open(planned)?;
        let attached = Attached::attach(opened)?;
        let running = Running::start(attached)?;
        Ok(Ended::wait(running)?.print())
    }
}
