//! Builds the C library and the command, and installs them under a prefix:
//! `cargo run --release -p pagepool-package --bin pagepool-install`.
//!
//! Settings come from the environment or as arguments, `PREFIX=/opt/pagepool`. It requires cargo with its
//! linker, `cc`, and for the static library `objcopy` and `ar` (binutils).
//!
//! * `PREFIX` (default `/usr/local`) and `LIBDIR` (default `PREFIX/lib`)
//! * `DESTDIR` (default none): a directory that stands for `/`, for packagers
//! * `TARGET` (default: this system): another target of Rust, `x86_64-unknown-linux-musl`; installs only the
//!   library, and for musl only the static one
//! * `PARTS` (default `library,command`): `library` is the C library, its header and the files of pkg-config,
//!   Meson and CMake; `command` is `pagepool`, its manual pages and its shell completions

use std::process::ExitCode;

use pagepool_package::install::Installation;

fn main() -> ExitCode {
    let installed = Installation::from_settings().and_then(|installation| {
        installation.run()?;
        installation.report();
        Ok(())
    });
    pagepool_package::exit_code(installed)
}
