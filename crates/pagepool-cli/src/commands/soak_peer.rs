//! `pagepool soak-peer`: a process that `soak` starts.

use std::process::ExitCode;

pub use crate::soak::peer::PeerParams as SoakPeerArgs;

use crate::run_command::RunCommand;
use crate::soak::peer;

impl RunCommand for SoakPeerArgs {
    fn run(&self) -> Result<ExitCode, String> {
        peer::run(self)
    }
}
