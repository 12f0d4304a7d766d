//! Requests to drivers: include/uapi/linux/ethtool.h, v7.3, which `libc` lacks.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::socket;

/// A query (G) or setting (S) of a driver, and the number of words in the kernel's structure for it,
/// including the command. Linux: `ETHTOOL_GDRVINFO` and so on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<const WORDS: usize>(u32);

/// `struct ethtool_drvinfo`: 8 words of name after the command.
pub(crate) const GDRVINFO: Command<49> = Command(0x03);
/// `struct ethtool_ringparam`.
pub(crate) const GRINGPARAM: Command<9> = Command(0x10);
/// `struct ethtool_channels`.
pub(crate) const GCHANNELS: Command<9> = Command(0x3c);
/// `struct ethtool_sset_info`, with the length of one set.
const GSSET_INFO: Command<5> = Command(0x37);
/// `struct ethtool_gstrings`, with room for the longest set.
const GSTRINGS: Command<{ 3 + FEATURES * NAME_WORDS }> = Command(0x1b);
/// `struct ethtool_gfeatures`: four words a block.
const GFEATURES: Command<{ 2 + 4 * BLOCKS }> = Command(0x3a);
/// `struct ethtool_sfeatures`: two words a block.
const SFEATURES: Command<{ 2 + 2 * BLOCKS }> = Command(0x3b);

/// `struct ethtool_rxfh_indir`, with room for the longest table.
const GRXFHINDIR: Command<{ 2 + ENTRIES }> = Command(0x38);
const SRXFHINDIR: Command<{ 2 + ENTRIES }> = Command(0x39);

/// `struct ethtool_rxnfc` of a 64-bit system.
const GRXCLSRLCNT: Command<NFC> = Command(0x2e);
/// Its words, and the index of its field `rule_cnt`.
const NFC: usize = 48;
const NFC_COUNT: usize = 46;

/// Entries of an indirection table; cards have 128 to 2,048.
const ENTRIES: usize = 4096;

/// The set of feature names: `ETH_SS_FEATURES`.
const FEATURE_NAMES: u32 = 4;
/// Words of a name: `ETH_GSTRING_LEN` bytes.
const NAME_WORDS: usize = 8;
/// The most blocks of 32 features; Linux 7.3 has two.
const BLOCKS: usize = 4;
const FEATURES: usize = 32 * BLOCKS;

/// The features of a link, one bit each; their numbers differ between kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// The kernel's blocks of 32 features.
    blocks: usize,
    /// Features that can be turned on or off.
    pub(crate) available: u128,
    pub(crate) wanted: u128,
    pub(crate) active: u128,
}

/// A socket for requests, in the network namespace of the calling thread.
pub(crate) fn open() -> io::Result<OwnedFd> {
    socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)
}

/// Sends a command with one word after it, and returns the structure that the kernel filled in.
pub(crate) fn query<const WORDS: usize>(
    fd: BorrowedFd<'_>,
    link: &str,
    command: Command<WORDS>,
    value: u32,
) -> io::Result<[u32; WORDS]> {
    let mut words = [0; WORDS];
    words[1] = value;
    send(fd, link, command, words)
}

/// The names of all features, by their numbers.
pub(crate) fn feature_names(fd: BorrowedFd<'_>, link: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut words = [0; 5];
    words[2..4].copy_from_slice(&as_words(1 << FEATURE_NAMES));
    let count = send(fd, link, GSSET_INFO, words)?[4] as usize;
    if count > FEATURES {
        return Err(io::Error::from_raw_os_error(libc::E2BIG)); // a future kernel
    }
    // The kernel writes all names, whatever the structure has room for. There is room: it was just checked.
    let words = query(fd, link, GSTRINGS, FEATURE_NAMES)?;
    let names = words[3..].chunks_exact(NAME_WORDS).take(count);
    Ok(names.map(|name| name.iter().flat_map(|word| word.to_ne_bytes()).collect()).collect())
}

pub(crate) fn features(fd: BorrowedFd<'_>, link: &str) -> io::Result<Features> {
    let words = query(fd, link, GFEATURES, BLOCKS as u32)?;
    let mut all = Features { blocks: words[1] as usize, ..Features::default() };
    if all.blocks > BLOCKS {
        return Err(io::Error::from_raw_os_error(libc::E2BIG)); // a future kernel
    }
    for (block, words) in words[2..].chunks_exact(4).enumerate() {
        let bits = |word: u32| u128::from(word) << (32 * block);
        all.available |= bits(words[0]);
        all.wanted |= bits(words[1]);
        all.active |= bits(words[2]);
    }
    Ok(all)
}

/// Turns the features in `bits` on or off; `features` are the link's current ones. What the driver refuses
/// stays unchanged, without an error.
pub(crate) fn set_features(
    fd: BorrowedFd<'_>,
    link: &str,
    features: Features,
    bits: u128,
    on: bool,
) -> io::Result<()> {
    let mut words = [0; 2 + 2 * BLOCKS];
    words[1] = features.blocks as u32;
    for (block, words) in words[2..].chunks_exact_mut(2).enumerate() {
        words[0] = (bits >> (32 * block)) as u32;
        words[1] = if on { words[0] } else { 0 };
    }
    send(fd, link, SFEATURES, words).map(drop)
}

/// The queue of each entry of a link's indirection table.
pub(crate) fn indirection(fd: BorrowedFd<'_>, link: &str) -> io::Result<Vec<u32>> {
    // Asked for 0 entries, the kernel returns their number.
    let count = query(fd, link, GRXFHINDIR, 0)?[1] as usize;
    if count > ENTRIES {
        return Err(io::Error::from_raw_os_error(libc::E2BIG)); // a future card
    }
    let words = query(fd, link, GRXFHINDIR, count as u32)?;
    Ok(words[2..][..count].to_vec())
}

/// Sets all entries; an empty table restores the driver's default.
pub(crate) fn set_indirection(fd: BorrowedFd<'_>, link: &str, table: &[u32]) -> io::Result<()> {
    let mut words = [0; 2 + ENTRIES];
    let room = words[2..].get_mut(..table.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(table);
    words[1] = table.len() as u32;
    send(fd, link, SRXFHINDIR, words).map(drop)
}

pub(crate) fn rule_count(fd: BorrowedFd<'_>, link: &str) -> io::Result<u32> {
    Ok(query(fd, link, GRXCLSRLCNT, 0)?[NFC_COUNT])
}

/// The two halves of a number, in memory order.
fn as_words(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// Sends a structure, after setting its first word to the command, and returns it as the kernel filled it in.
fn send<const WORDS: usize>(
    fd: BorrowedFd<'_>,
    link: &str,
    command: Command<WORDS>,
    mut words: [u32; WORDS],
) -> io::Result<[u32; WORDS]> {
    let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    if link.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV)); // no link has so long a name
    }
    for (to, from) in name.iter_mut().zip(link.bytes()) {
        *to = from as libc::c_char;
    }
    words[0] = command.0;
    let data = libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut words).cast() };
    let mut request = libc::ifreq { ifr_name: name, ifr_ifru: data };
    // SAFETY: both objects live as long as the call. The command tells the kernel the structure, and a
    // `Command` is made only above, with as many words as that has; any bytes are valid words. For structures
    // with a length field, the functions above never ask for more than there is room for.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    // A positive result means that a driver did not do everything requested.
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(words) }
}
