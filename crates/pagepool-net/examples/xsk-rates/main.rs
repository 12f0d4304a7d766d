//! The rates of AF_XDP forwarders on veth pairs, each in its turn, under one sender: ours, and any other
//! program.
//!
//! `xsk-rates bed drop|echo|forward|tcp [--size BYTES] [--mtu BYTES] [--seconds S] [--host-cpu N] [--gather
//! US] -- PROGRAM...` makes two hosts and a namespace between them, runs the program there, sends, and prints
//! what the kernel counted, as one line of JSON. `near0` and `near1` are the program's interfaces; it should
//! end when its standard input does, and is killed if not. With `--host-cpu` the host that sends takes in
//! acknowledgements on that CPU, not on the program's. The hosts gather packets for `--gather` microseconds
//! (20).
//!
//! `xsk-rates ours drop|echo|forward IF [IF] [--mtu BYTES] [--by-ring]` is such a program: our forwarder,
//! which sends by the ring with `--by-ring`. What it printed is in the bed's line.
//!
//! `xsk-rates kernel redirect|drop|tx IF [IF]` is another one: the kernel alone, by an XDP program.

mod bed;
mod kernel;
mod ours;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.split_first() {
        Some((&"bed", rest)) => bed::run(rest),
        Some((&"ours", rest)) => ours::run(rest),
        Some((&"kernel", rest)) => kernel::run(rest),
        _ => Err("say bed, ours or kernel; the file's head says what they are".into()),
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xsk-rates: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The value behind an option.
fn option(words: &[&str], name: &str, default: u64) -> Result<u64, String> {
    let Some(at) = words.iter().position(|word| *word == name) else { return Ok(default) };
    let value = words.get(at + 1).and_then(|value| value.parse().ok());
    value.ok_or_else(|| format!("{name} needs a number"))
}
