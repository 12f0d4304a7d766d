//! Tells a service manager such as systemd how far the command is: datagrams to the socket that it names in
//! the environment (sd_notify(3)). Without one nothing happens.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use pagepool::observe::shown;

use super::output;

/// The longest that the command waits for a service manager that does not read.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between two lines of status.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// The service manager, if there is one.
pub struct ServiceManager {
    way: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Watchdog>,
    /// That the command works, as long as it could not be told.
    ready: Option<String>,
    told: Duration,
}

impl ServiceManager {
    /// As the environment names it. Warns if it cannot be reached.
    pub fn of_environment() -> Self {
        let way = env::var_os("NOTIFY_SOCKET").and_then(|name| match way_to(&name) {
            Ok(way) => Some(way),
            Err(error) => {
                warn(&name, &error);
                None
            }
        });
        let text = |name| env::var(name).ok();
        let period = period(text("WATCHDOG_USEC").as_deref(), text("WATCHDOG_PID").as_deref());
        let watchdog = period.filter(|_| way.is_some()).map(Watchdog::new);
        Self { way, watchdog, ready: None, told: Duration::ZERO }
    }

    /// The command works from now on.
    pub fn ready(&mut self, status: &str) {
        let ready = format!("READY=1\nSTATUS={}", shown(status));
        self.ready = (!self.tell(&ready)).then_some(ready);
    }

    /// The command comes to its end.
    pub fn stopping(&mut self) {
        self.tell("STOPPING=1\nSTATUS=closes its interfaces");
    }

    /// Tells the status when a second is over, and that the command is alive when that is asked and each of
    /// the counts, one a thread, went up since the last time.
    pub fn look(&mut self, at: Duration, counts: impl FnOnce() -> Vec<u64>, status: impl FnOnce() -> String) {
        if self.way.is_none() {
            return;
        }
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_fed(at, counts)) {
            let told = self.tell("WATCHDOG=1");
            self.watchdog.iter_mut().filter(|_| !told).for_each(|watchdog| watchdog.next = at);
        }
        if at >= self.told + STATUS_EVERY {
            self.told = at;
            if let Some(ready) = self.ready.take() {
                self.ready = (!self.tell(&ready)).then_some(ready);
            }
            self.tell(&format!("STATUS={}", shown(&status())));
        }
    }

    /// Whether it was told. One that is only busy can be told again; of any other the user is warned, and it
    /// is not.
    fn tell(&mut self, what: &str) -> bool {
        let Some((socket, to)) = &self.way else { return false };
        let Err(error) = socket.send_to_addr(what.as_bytes(), to) else { return true };
        // Out of memory: of the socket's buffer, too.
        if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory) {
            warn(&env::var_os("NOTIFY_SOCKET").unwrap_or_default(), &error);
            self.way = None;
        }
        false
    }
}

fn warn(name: &OsStr, error: &io::Error) {
    output::warn(format_args!(
        "the service manager is told nothing: NOTIFY_SOCKET is {}, which must be the path of a \
         datagram socket, or @ and an abstract name: {error}",
        name.display()
    ));
}

/// A socket, and the address of the other one. `@` begins an abstract name.
fn way_to(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok((socket, to))
}

/// How often this process must say that it is alive, if it must: the time in microseconds, and for whom.
fn period(micros: Option<&str>, process: Option<&str>) -> Option<Duration> {
    let ours = process.is_none_or(|process| process == std::process::id().to_string());
    let micros = micros.filter(|_| ours)?.parse().ok().filter(|&micros| micros > 0)?;
    Some(Duration::from_micros(micros))
}

/// Says that the command is alive, twice as often as it must.
struct Watchdog {
    every: Duration,
    next: Duration,
    seen: Vec<u64>,
}

impl Watchdog {
    fn new(period: Duration) -> Self {
        Self { every: period / 2, next: Duration::ZERO, seen: Vec::new() }
    }

    /// Whether it is due, and no thread hangs.
    fn is_fed(&mut self, at: Duration, counts: impl FnOnce() -> Vec<u64>) -> bool {
        if at < self.next {
            return false;
        }
        let now = counts();
        let all = now.iter().enumerate().all(|(at, now)| self.seen.get(at).is_none_or(|seen| now > seen));
        if all {
            (self.seen, self.next) = (now, at + self.every);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let own = std::process::id().to_string();
        assert_eq!(period(Some("3000000"), None), Some(Duration::from_secs(3)));
        assert_eq!(period(Some("1"), Some(&own)), Some(Duration::from_micros(1)));
        assert_eq!(period(Some("3000000"), Some("1")), None);
        assert_eq!(
            (period(None, None), period(Some("0"), None), period(Some("x"), None)),
            (None, None, None)
        );
    }

    #[test]
    fn a_thread_that_hangs_lets_the_watchdog_bite() {
        let mut watchdog = Watchdog::new(Duration::from_secs(2));
        let mut at =
            |seconds, counts: [u64; 2]| watchdog.is_fed(Duration::from_secs(seconds), || counts.into());
        assert!(at(0, [1, 1]));
        assert!(!at(0, [2, 2]), "not due");
        assert!(at(1, [3, 2]));
        assert!(!at(2, [4, 2]), "the second one hangs");
        assert!(!at(3, [5, 2]));
        assert!(at(4, [6, 3]), "it goes on");
    }

    #[test]
    fn one_that_is_busy_is_told_later_and_one_that_is_gone_is_not() {
        let name = OsString::from(format!("@pagepool-busy-{}", std::process::id()));
        let (_, address) = way_to(&name).unwrap();
        let theirs = UnixDatagram::bind_addr(&address).unwrap();
        // Each has room for so many; there is room for no more when a new one cannot send any.
        let fill = |_| {
            let filling = UnixDatagram::unbound().unwrap();
            filling.set_nonblocking(true).unwrap();
            (0..100_000).take_while(|_| filling.send_to_addr(b"x", &address).is_ok()).count()
        };
        let filled: usize = (0..1000).map(fill).take_while(|&sent| sent > 0).sum();
        let way = way_to(&name).ok();
        let watchdog = Some(Watchdog::new(Duration::from_secs(2)));
        let mut manager = ServiceManager { way, watchdog, ready: None, told: Duration::ZERO };
        manager.ready("works"); // waits for its second
        let mut room = [0; 100];
        for _ in 0..filled {
            theirs.recv(&mut room).unwrap();
        }
        manager.look(STATUS_EVERY, || vec![1], || "moves".into());
        theirs.set_nonblocking(true).unwrap();
        let heard: Vec<_> = std::iter::from_fn(|| {
            let len = theirs.recv(&mut room).ok()?;
            Some(String::from_utf8_lossy(&room[..len]).into_owned())
        })
        .collect();
        assert_eq!(heard, ["WATCHDOG=1", "READY=1\nSTATUS=works", "STATUS=moves"]);
        drop(theirs);
        manager.stopping();
        assert!(manager.way.is_none(), "nobody is there");
    }

    #[test]
    fn names_that_are_no_addresses_are_errors() {
        for bad in ["", "relative/path", "vsock:2:1234"] {
            assert!(way_to(&bad.into()).is_err(), "{bad}");
        }
        assert!(way_to(&"@name".into()).is_ok() && way_to(&"/run/none".into()).is_ok());
    }
}
