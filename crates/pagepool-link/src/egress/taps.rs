//! The taps of a network namespace: packet sockets that see an interface's outgoing packets, such as
//! tcpdump's.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes read at once; a line has about 60.
const AT_ONCE: usize = 4096;
/// The most reads of one call, which a polling thread makes: about 900 sockets.
const MOST: usize = 16;
/// The listed protocol of sockets that see outgoing packets. Linux: `ETH_P_ALL`.
const ALL: &str = "0003";

/// The kernel's list of packet sockets of the namespace in which it was opened.
#[derive(Debug)]
pub struct Taps {
    list: File,
}

impl Taps {
    /// Opens the list of the calling thread's namespace; requires `/proc`.
    pub fn open() -> io::Result<Self> {
        Ok(Self { list: File::open("/proc/thread-self/net/packet")? })
    }

    /// Whether a socket sees outgoing packets of the interface with this index. Also true if the list cannot
    /// be read, or is too long.
    pub fn any_sees(&self, index: u32) -> bool {
        let (mut text, mut at) = ([0; AT_ONCE], 0);
        for _ in 0..MOST {
            let Ok(got) = self.list.read_at(&mut text, at) else { return true };
            if got == 0 {
                return false; // its end
            }
            // The last line may be cut: the next round begins with it.
            let Some(end) = text[..got].iter().rposition(|&byte| byte == b'\n') else { return true };
            let lines = text[..end].split(|&byte| byte == b'\n');
            if lines.filter_map(|line| std::str::from_utf8(line).ok()).any(|line| is_tap(line, index)) {
                return true;
            }
            at += end as u64 + 1;
        }
        true
    }
}

/// Whether a line is that of a running socket for all protocols, on this interface or on all (0). Its
/// columns: place, references, type, protocol, interface, whether it runs.
fn is_tap(line: &str, index: u32) -> bool {
    let mut columns = line.split_ascii_whitespace().skip(3);
    let mut next = || columns.next();
    let (Some(protocol), Some(interface), Some(runs)) = (next(), next(), next()) else { return false };
    protocol == ALL && runs == "1" && interface.parse::<u32>().is_ok_and(|at| at == 0 || at == index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list_are_read() {
        let line = |rest| format!("ffff888004b1c000 3      3    {rest} 0      0      4711\n");
        for (rest, tap) in [
            ("0003   7     1", true),
            ("0003   0     1", true),  // all interfaces
            ("0003   8     1", false), // another interface
            ("0003   7     0", false), // not running yet
            ("0800   7     1", false), // it sees no outgoing packets
            ("0003", false),
        ] {
            assert_eq!(is_tap(&line(rest), 7), tap, "{rest}");
        }
        assert!(!is_tap("sk       RefCnt Type Proto  Iface R Rmem   User   Inode", 0));
    }

    #[test]
    fn a_list_that_is_not_read_to_its_end_may_have_a_tap() {
        let see = |path| Taps { list: File::open(path).unwrap() }.any_sees(1);
        assert!(!see("/dev/null"), "it has none");
        assert!(see("/dev/zero"), "no line ends");
        assert!(see("/proc"), "a folder is no list");
        let path = std::env::temp_dir().join(format!("pagepool-taps-{}", std::process::id()));
        let line = "ffff888004b1c000 3      3    0003   8     1      0      0      4711\n"; // another
        for (lines, may) in [(1, false), (800, false), (1000, true)] {
            std::fs::write(&path, line.repeat(lines)).unwrap();
            assert_eq!(see(path.to_str().unwrap()), may, "{lines} sockets");
        }
        std::fs::remove_file(path).unwrap();
    }
}
