//! Questions to drivers: include/uapi/linux/ethtool.h, v7.3, of which `libc` has nothing.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::link::flow::rule::{FLOW_BYTES, FlowSpec};
use crate::sys::socket;

/// What a driver is asked (G) or told (S), with the words of the structure that the kernel defines it over,
/// the command among them. Linux: `ETHTOOL_GDRVINFO` and so on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<const WORDS: usize>(u32);

/// `struct ethtool_drvinfo`: 8 words of name behind the command.
pub(crate) const GDRVINFO: Command<49> = Command(0x03);
/// `struct ethtool_ringparam`.
pub(crate) const GRINGPARAM: Command<9> = Command(0x10);
/// `struct ethtool_channels`.
pub(crate) const GCHANNELS: Command<9> = Command(0x3c);
/// `struct ethtool_sset_info`, with the length of one set.
const GSSET_INFO: Command<5> = Command(0x37);
/// `struct ethtool_gstrings`, with the longest set that there is room for.
const GSTRINGS: Command<{ 3 + FEATURES * NAME_WORDS }> = Command(0x1b);
/// `struct ethtool_gfeatures`: four words a block.
const GFEATURES: Command<{ 2 + 4 * BLOCKS }> = Command(0x3a);
/// `struct ethtool_sfeatures`: two words a block.
const SFEATURES: Command<{ 2 + 2 * BLOCKS }> = Command(0x3b);

/// `struct ethtool_rxfh_indir`, with the longest table that there is room for.
const GRXFHINDIR: Command<{ 2 + ENTRIES }> = Command(0x38);
const SRXFHINDIR: Command<{ 2 + ENTRIES }> = Command(0x39);

/// `struct ethtool_rxnfc` of a 64-bit system, with the most rules that there is room for.
const GRXCLSRLCNT: Command<NFC> = Command(0x2e);
const GRXCLSRULE: Command<NFC> = Command(0x2f);
const GRXCLSRLALL: Command<{ NFC_RULES + RULES }> = Command(0x30);
const SRXCLSRLDEL: Command<NFC> = Command(0x31);
const SRXCLSRLINS: Command<NFC> = Command(0x32);
/// Words of it, and where its fields are: `data`, `fs` (its type; its fields, and their masks),
/// `fs.ring_cookie`, `fs.location`, `rule_cnt` and `rule_locs`.
const NFC: usize = 48;
const NFC_DATA: usize = 2;
const NFC_TYPE: usize = 4;
const NFC_FIELDS: usize = 5;
const NFC_MASK: usize = NFC_FIELDS + FLOW_BYTES / 4;
const NFC_QUEUE: usize = 42;
const NFC_LOCATION: usize = 44;
const NFC_COUNT: usize = 46;
const NFC_RULES: usize = 47;
/// Rules that a card has already; tables are of 16 to 16,384.
const RULES: usize = 16384;
/// `RX_CLS_LOC_SPECIAL` in the answer of `GRXCLSRLCNT`: the driver finds a place, where `RX_CLS_LOC_ANY` asks
/// for one.
const PLACES_RULES: u32 = 0x8000_0000;
const ANY_PLACE: u32 = u32::MAX;

/// Entries of an indirection table; cards have 128 to 2,048.
const ENTRIES: usize = 4096;

/// The set of the names of features: `ETH_SS_FEATURES`.
const FEATURE_NAMES: u32 = 4;
/// Words of a name: `ETH_GSTRING_LEN` bytes.
const NAME_WORDS: usize = 8;
/// Blocks of 32 features that there is room for; Linux 7.3 has two.
const BLOCKS: usize = 4;
const FEATURES: usize = 32 * BLOCKS;

/// The features of a link, a bit for each; their numbers differ between kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// Blocks of 32 that the kernel has.
    blocks: usize,
    /// What can be turned on or off.
    pub(crate) available: u128,
    /// What was asked for.
    pub(crate) wanted: u128,
    /// What is on.
    pub(crate) active: u128,
}

/// A socket that questions can be asked through, in the network namespace of the calling thread.
pub(crate) fn open() -> io::Result<OwnedFd> {
    socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)
}

/// Sends a command with a word behind it, and gives the structure as it stands afterwards.
pub(crate) fn ask<const WORDS: usize>(
    fd: BorrowedFd<'_>,
    link: &str,
    command: Command<WORDS>,
    value: u32,
) -> io::Result<[u32; WORDS]> {
    let mut words = [0; WORDS];
    words[1] = value;
    send(fd, link, command, words)
}

/// The names of all features, each at its number.
pub(crate) fn feature_names(fd: BorrowedFd<'_>, link: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut words = [0; 5];
    words[2..4].copy_from_slice(&as_words(1 << FEATURE_NAMES));
    let count = send(fd, link, GSSET_INFO, words)?[4] as usize;
    if count > FEATURES {
        return Err(io::Error::from_raw_os_error(libc::E2BIG)); // of a kernel of the far future
    }
    // The kernel fills in all names, whatever the structure has room for: there is room, as it just said.
    let words = ask(fd, link, GSTRINGS, FEATURE_NAMES)?;
    let names = words[3..].chunks_exact(NAME_WORDS).take(count);
    Ok(names.map(|name| name.iter().flat_map(|word| word.to_ne_bytes()).collect()).collect())
}

/// What the features of a link are.
pub(crate) fn features(fd: BorrowedFd<'_>, link: &str) -> io::Result<Features> {
    let words = ask(fd, link, GFEATURES, BLOCKS as u32)?;
    let mut all = Features { blocks: words[1] as usize, ..Features::default() };
    if all.blocks > BLOCKS {
        return Err(io::Error::from_raw_os_error(libc::E2BIG)); // of a kernel of the far future
    }
    for (block, words) in words[2..].chunks_exact(4).enumerate() {
        let bits = |word: u32| u128::from(word) << (32 * block);
        all.available |= bits(words[0]);
        all.wanted |= bits(words[1]);
        all.active |= bits(words[2]);
    }
    Ok(all)
}

/// Turns the features with these bits on or off, of a link whose features are those. What the driver refuses
/// stays as it is, without an error.
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
    // Asked for no entries, the kernel says how many there are.
    let count = ask(fd, link, GRXFHINDIR, 0)?[1] as usize;
    if count > ENTRIES {
        return Err(io::Error::from_raw_os_error(libc::E2BIG)); // of a card of the far future
    }
    let words = ask(fd, link, GRXFHINDIR, count as u32)?;
    Ok(words[2..][..count].to_vec())
}

/// Sets all entries; without any, to what the driver begins with.
pub(crate) fn set_indirection(fd: BorrowedFd<'_>, link: &str, table: &[u32]) -> io::Result<()> {
    let mut words = [0; 2 + ENTRIES];
    let room = words[2..].get_mut(..table.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(table);
    words[1] = table.len() as u32;
    send(fd, link, SRXFHINDIR, words).map(drop)
}

/// How many rules for single flows a link has.
pub(crate) fn rule_count(fd: BorrowedFd<'_>, link: &str) -> io::Result<u32> {
    Ok(ask(fd, link, GRXCLSRLCNT, 0)?[NFC_COUNT])
}

/// A place for a rule: the last that is free, behind the rules of others, unless the driver finds one.
pub(crate) fn free_place(fd: BorrowedFd<'_>, link: &str) -> io::Result<u32> {
    let counted = ask(fd, link, GRXCLSRLCNT, 0)?;
    if from_words(counted[NFC_DATA], counted[NFC_DATA + 1]) & u64::from(PLACES_RULES) != 0 {
        return Ok(ANY_PLACE);
    }
    let RuleList { places, room } = rules(fd, link)?;
    let free = (0..room).rev().find(|place| !places.contains(place));
    free.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))
}

/// Where a link has rules, and how many places there are.
pub(crate) struct RuleList {
    pub(crate) places: Vec<u32>,
    room: u32,
}

pub(crate) fn rules(fd: BorrowedFd<'_>, link: &str) -> io::Result<RuleList> {
    let count = rule_count(fd, link)?;
    if count as usize > RULES {
        return Err(io::Error::from_raw_os_error(libc::E2BIG)); // of a card of the far future
    }
    let mut words = [0; NFC_RULES + RULES];
    words[NFC_COUNT] = count;
    let words = send(fd, link, GRXCLSRLALL, words)?;
    let places = words[NFC_RULES..][..(words[NFC_COUNT] as usize).min(RULES)].to_vec();
    Ok(RuleList { places, room: from_words(words[NFC_DATA], words[NFC_DATA + 1]) as u32 })
}

/// Adds a rule that brings packets to a queue, and says where it is.
pub(crate) fn add_rule(
    fd: BorrowedFd<'_>,
    link: &str,
    spec: &FlowSpec,
    queue: u32,
    place: u32,
) -> io::Result<u32> {
    Ok(send(fd, link, SRXCLSRLINS, rule_words(spec, queue, place))?[NFC_LOCATION])
}

fn rule_words(spec: &FlowSpec, queue: u32, place: u32) -> [u32; NFC] {
    let mut words = [0; NFC];
    let put = |words: &mut [u32], bytes: &[u8; FLOW_BYTES]| {
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_ne_bytes(*bytes);
        }
    };
    words[NFC_TYPE] = spec.flow_type;
    put(&mut words[NFC_FIELDS..], &spec.fields);
    put(&mut words[NFC_MASK..], &spec.mask);
    words[NFC_QUEUE..][..2].copy_from_slice(&as_words(queue.into()));
    words[NFC_LOCATION] = place;
    words
}

/// A rule as a driver shows it that keeps all of it.
pub(crate) fn shown_words(spec: &FlowSpec, queue: u32, place: u32) -> Vec<u32> {
    rule_words(spec, queue, place)[NFC_TYPE..=NFC_LOCATION].to_vec()
}

/// Whether a rule that is shown takes the packets of this one, to whatever queue: the type, the mask, and the
/// fields under it are the same.
pub(crate) fn same_packets(shown: &[u32], spec: &FlowSpec) -> bool {
    let ours = shown_words(spec, 0, 0);
    let parts = |words: &[u32]| {
        let (fields, masks) = words[1..=2 * (FLOW_BYTES / 4)].split_at(FLOW_BYTES / 4);
        let masked: Vec<_> = fields.iter().zip(masks).map(|(field, mask)| (field & mask, *mask)).collect();
        (words[0], masked)
    };
    shown.len() == ours.len() && parts(shown) == parts(&ours)
}

/// What the driver says of the rule at a place: to be compared.
pub(crate) fn rule_at(fd: BorrowedFd<'_>, link: &str, place: u32) -> io::Result<Vec<u32>> {
    let mut words = [0; NFC];
    words[NFC_LOCATION] = place;
    Ok(send(fd, link, GRXCLSRULE, words)?[NFC_TYPE..=NFC_LOCATION].to_vec())
}

/// Deletes the rule at a place.
pub(crate) fn delete_rule(fd: BorrowedFd<'_>, link: &str, place: u32) -> io::Result<()> {
    let mut words = [0; NFC];
    words[NFC_LOCATION] = place;
    send(fd, link, SRXCLSRLDEL, words).map(drop)
}

/// The two halves of a number, as it lies in memory.
fn as_words(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

fn from_words(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Sends a structure but for its first word, which is the command, and gives it as it stands afterwards.
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
    // SAFETY: both places live as long as the call. The command tells the kernel which structure it is, and a
    // `Command` is made above alone, with as many words as that has; any bytes are words. Of those with a
    // length of their own, the functions above ask for no more than there is room for.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    // A positive number says that a driver did not do all that it was told.
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(words) }
}
