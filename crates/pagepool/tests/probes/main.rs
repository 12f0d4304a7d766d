//! The probes, each of them provoked: as events of `tracing`, as ELF notes, and as uprobes of this kernel.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod bpftrace;
mod events;
mod notes;
mod provoke;
mod uprobe;

use std::collections::BTreeMap;

use notes::Note;
use pagepool::PoolProbe;
use provoke::Fired;

/// The notes of this program that are the pool's.
fn own_notes() -> Vec<Note> {
    notes::parse(&std::fs::read("/proc/self/exe").unwrap(), "pagepool")
}

fn number_of_args() -> BTreeMap<String, usize> {
    PoolProbe::ALL.iter().map(|probe| (probe.name.to_owned(), probe.args.len())).collect()
}

#[test]
fn each_probe_is_provoked_and_none_is_declared_twice() {
    let provoked: BTreeMap<_, _> =
        provoke::all().into_iter().map(|f| (f.probe.into(), f.args.len())).collect();
    assert_eq!(provoked, number_of_args());
    assert_eq!(number_of_args().len(), PoolProbe::ALL.len());
}

#[test]
fn each_probe_is_a_nop_with_a_note() {
    let notes = own_notes();
    let there: BTreeMap<_, _> = notes.iter().map(|note| (note.name.clone(), note.args.len())).collect();
    assert_eq!(there, number_of_args());
    let program = std::fs::read("/proc/self/exe").unwrap();
    let nop: &[u8] = if cfg!(target_arch = "x86_64") { &[0x90] } else { &[0x1f, 0x20, 0x03, 0xd5] };
    for note in &notes {
        assert_eq!(note.semaphore, 0, "{}: on all the time", note.name);
        assert!(program[note.offset as usize..].starts_with(nop), "{} is no nop", note.name);
    }
}

/// What was seen is what was provoked, in any order of probes.
fn assert_same(mut seen: Vec<Fired>, mut provoked: Vec<Fired>) {
    for fired in seen.iter_mut().chain(&mut provoked).filter(|fired| fired.probe == "stall") {
        let held_ms = std::mem::take(&mut fired.args[3]);
        assert!((0..60_000).contains(&held_ms), "held for {held_ms} ms");
    }
    seen.sort();
    provoked.sort();
    assert_eq!(seen, provoked, "left: seen, right: provoked");
}
