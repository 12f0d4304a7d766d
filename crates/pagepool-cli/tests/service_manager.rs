//! What a service manager such as systemd is told: that a command is ready, what it does, that it is alive,
//! and that it ends.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::between::{Place, Sets, binary, hosts, text};
use pagepool_lab::TempFolder;
use pagepool_link::{TwoHosts, TwoHostsParams};

/// A command of some seconds.
fn command(seconds: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = binary(&["drop", "near0", "--stats-every", "0", "--seconds", seconds]);
    command.env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
    command.envs(environment.iter().copied());
    command
}

/// Runs it beside a service manager that reads from this socket. Gives what came, and what it said.
fn heard(hosts: &TwoHosts, socket: UnixDatagram, command: Command) -> (Vec<String>, Output) {
    let ended = AtomicBool::new(false);
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    std::thread::scope(|threads| {
        let ends = Sets(&ended);
        let reading = threads.spawn(|| {
            let (mut all, mut room) = (Vec::new(), [0; 1024]);
            loop {
                match (socket.recv(&mut room), ended.load(Ordering::Relaxed)) {
                    (Ok(len), _) => all.push(text(&room[..len]).to_owned()),
                    (Err(_), false) => {}
                    (Err(_), true) => return all,
                }
            }
        });
        let output = Place::Between(hosts).output(command);
        drop(ends);
        (reading.join().expect("it reads"), output)
    })
}

fn said(output: &Output) -> String {
    format!("{}{}", text(&output.stderr), text(&output.stdout))
}

#[test]
fn a_service_manager_is_notified_from_ready_to_stopping() {
    let name = "a_service_manager_is_notified_from_ready_to_stopping";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let folder = TempFolder::new("pagepool-notify").expect("a new folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    let path = path.to_str().expect("text");
    let watched = [("NOTIFY_SOCKET", path), ("WATCHDOG_USEC", "400000")];
    let (heard, output) = heard(&hosts, socket, command("3", &watched));
    if text(&output.stderr).contains("CAP_") {
        return println!("SKIP {name}: {}", said(&output));
    }
    assert_eq!(heard[0], "READY=1\nSTATUS=drop near0", "{}", said(&output));
    assert_eq!(heard.iter().filter(|what| what.contains("READY=1")).count(), 1);
    assert!(heard.iter().any(|what| what.starts_with("STATUS=drop near0: in ")), "{heard:?}");
    assert!(heard.iter().filter(|what| *what == "WATCHDOG=1").count() > 1, "{heard:?}");
    assert!(heard.last().is_some_and(|last| last.starts_with("STOPPING=1\nSTATUS=")), "{heard:?}");
}

#[test]
fn an_abstract_socket_works_and_the_watchdog_pid_is_respected() {
    let name = "an_abstract_socket_works_and_the_watchdog_pid_is_respected";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    // Abstract names belong to a network namespace: the command's.
    let abstract_name = format!("pagepool-notify-{}", std::process::id());
    let there = abstract_name.clone();
    let socket = hosts.run_between(move || {
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(there).expect("a name")).expect("a socket")
    });
    let at = format!("@{abstract_name}");
    let watched = [("NOTIFY_SOCKET", &*at), ("WATCHDOG_USEC", "100000"), ("WATCHDOG_PID", "1")];
    let (heard, output) = heard(&hosts, socket, command("2", &watched));
    if text(&output.stderr).contains("CAP_") {
        return println!("SKIP {name}: {}", said(&output));
    }
    assert!(heard[0].starts_with("READY=1\n"), "{heard:?}");
    assert!(!heard.iter().any(|what| what.contains("WATCHDOG")), "{heard:?}");
}

#[test]
fn a_missing_service_manager_causes_only_a_warning() {
    let name = "a_missing_service_manager_causes_only_a_warning";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    for nowhere in ["/nowhere/notify", "no-address"] {
        let output = Place::Between(&hosts).output(command("1", &[("NOTIFY_SOCKET", nowhere)]));
        let said = said(&output);
        if said.contains("CAP_") {
            return println!("SKIP {name}: {said}");
        }
        let warnings = said.matches("warning: the service manager cannot be notified").count();
        assert!(warnings == 1 && said.contains(nowhere), "{said}");
        assert!(said.trim_end().ends_with("No packets moved. Buffers: all returned."), "{said}");
    }
}
