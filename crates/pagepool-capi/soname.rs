/// The number of the soname. A release that breaks compiled programs takes the next number, and its own version
/// as `SINCE` of build.rs: tests/header.rs then writes abi.txt and pagepool.map anew.
const SONAME_NUMBER: u32 = 0;
