//! `pagepool-bench`: runs and prints the tables of workloads, and reports whether all figures are valid.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;
use pagepool_cli::report::{output, print_json};
use serde::Serialize;

use super::measure::machine::Machine;
use super::measure::measure;
use super::measure::workload::{Plan, Workload};
use super::outcome::{self, WorkloadOutcome};
use super::plot::Plot;

/// The most runs of a workload that page faults spoil.
const TRIES: u32 = 3;

#[derive(Clone, Debug)]
pub struct TableParams {
    /// One JSON object instead of a table.
    pub json: bool,
    /// Only workloads whose name contains this.
    pub filter: Option<String>,
    pub plan: Plan,
    pub plot: Option<Plot>,
    /// Set when the limit on CPU time is reached.
    pub end: Arc<AtomicBool>,
}

#[derive(Serialize)]
struct TableJson<'a> {
    machine: &'a Machine,
    repeats: usize,
    results: &'a [WorkloadOutcome],
}

/// Fails if a workload failed, or the filter leaves none.
pub fn run<'a>(choice: &TableParams, workloads: impl Iterator<Item = &'a Workload>) -> ExitCode {
    let wanted = |w: &&Workload| choice.filter.as_ref().is_none_or(|word| w.name.contains(word));
    let chosen: Vec<&Workload> = workloads.filter(wanted).collect();
    if chosen.is_empty() {
        let word = choice.filter.as_deref().unwrap_or_default();
        output::error(format_args!(
            "no workload has {word:?} in its name; `pagepool-bench --list` lists them"
        ));
        return ExitCode::FAILURE;
    }
    let machine = Machine::ask();
    let second = sys::pin_owner();
    if !choice.json {
        output::line(format_args!("{machine}\n{}", outcome::head()));
    }
    let mut results = Vec::new();
    let all = chosen.len();
    let goes_on = || !output::failed() && !choice.end.load(Ordering::Relaxed);
    for (done, workload) in chosen.into_iter().enumerate().take_while(|_| goes_on()) {
        output::progress(format_args!("bench: {} of {all}, {}", done + 1, workload.name));
        let outcome = run_one(choice.plan, workload, second);
        if !choice.json {
            output::line(outcome.line());
        }
        results.push(outcome);
    }
    let document = TableJson { machine: &machine, repeats: choice.plan.repeats, results: &results };
    if choice.json {
        print_json(&document);
    }
    let drawn = choice.plot.as_ref().map_or(Ok(()), |plot| draw(plot, &document));
    let judged = verdict(&results, all, choice.json);
    drawn.map_or_else(
        |why| {
            output::error(format_args!("cannot draw the plot: {why}"));
            ExitCode::FAILURE
        },
        |()| judged,
    )
}

fn draw(plot: &Plot, document: &TableJson) -> Result<(), String> {
    plot.draw(serde_json::to_value(document).map_err(|error| error.to_string())?)
}

/// Runs a workload, and again if page faults were the only fault: a kernel that compacts memory for huge
/// pages causes some in any program.
fn run_one(plan: Plan, workload: &Workload, second: Option<usize>) -> WorkloadOutcome {
    let mut outcome = run_once(plan, workload, second);
    while outcome.faulted && outcome.runs < TRIES {
        let runs = outcome.runs + 1;
        outcome = WorkloadOutcome { runs, ..run_once(plan, workload, second) };
    }
    outcome
}

fn run_once(plan: Plan, workload: &Workload, second: Option<usize>) -> WorkloadOutcome {
    let ready = match (workload.ready)() {
        Ok(ready) => ready,
        Err(why) => return WorkloadOutcome::failed(workload, why),
    };
    let beside = match workload.beside.map(|ready| ready()).transpose() {
        Ok(beside) => beside,
        Err(why) => return WorkloadOutcome::failed(workload, why),
    };
    match measure(plan.lighter(workload.weight), ready, beside, second) {
        Ok(figures) => WorkloadOutcome::of(workload, figures),
        Err(why) => WorkloadOutcome::skipped(workload, why),
    }
}

/// Judges `chosen` workloads, of which the last may not have run.
fn verdict(results: &[WorkloadOutcome], chosen: usize, quiet: bool) -> ExitCode {
    let failed: Vec<&str> = results.iter().filter(|r| r.failed.is_some()).map(|r| r.name).collect();
    let skipped = results.iter().filter(|r| r.skipped.is_some()).count();
    if !quiet {
        let (all, bad) = (results.len(), failed.len());
        output::line(format_args!("\n{all} workloads, {bad} failed, {skipped} skipped"));
        output::line(
            "per buffer; tsc: ticks of the time-stamp counter; core, instr: user-mode cycles and \
             instructions",
        );
    }
    if !failed.is_empty() {
        output::error(format_args!("failed: {}", failed.join(", ")));
    }
    let ran = results.len();
    let is_limited = ran < chosen && !output::failed(); // failed output is another reason
    if is_limited {
        output::error(format_args!(
            "the limit on CPU time is reached: {ran} of {chosen} workloads ran. Raise it (`ulimit -t`), or \
             choose fewer with --filter"
        ));
    }
    if failed.is_empty() && !is_limited { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::counted::{Counted, Moves, Rule};
    use crate::measure::workload::{Body, Ready};
    use std::sync::atomic::AtomicUsize;

    const PLAN: Plan = Plan { repeats: 9, buffers: 1024 };

    fn still() -> Result<Ready, String> {
        Ok(Ready::one_core(|_| ()).counting(|| Counted::from_fields([("alloc_fast", 0)])))
    }

    const FITS: Workload = Workload::new("fits", still).rules(&[Rule(&["alloc_fast"], Moves::Any)]);
    const DOES_NOT: Workload = Workload::new("does_not", still).rules(&[Rule(&["alloc_fast"], Moves::Each)]);

    fn choice(filter: Option<&str>) -> TableParams {
        TableParams {
            json: true,
            filter: filter.map(str::to_owned),
            plan: PLAN,
            plot: None,
            end: Arc::default(),
        }
    }

    #[test]
    fn a_workload_whose_counters_do_not_fit_fails_the_bench() {
        let both = [FITS, DOES_NOT];
        assert_eq!(run(&choice(Some("fits")), both.iter()), ExitCode::SUCCESS);
        assert_eq!(run(&choice(None), both.iter()), ExitCode::FAILURE);
    }

    #[test]
    fn a_table_that_is_not_whole_fails_the_bench() {
        let ended = TableParams { end: Arc::new(true.into()), ..choice(None) };
        assert_eq!(run(&ended, [FITS].iter()), ExitCode::FAILURE);
    }

    #[test]
    fn a_workload_that_cannot_be_made_ready_fails_the_bench() {
        let cannot = Workload::new("cannot", || Err("no memory".into()));
        assert_eq!(run(&choice(None), [cannot].iter()), ExitCode::FAILURE);
    }

    fn faulting(faults: bool) -> Result<Ready, String> {
        const MAPPED_ANEW: usize = 64 << 20; // glibc reuses freed blocks of up to 32 MiB
        const HUGE_PAGE: usize = 2 << 20; // one fault each, whatever the size of a page
        let body = move |_| {
            if faults {
                let mut fresh = vec![0u8; MAPPED_ANEW];
                fresh.iter_mut().step_by(HUGE_PAGE).for_each(|byte| *byte = 1);
                std::hint::black_box(&fresh);
            }
        };
        still().map(|ready| Ready { body: Body::OneCore(Box::new(body)), ..ready })
    }

    /// In its first run only.
    fn faulting_once() -> Result<Ready, String> {
        static RUN: AtomicUsize = AtomicUsize::new(0);
        faulting(RUN.fetch_add(1, Ordering::Relaxed) == 0)
    }

    #[test]
    fn page_faults_that_do_not_come_again_are_forgiven() {
        let with = |ready| run_one(PLAN, &Workload { name: "faults", ready, ..FITS }, None);
        let once = with(faulting_once);
        assert_eq!((once.failed.as_deref(), once.runs), (None, 2));
        assert!(once.line().ends_with("run 2"), "{}", once.line());
        let always = with(|| faulting(true));
        assert_eq!((always.failed.is_some(), always.runs), (true, TRIES));
        let path = run_one(PLAN, &Workload { ready: || faulting(true), ..DOES_NOT }, None);
        assert_eq!((path.failed.is_some(), path.runs), (true, 1), "another path is not forgiven");
    }

    #[test]
    fn a_filter_that_leaves_nothing_fails() {
        assert_eq!(run(&choice(Some("nonesuch")), [FITS].iter()), ExitCode::FAILURE);
    }

    #[test]
    fn the_document_has_the_keys_that_readers_rely_on() {
        let results = [run_one(PLAN, &FITS, None)];
        let document = TableJson { machine: &Machine::ask(), repeats: 9, results: &results };
        let text = serde_json::to_string(&document).expect("plain data");
        let parsed: serde_json::Value = serde_json::from_str(&text).expect("it was written just now");
        let result = &parsed["results"][0];
        for key in
            ["name", "ns_min", "ns_med", "ns_max", "tsc_med", "core_cycles_med", "instructions", "counters"]
        {
            assert!(result.get(key).is_some(), "{key} is missing: {result}");
        }
        for key in
            ["cpu", "kernel", "mitigations", "governor", "rustc", "tsc_ghz", "hardware_counters", "date"]
        {
            assert!(parsed["machine"].get(key).is_some(), "{key} is missing");
        }
    }
}
