//! `pagepool soak`: forwards at full load while interfaces and peers fail.

use std::process::ExitCode;

use clap::Args;

use crate::engine::interrupt::listen;
use crate::queues::published_run::PublishOptions;
use crate::report::figure_options::FigureOptions;
use crate::report::loss::LossLimit;
use crate::run_command::RunCommand;
use crate::soak::run::soak;
use crate::soak::schedule::Schedule;

#[derive(Args, Clone, Copy, Debug)]
pub struct SoakArgs {
    #[command(flatten)]
    schedule: Schedule,
    #[command(flatten)]
    limit: LossLimit,
    #[command(flatten)]
    figures: FigureOptions,
    #[command(flatten)]
    publish: PublishOptions,
}

impl RunCommand for SoakArgs {
    fn run(&self) -> Result<ExitCode, String> {
        let _published = self.publish.publish("soak");
        soak(&self.schedule, self.figures, self.publish.holders(), self.limit, &listen()?)
    }
}
