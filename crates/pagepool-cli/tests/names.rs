//! Names of interfaces: changed while a command runs, long, and such that a terminal or a shell would obey
//! them.

use std::fs;
use std::process::{Command, Stdio};

use crate::between::{Ends, LIMIT, Place, binary, number, ok, send, signal, text, wait_until};
use crate::stacked::{ip, with_veth};
use pagepool_lab::{FrameSocket, LinkSettings, TempFolder};
use pagepool_link::{Ethtool, Netlink, Offload, VethEnd};
use pagepool_watch::RunFolder;

#[test]
fn an_interface_that_is_renamed_is_called_by_its_new_name() {
    let name = "an_interface_that_is_renamed_is_called_by_its_new_name";
    let Some(namespace) = with_veth(name) else { return };
    let (near, far) = namespace.run(|| {
        let mut netlink = ok(Netlink::open());
        (ok(netlink.link("near0")).index, ok(netlink.link("far0")).index)
    });
    let Some(running) = Place::In(&namespace).start(name, &["drop", "near0", "--mode", "native"]) else {
        return;
    };
    if ip(name, &namespace, &["link", "set", "near0", "name", "moved0"]).is_none()
        || ip(name, &namespace, &["link", "set", "far0", "name", "gone;0"]).is_none()
    {
        return;
    }
    running.wait_for_words("near0 was renamed to moved0");
    namespace.run(move || {
        let mut netlink = ok(Netlink::open());
        let end = |name| VethEnd { name, namespace: None, mac: None, mtu: 1500, queues: 1 };
        ok(netlink.add_veth(&end("near0"), &end("far0"))); // others, which no advice is about
        ok(netlink.set_up(near, false));
    });
    running.wait_for_words("moved0 is down: no packets move. Run: ip link set dev moved0 up");
    namespace.run(move || {
        let mut netlink = ok(Netlink::open());
        ok(netlink.set_up(near, true));
        ok(netlink.set_mtu(far, 1400));
        ok(netlink.set_mtu(near, 1400));
    });
    running.wait_for_words("moved0 is up");
    running.wait_for_words("the MTU of moved0 changed from 1500 to 1400");
    let (document, said) = running.interrupt_with_words();
    assert!(!said.contains("ip link set near0") && !said.contains("MTU of near0"), "{said}");
    let change = &document["name_changes"][0];
    assert_eq!((&change["from"], &change["to"]), (&"near0".into(), &"moved0".into()), "{document}");
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("from moved0's peer gone;0 arrive"), "{warnings}");
    assert!(warnings.contains("ethtool -K 'gone;0' tx off"), "{warnings}");
}

#[test]
fn counters_of_a_renamed_interface_are_not_read_from_another() {
    let name = "counters_of_a_renamed_interface_are_not_read_from_another";
    let Some(namespace) = with_veth(name) else { return };
    let Some(running) = Place::In(&namespace).start(name, &["gen", "near0", "--rate", "1000"]) else {
        return;
    };
    running.wait_for_count(&["tx_packets"], 500);
    if ip(name, &namespace, &["link", "set", "near0", "name", "moved0"]).is_none() {
        return;
    }
    running.wait_for_words("near0 was renamed to moved0");
    namespace.run(|| {
        let mut netlink = ok(Netlink::open());
        let end = |name| VethEnd { name, namespace: None, mac: None, mtu: 1500, queues: 1 };
        ok(netlink.add_veth(&end("near0"), &end("other0")));
        for link in ["near0", "other0"] {
            let index = ok(netlink.link(link)).index;
            ok(netlink.set_up(index, true));
        }
        ok(netlink.wait_up("near0", LIMIT));
        let other = ok(FrameSocket::open_here("near0"));
        (0..100).for_each(|_| send(&other, &[0xff; 64])); // more than the first had counted before the run
    });
    let document = running.interrupt();
    assert_eq!((number(&document, "uncounted"), &document["ok"]), (0, &true.into()), "{document}");
}

#[test]
fn an_error_about_a_renamed_interface_has_its_new_name() {
    let name = "an_error_about_a_renamed_interface_has_its_new_name";
    let Some(namespace) = with_veth(name) else { return };
    let made = ip(name, &namespace, &["link", "add", "none0", "type", "ifb"]);
    if made.is_none() || ip(name, &namespace, &["link", "set", "none0", "up"]).is_none() {
        return;
    }
    let Some(running) = Place::In(&namespace).start(name, &["gen", "none0", "--rate", "1000"]) else {
        return;
    };
    running.wait_for_count(&["tx_packets"], 100);
    if ip(name, &namespace, &["link", "set", "none0", "name", "moved0"]).is_none() {
        return;
    }
    running.wait_for_words("none0 was renamed to moved0");
    signal("-INT", running.id());
    running.fails(&["moved0 counts none of "]);
}

#[test]
fn offloads_that_are_held_off_are_undone_by_the_new_name() {
    let name = "offloads_that_are_held_off_are_undone_by_the_new_name";
    let Some(namespace) = with_veth(name) else { return };
    let arguments = ["drop", "near0", "--fix-offloads"];
    let Some(running) = Place::In(&namespace).start(name, &arguments) else { return };
    if ip(name, &namespace, &["link", "set", "far0", "name", "other0"]).is_none() {
        return;
    }
    running.wait_for_words(
        "was renamed; if this command is killed, turn its offloads on with ethtool -K other0 ",
    );
    running.interrupt();
    let on = namespace.run(|| ok(ok(Ethtool::open()).offloads("other0")));
    assert!(on.contains(&Offload::TxChecksum), "{on:?}");
}

#[test]
fn an_alternative_name_of_any_length_is_a_name() {
    let name = "an_alternative_name_of_any_length_is_a_name";
    let Some(namespace) = with_veth(name) else { return };
    let longest = "n".repeat(127);
    for alternative in ["short", "enp129s0f0np0-uplink-to-rack-7", &longest] {
        if ip(name, &namespace, &["link", "property", "add", "dev", "near0", "altname", alternative])
            .is_none()
        {
            return;
        }
        let Some(running) = Place::In(&namespace).start(name, &["drop", alternative]) else { return };
        assert_eq!(running.interrupt()["interfaces"][0]["name"], "near0", "{alternative}");
    }
    let pinned = ["forward", "near0", "enp129s0f0np0-uplink-to-rack-7"];
    let said = Place::In(&namespace).error(&pinned);
    assert!(said.contains("IF1 and IF2 are the same interface, near0"), "{said}");
    let none = Place::In(&namespace).error(&["drop", "enp129s0f0np0-uplink-to-rack-8"]);
    assert!(none.contains("no interface") && none.contains("near0"), "{none}");
    let longer = Place::In(&namespace).error(&["drop", &"n".repeat(128)]);
    assert!(longer.contains("1 to 127 bytes"), "{longer}");
}

/// Whether a terminal would obey a part of a text, or not show it.
fn is_obeyed(text: &str) -> bool {
    let marks = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}'];
    let is_mark = |c| {
        marks.contains(&c) || ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c)
    };
    text.chars().any(|c| c != '\n' && c.is_control() || is_mark(c))
}

#[test]
fn an_interface_name_cannot_control_terminal_or_shell() {
    let name = "an_interface_name_cannot_control_terminal_or_shell";
    for odd in ["a\u{1b}[31mRED", "a\u{202e}b\u{2066}", "a\u{9b}\u{61c}\u{200f}", "a;reboot;#'"] {
        let Some(namespace) = with_veth(name) else { return };
        if ip(name, &namespace, &["link", "set", "far0", "down"]).is_none()
            || ip(name, &namespace, &["link", "set", "near0", "down"]).is_none()
            || ip(name, &namespace, &["link", "set", "near0", "name", odd]).is_none()
        {
            return;
        }
        for form in [
            &["--stats-every", "0"][..],
            &["--stats-every", "1"],
            &["--json"],
            &["--stats-every", "1", "--json"],
        ] {
            let mut command = binary(&["drop", odd, "--seconds", "2"]);
            command.args(form);
            let output = Place::In(&namespace).output(command);
            let (shown, said) = (text(&output.stdout), text(&output.stderr));
            if said.contains("CAP_") {
                return println!("SKIP {name}: {said}");
            }
            assert!(!is_obeyed(shown) && !is_obeyed(said), "{form:?}: {shown:?} {said:?}");
            let word = said.split("Run: ip link set dev ").nth(1).and_then(|rest| rest.split(" up\n").next());
            let word = word.unwrap_or_else(|| panic!("{said}"));
            let read = Command::new("sh").args(["-c", &format!("printf %s {word}")]).output();
            assert_eq!(text(&read.expect("every Linux has a shell").stdout), odd, "{word}");
            if form.contains(&"--json") {
                let mut values = serde_json::Deserializer::from_str(shown).into_iter::<serde_json::Value>();
                assert!(values.all(|value| value.is_ok()), "{shown}");
            }
        }
        let none = Place::In(&namespace).error(&["drop", "none0"]);
        assert!(!is_obeyed(&none) && none.contains("far0"), "{none:?}");
        let not_there = Place::In(&namespace).error(&["drop", &format!("{odd}x")]);
        assert!(!is_obeyed(&not_there), "{not_there:?}");
    }
}

#[test]
fn a_file_name_in_the_run_folder_cannot_control_a_terminal() {
    let folder = TempFolder::new("odd-names").expect("a new folder");
    let odd = "\u{1b}[31mred\u{202e}\u{200f}.1.pagepool";
    fs::write(folder.path().join(odd), "no published file").expect("a file may have that name");
    // Two files of one process: their names tell them apart.
    let demo = binary(&["demo", "--on", "memory", "--seconds", "600", "--json"])
        .env("PAGEPOOL_RUN", folder.path())
        .spawn()
        .map(Ends)
        .expect("the binary was built for this test");
    let runs = RunFolder::at(folder.path());
    let of_demo = || runs.processes().into_iter().flatten().next().map(|process| process.file);
    wait_until("it publishes", || of_demo().is_some());
    let copy = folder.path().join("a\npagepool: all well; run: reboot\u{2028}.9.pagepool");
    fs::copy(of_demo().expect("it publishes"), copy).expect("a file may have that name");
    for arguments in
        [&["list"][..], &["list", "--json"], &["show", "red"], &["doctor"], &["export"], &["clean"]]
    {
        let mut command = binary(arguments);
        command.env("PAGEPOOL_RUN", folder.path());
        let output = command.output().expect("the binary was built for this test");
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert!(!is_obeyed(shown) && !is_obeyed(said), "{arguments:?}: {shown:?} {said:?}");
        let forged = shown.lines().chain(said.lines()).any(|line| line.starts_with("pagepool: all well"));
        assert!(!forged, "{arguments:?}: {shown:?} {said:?}");
    }
    drop(demo);
}

#[test]
fn too_few_descriptors_are_reported_as_such() {
    let name = "too_few_descriptors_are_reported_as_such";
    let Some(namespace) = with_veth(name) else { return };
    let mut refused = 0;
    for limit in 6..40 {
        let run = format!("ulimit -n {limit}; exec \"$0\" drop near0 --seconds 1 --stats-every 0");
        let mut command = Command::new("sh");
        let pagepool = binary(&[]).get_program().to_owned();
        command.args(["-c", &run]).arg(pagepool).env("PAGEPOOL_RUN", crate::between::RUN_FOLDER);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = Place::In(&namespace).output(command);
        let said = text(&output.stderr);
        if said.contains("CAP_") {
            return println!("SKIP {name}: {said}");
        }
        if output.status.code() == Some(1) {
            assert!(said.contains("RLIMIT_NOFILE"), "ulimit -n {limit}: {said}");
            refused += 1;
        }
    }
    assert!(refused > 0, "few are too few");
}
