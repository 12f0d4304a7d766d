//! What a service manager such as systemd is told: that a command is ready, what it does, that it is alive,
//! and that it ends.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::between::{BpfFolder, Place, Sets, Stays, binary, hosts, text};
use pagepool_lab::{TempFolder, TwoHosts, TwoHostsParams};

/// A command of some seconds.
fn command(seconds: &str, environment: &[(&str, &str)]) -> Command {
    command_with(&["--seconds", seconds], environment)
}

fn command_with(more: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = binary(&[&["drop", "near0", "--stats-every", "0"], more].concat());
    command.env_remove("WATCHDOG_USEC").env_remove("WATCHDOG_PID");
    command.envs(environment.iter().copied());
    command
}

/// Runs it beside a service manager that reads from this socket. Gives what came, and what it said.
fn heard(hosts: &TwoHosts, socket: UnixDatagram, command: Command) -> (Vec<String>, Output) {
    heard_with(hosts, socket, command, || ())
}

/// The same, with what the service manager does when it is told something first.
fn heard_with(
    hosts: &TwoHosts,
    socket: UnixDatagram,
    command: Command,
    on_ready: impl FnOnce() + Send,
) -> (Vec<String>, Output) {
    let ended = AtomicBool::new(false);
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    std::thread::scope(|threads| {
        let ends = Sets(&ended);
        let reading = threads.spawn(|| {
            let (mut all, mut room, mut on_ready) = (Vec::new(), [0; 1024], Some(on_ready));
            loop {
                match (socket.recv(&mut room), ended.load(Ordering::Relaxed)) {
                    (Ok(len), _) => {
                        all.push(text(&room[..len]).to_owned());
                        if let Some(on_ready) = on_ready.take() {
                            on_ready();
                        }
                    }
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
fn a_service_manager_is_told_from_ready_to_stopping() {
    let name = "a_service_manager_is_told_from_ready_to_stopping";
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

/// Packets come to it already. Until the first one ends it only has not looked what that one puts back.
#[test]
fn a_run_that_takes_over_is_ready_before_the_first_has_ended() {
    let name = "a_run_that_takes_over_is_ready_before_the_first_has_ended";
    let (Some(hosts), Some(links)) = (hosts(name, &TwoHostsParams::default()), BpfFolder::new(name)) else {
        return;
    };
    let folder = TempFolder::new("pagepool-notify").expect("a new folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    let stays = Stays::new();
    let (pin, process) = (links.path(""), stays.id());
    let options = ["--seconds", "5", "--pin", &pin, "--take-over", &process];
    let command = command_with(&options, &[("NOTIFY_SOCKET", path.to_str().expect("text"))]);
    let (heard, output) = heard_with(&hosts, socket, command, || drop(stays));
    let said = said(&output);
    if said.contains("CAP_") {
        return println!("SKIP {name}: {said}");
    }
    assert_eq!(heard[0], "READY=1\nSTATUS=drop near0", "{said}");
    assert!(!said.contains("has not ended"), "it ended when this one was ready: {said}");
}

#[test]
fn an_abstract_name_is_one_too_and_another_process_has_the_watchdog() {
    let name = "an_abstract_name_is_one_too_and_another_process_has_the_watchdog";
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
fn a_service_manager_that_is_not_there_is_warned_of_and_nothing_else() {
    let name = "a_service_manager_that_is_not_there_is_warned_of_and_nothing_else";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    for nowhere in ["/nowhere/notify", "no-address"] {
        let output = Place::Between(&hosts).output(command("1", &[("NOTIFY_SOCKET", nowhere)]));
        let said = said(&output);
        if said.contains("CAP_") {
            return println!("SKIP {name}: {said}");
        }
        let warnings = said.matches("warning: the service manager is told nothing").count();
        assert!(warnings == 1 && said.contains(nowhere), "{said}");
        assert!(said.trim_end().ends_with("No packets moved. Buffers: all returned."), "{said}");
    }
}
