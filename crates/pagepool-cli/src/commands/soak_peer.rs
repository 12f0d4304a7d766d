//! `pagepool soak-peer`: a process that `soak` starts.

use std::process::ExitCode;

use clap::Args;

use crate::run_command::RunCommand;
use crate::soak::peer::{self, PeerParams};

/// The options of a peer.
#[derive(Args, Clone, Debug)]
pub struct SoakPeerArgs {
    #[command(flatten)]
    params: PeerParams,
}

impl RunCommand for SoakPeerArgs {
    fn run(&self) -> Result<ExitCode, String> {
        peer::run(&self.params)
    }
}
