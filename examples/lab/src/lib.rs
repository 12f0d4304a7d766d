//! Shared parts of the Rust examples.
//!
//! [`main`] reads the options, runs an example once, or several times with each allocator, and prints the
//! outcome. [`wire`] contains the two hosts around a forwarder, [`echo`] a host that checks the answers of an
//! example. [`ticks`] is the clock.

mod clock;
pub mod echo;
mod outcome;
pub mod wire;

use std::process::ExitCode;

pub use clock::ticks;
pub use outcome::{Outcome, Skip};

/// An error in an example. It can move between threads.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Where buffers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// A pool.
    Pool,
    /// The usual allocator of such programs.
    Own,
}

/// Options of an example.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Where buffers come from.
    pub allocator: Allocator,
    /// How many packets to move, or how many buffers' worth of bytes.
    pub count: u64,
}

const USAGE: &str = "options: [--allocator pool|own] [--count N] [--compare RUNS]";

/// Runs an example with the options of the command line: `--allocator pool|own`, `--count N`, and
/// `--compare RUNS`, which runs it RUNS times with each allocator, alternately, and prints medians.
///
/// Fails if data is missing or changed, or if a buffer has not returned. If the example cannot run here,
/// prints a line that begins with `SKIP` and succeeds.
pub fn main(name: &str, count: u64, run: fn(&Options) -> Result<Outcome, Error>) -> ExitCode {
    match try_main(count, run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Skip>() => {
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
    let run_with = |allocator| -> Result<Outcome, Error> {
        let outcome = run(&Options { allocator, ..options })?;
        println!("{}: {outcome}", name_of(allocator));
        if outcome.is_complete() {
            Ok(outcome)
        } else {
            Err("data is missing or wrong, or a buffer has not returned".into())
        }
    };
    if compare == 0 {
        return run_with(options.allocator).map(drop);
    }
    let (mut pool, mut own) = (Vec::new(), Vec::new());
    for _ in 0..compare {
        pool.push(run_with(Allocator::Pool)?);
        own.push(run_with(Allocator::Own)?);
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
