//! What the Rust examples need and none of them is about.
//!
//! [`main`] reads the options, runs an example once, or several times with each allocator in turn, and says
//! what came of it. [`wire`] has the two hosts that a forwarder stands between, [`echo`] a host that asks one
//! that answers. [`ticks`] is the clock.

mod clock;
pub mod echo;
mod outcome;
pub mod wire;

use std::process::ExitCode;

pub use clock::ticks;
pub use outcome::{Missing, Outcome};

/// What can go wrong in an example; it may have to go to another thread.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Who gives out the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// pagepool.
    Pool,
    /// What programs of the kind have by themselves.
    Own,
}

/// What an example is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Who gives out the buffers.
    pub allocator: Allocator,
    /// How many packets, or how many buffers' worth of bytes.
    pub count: u64,
}

const USAGE: &str = "options: [--allocator pool|own] [--count N] [--compare RUNS]";

/// Runs an example as the command line says: `--allocator pool|own`, `--count N`, and `--compare RUNS`, which
/// runs it so often with each allocator in turn and gives medians.
///
/// It fails if anything is missing, changed, or not home at the end. Where it cannot run it prints a line
/// that begins with `SKIP` and succeeds.
pub fn main(name: &str, count: u64, run: fn(&Options) -> Result<Outcome, Error>) -> ExitCode {
    match try_main(count, run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Missing>() => {
            println!("SKIP {name}: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_main(count: u64, run: fn(&Options) -> Result<Outcome, Error>) -> Result<(), Error> {
    let (options, compare) = parse(count)?;
    let of = |allocator| -> Result<Outcome, Error> {
        let outcome = run(&Options { allocator, ..options })?;
        println!("{}: {outcome}", name_of(allocator));
        if outcome.is_whole() {
            Ok(outcome)
        } else {
            Err("not all arrived as it was, or not all is home".into())
        }
    };
    if compare == 0 {
        return of(options.allocator).map(drop);
    }
    let (mut pool, mut own) = (Vec::new(), Vec::new());
    for _ in 0..compare {
        pool.push(of(Allocator::Pool)?);
        own.push(of(Allocator::Own)?);
    }
    println!("median [least to most] of {compare} runs each");
    println!("pool: {}", outcome::medians(&pool));
    println!("own:  {}", outcome::medians(&own));
    Ok(())
}

fn parse(count: u64) -> Result<(Options, usize), Error> {
    use lexopt::prelude::*;
    let mut options = Options { allocator: Allocator::Pool, count };
    let (mut compare, mut args) = (0, lexopt::Parser::from_env());
    while let Some(arg) = args.next()? {
        match arg {
            Long("allocator") => options.allocator = args.value()?.parse_with(allocator)?,
            Long("count") => options.count = args.value()?.parse()?,
            Long("compare") => compare = args.value()?.parse()?,
            _ => return Err(format!("{}; {USAGE}", arg.unexpected()).into()),
        }
    }
    Ok((options, compare))
}

fn allocator(name: &str) -> Result<Allocator, String> {
    match name {
        "pool" => Ok(Allocator::Pool),
        "own" => Ok(Allocator::Own),
        _ => Err(USAGE.into()),
    }
}

fn name_of(allocator: Allocator) -> &'static str {
    match allocator {
        Allocator::Pool => "pool",
        Allocator::Own => "own",
    }
}
