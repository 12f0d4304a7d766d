//! The command `pagepool`: its library has all of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    pagepool_cli::main()
}
