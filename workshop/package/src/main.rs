//! Builds Debian packages and a tarball: `cargo run --release -p pagepool-package`.
//!
//! Settings come from the environment or as arguments, `OUT=/tmp/packages`.
//!
//! * `OUT` (default `target/packages`): where the files go
//! * `FORMATS` (default `deb,tar`): `deb` is the shared library, `libpagepool-dev` and `pagepool`, and
//!   requires Debian's `dpkg-dev`; `tar` is one `.tar.gz` of all files below one folder, for any prefix, and
//!   requires `tar` and `gzip`
//! * `DEBFULLNAME` and `DEBEMAIL`: the maintainer of the packages, as for Debian's tools
//! * `SOURCE_DATE_EPOCH` (default: the time of the last commit): the time of all files
//!
//! It stages what `pagepool-install` installs, and divides it among packages. It requires the whole
//! repository.

use std::process::ExitCode;

fn main() -> ExitCode {
    pagepool_package::exit_code(pagepool_package::package::package())
}
