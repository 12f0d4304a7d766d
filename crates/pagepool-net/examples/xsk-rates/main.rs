//! Rates of AF_XDP forwarders on veth pairs, one at a time, under one sender: ours, and any other program.
//!
//! `xsk-rates bed drop|echo|forward|tcp [--size BYTES] [--mtu BYTES] [--seconds S] [--host-cpu N] [--gather
//! US] -- PROGRAM...` makes two hosts and a namespace between them, runs the program there, sends, and prints
//! the kernel's counts as one line of JSON. `near0` and `near1` are the program's interfaces. It is killed if
//! it does not end with its standard input. With `--host-cpu` the sending host receives acknowledgements on
//! that CPU, not on the program's. The hosts gather packets for `--gather` microseconds (20).
//!
//! `xsk-rates ours drop|echo|forward IF [IF] [--mtu BYTES] [--by-ring]` is such a program: our forwarder;
//! with `--by-ring` it sends by the ring. The bed's line contains its output.
//!
//! Instead of interfaces, `ours` takes names with a colon, such as `vhost_user:/run/sw0.sock`: see `DRIVERS`.
//! `xsk-rates ours send NAME [--size BYTES]` sends packets to such a device.
//!
//! `xsk-rates kernel redirect|drop IF [IF]` is another one: the kernel alone, by an XDP program.
//!
//! `xsk-rates line CPU CPU` prints how long a cache line takes to the other CPU and back.

mod bed;
mod kernel;
mod line;
mod named;
mod ours;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.split_first() {
        Some((&"bed", rest)) => bed::run(rest),
        Some((&"ours", rest)) => ours::run(rest),
        Some((&"kernel", rest)) => kernel::run(rest),
        Some((&"line", rest)) => line::run(rest),
        _ => Err("use bed, ours, kernel or line: see the top of this file".into()),
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
