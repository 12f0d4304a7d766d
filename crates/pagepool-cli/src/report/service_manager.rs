//! Notifies a service manager such as systemd of the progress: by datagrams to the socket named in the
//! environment (sd_notify(3)). Without one it does nothing.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use pagepool_watch::shown;

use super::output;

/// The longest wait for a service manager that does not read.
const PATIENCE: Duration = Duration::from_secs(1);
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// A connection to the service manager, if there is one.
pub struct ServiceManager {
    target: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Watchdog>,
    /// The READY message, while it could not be sent.
    ready: Option<String>,
    status_sent: Duration,
}

impl ServiceManager {
    /// Reads the environment. Warns if the service manager cannot be reached.
    pub fn of_environment() -> Self {
        let target = env::var_os("NOTIFY_SOCKET").and_then(|name| match connect(&name) {
            Ok(target) => Some(target),
            Err(error) => {
                warn(&name, &error);
                None
            }
        });
        let text = |name| env::var(name).ok();
        let period = period(text("WATCHDOG_USEC").as_deref(), text("WATCHDOG_PID").as_deref());
        let watchdog = period.filter(|_| target.is_some()).map(Watchdog::new);
        Self { target, watchdog, ready: None, status_sent: Duration::ZERO }
    }

    pub fn ready(&mut self, status: &str) {
        let ready = format!("READY=1\nSTATUS={}", shown(status));
        self.ready = (!self.send(&ready)).then_some(ready);
    }

    pub fn stopping(&mut self) {
        self.send("STOPPING=1\nSTATUS=closing its interfaces");
    }

    /// Sends the status once a second. Sends the watchdog message when it is due, if each of the counts, one
    /// a thread, rose since the last time.
    pub fn look(&mut self, at: Duration, counts: impl FnOnce() -> Vec<u64>, status: impl FnOnce() -> String) {
        if self.target.is_none() {
            return;
        }
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_fed(at, counts)) {
            let is_sent = self.send("WATCHDOG=1");
            self.watchdog.iter_mut().filter(|_| !is_sent).for_each(|watchdog| watchdog.next = at);
        }
        if at >= self.status_sent + STATUS_EVERY {
            self.status_sent = at;
            if let Some(ready) = self.ready.take() {
                self.ready = (!self.send(&ready)).then_some(ready);
            }
            self.send(&format!("STATUS={}", shown(&status())));
        }
    }

    /// Whether the message was sent. If the service manager is only busy, sending can be tried again. Any
    /// other error warns the user, and nothing more is sent.
    fn send(&mut self, what: &str) -> bool {
        let Some((socket, to)) = &self.target else { return false };
        let Err(error) = socket.send_to_addr(what.as_bytes(), to) else { return true };
        // The second: no memory, or the socket's buffer is full.
        if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory) {
            warn(&env::var_os("NOTIFY_SOCKET").unwrap_or_default(), &error);
            self.target = None;
        }
        false
    }
}

fn warn(name: &OsStr, error: &io::Error) {
    output::warn(format_args!(
        "the service manager cannot be notified: NOTIFY_SOCKET is {}, which must be the path of a datagram \
         socket, or @ and an abstract name: {error}",
        name.display()
    ));
}

/// A socket, and the address of the service manager. `@` begins an abstract name.
fn connect(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok((socket, to))
}

/// The watchdog period of this process, from the microseconds and the process id in the environment.
fn period(micros: Option<&str>, process: Option<&str>) -> Option<Duration> {
    let ours = process.is_none_or(|process| process == std::process::id().to_string());
    let micros = micros.filter(|_| ours)?.parse().ok().filter(|&micros| micros > 0)?;
    Some(Duration::from_micros(micros))
}

/// Sends the watchdog message twice in a period.
struct Watchdog {
    every: Duration,
    next: Duration,
    seen: Vec<u64>,
}

impl Watchdog {
    fn new(period: Duration) -> Self {
        Self { every: period / 2, next: Duration::ZERO, seen: Vec::new() }
    }

    /// Whether a message is due and no thread hangs.
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
    fn the_watchdog_applies_only_to_the_named_process() {
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
    fn a_hanging_thread_stops_the_watchdog_messages() {
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
    fn a_busy_service_manager_is_notified_later_a_dead_one_never() {
        let name = OsString::from(format!("@pagepool-busy-{}", std::process::id()));
        let (_, address) = connect(&name).unwrap();
        let theirs = UnixDatagram::bind_addr(&address).unwrap();
        // A socket has room for so many datagrams; when a new socket cannot send any, the receiver is full.
        let fill = |_| {
            let filling = UnixDatagram::unbound().unwrap();
            filling.set_nonblocking(true).unwrap();
            (0..100_000).take_while(|_| filling.send_to_addr(b"x", &address).is_ok()).count()
        };
        let filled: usize = (0..1000).map(fill).take_while(|&sent| sent > 0).sum();
        let target = connect(&name).ok();
        let watchdog = Some(Watchdog::new(Duration::from_secs(2)));
        let mut manager = ServiceManager { target, watchdog, ready: None, status_sent: Duration::ZERO };
        manager.ready("works"); // waits until its timeout of a second
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
        assert!(manager.target.is_none(), "nobody is there");
    }

    #[test]
    fn names_that_are_no_addresses_are_errors() {
        for bad in ["", "relative/path", "vsock:2:1234"] {
            assert!(connect(&bad.into()).is_err(), "{bad}");
        }
        assert!(connect(&"@name".into()).is_ok() && connect(&"/run/none".into()).is_ok());
    }
}
