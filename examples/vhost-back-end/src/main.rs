//! Serves a vhost-user socket until Ctrl-C or SIGTERM, then prints a line with counts.
//!
//! ```sh
//! vhost-back-end /run/sw0.sock echo
//! ```

use std::error::Error;
use std::process::ExitCode;

use lexopt::prelude::*;
use pagepool_vhost_back_end::{BackEnd, Mode, Params};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const USAGE: &str = "vhost-back-end SOCKET [--connect] [--queues N] echo|drop|generate [--len BYTES]";
/// The shortest and the longest packet that is generated.
const LENGTHS: std::ops::RangeInclusive<usize> = 60..=9018;

fn params() -> Result<Params, lexopt::Error> {
    let (mut words, mut connect, mut queues, mut len) = (Vec::new(), false, 1, 60);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("connect") => connect = true,
            Long("queues") => queues = arguments.value()?.parse()?,
            Long("len") => len = arguments.value()?.parse()?,
            Value(word) => words.push(word),
            _ => return Err(argument.unexpected()),
        }
    }
    let [socket, mode] = &words[..] else {
        return Err(format!("{} words, but there must be 2", words.len()).into());
    };
    if !LENGTHS.contains(&len) {
        return Err(format!("--len is {len}, but must be {LENGTHS:?}").into());
    }
    let mode = match mode.to_str() {
        Some("echo") => Mode::Echo,
        Some("drop") => Mode::Drop,
        Some("generate") => Mode::Generate { len },
        _ => return Err(format!("{mode:?} is none of echo, drop, generate").into()),
    };
    Ok(Params { connect, queues, ..Params::new(socket, mode) })
}

fn serve(params: Params) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let at = format!("{}", params.socket.display());
    let back_end = BackEnd::start(params).map_err(|error| format!("{at}: {error}"))?;
    eprintln!("vhost-back-end: {at}: ready");
    signals.forever().next();
    println!("{}", back_end.stop());
    Ok(())
}

fn main() -> ExitCode {
    let params = params().map_err(|error| format!("{error}; usage: {USAGE}").into());
    match params.and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vhost-back-end: {error}");
            ExitCode::from(2)
        }
    }
}
